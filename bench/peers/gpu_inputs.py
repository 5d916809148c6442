"""Loss of a frozen language model and its gradient with respect to the embeddings given in the place of tokens, in PyTorch and
Hugging Face transformers, for timing beside `tenon bench inputs`:

    python3 bench/peers/gpu_inputs.py [--model llama3_2_1b] [--form lean|compiled|eager] [--batch 16] [--length 512] [--scored 480]

lean      network under torch.compile; head for scored positions alone, in chunks of rows whose logits become their gradient in place
compiled  network, head for scored positions and cross-entropy under torch.compile as one
layers    as lean, each layer compiled for itself: starts sooner
eager     as usually written: logits of every position, in f32 for the loss, nothing compiled
Keep: weights have no gradient in any form."""
import argparse
import os

if __name__ == "__main__" and "--check" in os.sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import gpu_lm  # noqa: E402

FORMS = ("lean", "compiled", "layers", "eager")
LOGIT_BYTES = 600e6  # of a chunk: products of about 2000 rows are as fast as larger ones
IGNORED = -100


# --- the head ---------------------------------------------------------------------------------------------------------------

def xent_plain(z, labels, loss, count):
    """z (M,V) becomes the gradient of the mean over count labels; loss (M) gets the rows' own."""
    p = z.float()
    lse = p.logsumexp(1, keepdim=True)
    loss.copy_((lse - p.gather(1, labels[:, None]))[:, 0])
    p = (p - lse).exp_()
    z.copy_(p.scatter_add_(1, labels[:, None], p.new_full((1, 1), -1.0).expand(len(labels), 1)) / count)


def xent_triton(z, labels, loss, count):
    import triton
    import triton_blocks
    triton_blocks._xent_kernel[(z.shape[0],)](z, labels, loss, count, z.shape[1], z.shape[1], BLOCK=min(triton.next_power_of_2(z.shape[1]), 4096), num_warps=8)


class LeanHead(torch.autograd.Function):
    """Mean cross-entropy of x w^T, its gradient made with it, `rows` rows of logits at a time. x (M,d), w (V,d), labels (M)."""

    @staticmethod
    def forward(ctx, x, w, labels, rows, xent):
        M = x.shape[0]
        dx, loss = torch.empty_like(x), x.new_empty(M, dtype=torch.float32)
        count = torch.full((), float(M), device=x.device)
        z = x.new_empty(min(rows, M), w.shape[0])
        for i in range(0, M, rows):
            part = z[:min(rows, M - i)]
            torch.mm(x[i:i + rows], w.t(), out=part)
            xent(part, labels[i:i + rows], loss[i:i + rows], count)
            torch.mm(part, w, out=dx[i:i + rows])
        ctx.save_for_backward(dx)
        return loss.sum() / count

    @staticmethod
    def backward(ctx, dloss):
        return ctx.saved_tensors[0] * dloss, None, None, None, None


# --- the step ---------------------------------------------------------------------------------------------------------------

def make_loss(form, model, labels, scored, mode=None, rows=None, xent=None):
    """loss(x): x (B,T,d). labels (B,T), those before the last `scored` of a row IGNORED; a label belongs to its own position."""
    w, last = model.lm_head.weight, labels[:, -scored:].reshape(-1).contiguous()

    def body(x):
        return model.model(inputs_embeds=x, use_cache=False).last_hidden_state

    if form == "eager":
        return lambda x: F.cross_entropy(model(inputs_embeds=x, use_cache=False).logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    if form == "compiled":
        whole = lambda x: F.cross_entropy(F.linear(body(x)[:, -scored:], w).float().flatten(0, 1), last)
        return gpu_lm.compiled(whole, mode)
    if form == "layers":
        for layer in model.model.layers:
            layer.compile(dynamic=False, fullgraph=True, mode=mode)
    else:
        body = gpu_lm.compiled(body, mode)
    rows = rows or max(1, int(LOGIT_BYTES / (w.shape[0] * w.element_size())))
    rows = -(-len(last) // -(-len(last) // rows))  # chunks of equal size
    xent = xent or (xent_triton if w.is_cuda else xent_plain)
    return lambda x: LeanHead.apply(body(x)[:, -scored:].reshape(-1, w.shape[1]), w, last, rows, xent)


def make_inputs(model, batch, length, scored, device, dtype):
    torch.manual_seed(2)
    x = torch.randn(batch, length, model.config.hidden_size, device=device).mul_(0.02).to(dtype).requires_grad_()
    labels = torch.randint(model.config.vocab_size, (batch, length), device=device)
    labels[:, :length - scored] = IGNORED
    return x, labels


def make_step(loss_of, x):
    def step():
        loss = loss_of(x)
        return loss.detach(), torch.autograd.grad(loss, x)[0]
    return step


def main(args):
    import time
    begin, dtype = time.monotonic(), torch.float32 if args.tiny else torch.bfloat16
    model = gpu_lm.make_model(args.model, args.device, dtype, "sdpa" if args.form == "eager" else "peer", args.tiny)
    x, labels = make_inputs(model, args.batch, args.length, args.scored, args.device, dtype)
    fields = {"name": f"inputs.{args.model}", "side": args.form, "batch": args.batch, "length": args.length, "scored": args.scored}
    if args.form != "eager":
        fields.update(gpu_lm.choose_prompt_kernel(model.config, args.batch, args.length, dtype, args.device, True))
    step = make_step(make_loss(args.form, model, labels, args.scored, args.mode), x)
    if args.form != "eager":  # that has nothing to compile, and takes its memory when it is timed
        for _ in range(3):
            fields["loss"] = round(step()[0].item(), 5)
    fields["start_s"] = round(time.monotonic() - begin, 1)
    gpu_lm.commands_of(args)
    gpu_lm.serve(fields, args.device, step, gpu_lm.device_times)


# --- checks -----------------------------------------------------------------------------------------------------------------

def interpreter_works():
    """Triton's interpreter of some versions does not know the numpy of some others."""
    z = torch.zeros(1, 2)
    try:
        xent_triton(z, torch.tensor([0]), torch.empty(1), torch.ones(()))
    except Exception as error:
        print(f"skipped: cross-entropy in Triton's interpreter: {type(error).__name__} {str(error)[:90]}")
        return False
    return True


def check():
    """Every form in float32 against the plain one in float64: loss and gradient, chunks that do not divide the rows, the Triton kernel
    through its interpreter; compiled ones once for each network."""
    checks = gpu_lm.Checks()
    lean = [("lean", xent_plain, "off")] + ([("lean", xent_triton, "off")] if interpreter_works() else [])
    for name in gpu_lm.MODELS:
        for scored, rows in ((9, 7), (12, 5), (1, 64)):
            compiled = [(form, xent_plain, None) for form in ("lean", "compiled", "layers")] if scored == 9 else []
            want = None
            for form, xent, mode in [("eager", None, "off")] * 2 + lean + compiled:
                dtype = torch.float32 if want else torch.float64
                model = gpu_lm.make_model(name, "cpu", torch.float32, "sdpa" if form == "eager" else "peer", tiny=True).to(dtype)
                x, labels = make_inputs(model, 3, 12, scored, "cpu", torch.float32)
                x = x.detach().mul(50).to(dtype).requires_grad_()
                got = make_step(make_loss(form, model, labels, scored, mode, rows, xent), x)()
                if want:
                    label = f"{name} scored={scored} {form}{'' if mode else ' under torch.compile'} {xent.__name__ if xent else 'whole logits'}"
                    checks(label, max(gpu_lm.distance(g, w) for g, w in zip(got, want)), 1e-5)
                want = want or got
                if any(p.grad is not None or p.requires_grad for p in model.parameters()):
                    raise RuntimeError("a weight has a gradient")
    checks.end()


if __name__ == "__main__":
    a = argparse.ArgumentParser(description="Loss of a frozen language model and its gradient with respect to input embeddings.")
    a.add_argument("--model", choices=list(gpu_lm.MODELS), default="llama3_2_1b")
    gpu_lm.add_arguments(a, FORMS)
    a.add_argument("--batch", type=int, default=16)
    a.add_argument("--length", type=int, default=512)
    a.add_argument("--scored", type=int, default=480, help="positions at the end of each row that count in the loss")
    args = a.parse_args()
    if min(args.batch, args.length, args.scored) < 1 or args.scored > args.length:
        a.error("--batch, --length and --scored must be at least 1, and --scored at most --length")
    gpu_lm.guarded(check if args.check else lambda: main(args))
