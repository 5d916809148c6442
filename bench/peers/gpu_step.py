"""What the PyTorch peers on a GPU share: weights and batches of the twins on the device, the head, the optimizer, timing, the
profile, and a small service on standard input, so that gpu.py can time a compiled peer and ours in turn.

A step is forward, backward, clipping and AdamW, activations of one type over float32 weights, nothing waits for the GPU. The
first steps train on batches of their own; with --file their losses go into a file that `tenon check --against` reads, beside
the weights they began with.
Keep: the numbers of against.py (decay, clipping) but for the rate; nothing in the timed part that the other side does not do as well.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as F

import against

FIRST_STEPS = 20
# The twins' 1e-3 from the first step on is too hot for networks of this size: on text GPT-2's loss jumps to 16 once, and the rounding
# of bf16 grows to 5 % of the loss in 15 steps between two forms of one PyTorch network. The file tells our side.
TRAIN = {**against.TRAIN, "train.lr": 3e-4}
GEMMS = ("gemm", "cutlass", "nvjet", "cublas", "xmma", "splitk")
ATTENTION = ("flash", "fmha", "attention", "cudnn_generated")


# --- weights, batches ----------------------------------------------------------------------------------------------------

def make_net(net_class, defaults, text, batch, length, dtype=torch.float32, steps=FIRST_STEPS, folder=None):
    """A twin with its parameters made, and a batch for each step: (net, tokens, labels), tokens and labels (steps,B,T); of a
    prepared data set where a folder is named."""
    settings = against.parse_settings(text, {**defaults, **TRAIN})
    settings["train.context"], settings["train.steps"] = length, steps
    rng = torch.Generator().manual_seed(1)
    if folder:
        tokens, labels = against.read_batches(folder, steps, batch, length, settings["vocab"])
    else:
        tokens, labels = against.make_batches(steps, batch, length, settings["vocab"], rng)
    net = net_class(settings, dtype, rng)
    with torch.no_grad():
        net.forward(tokens[0, :1, :1])  # makes the parameters
    return net, tokens, labels


def device_params(net, device):
    """By name; the table of tokens gets rows up to a multiple of 64, which products like. The head leaves them out."""
    params = {name: p.detach().to(device, copy=True) for name, p in net.params.items()}
    embed = params["embed"]
    params["embed"] = torch.cat([embed, embed.new_zeros(-embed.shape[0] % 64, embed.shape[1])])
    for p in params.values():
        p.requires_grad_(True)
    return params


# --- blocks --------------------------------------------------------------------------------------------------------------

def linear(x, w, b=None):
    return F.linear(x, w.to(x.dtype), None if b is None else b.to(x.dtype))


class RowsHead(torch.autograd.Function):
    """Sum of the cross-entropies of x w^T, `rows` rows of logits at a time, the gradient made while they are there. x (M,d),
    w (V',d) of one type, labels (M) with -1 for those that do not count; the vocabulary is the first `vocab` rows of w."""

    @staticmethod
    def forward(ctx, x, w, labels, vocab, rows):
        loss, dx, dw = x.new_zeros((), dtype=torch.promote_types(x.dtype, torch.float32)), torch.empty_like(x), torch.zeros_like(w)
        for i in range(0, x.shape[0], rows):
            part, label = x[i:i + rows], labels[i:i + rows, None]
            counts = label >= 0
            z = part @ w.t()
            z[:, vocab:] = -torch.inf
            p = F.softmax(z, 1)
            del z
            at = label.clamp_min(0)
            loss -= torch.where(counts, p.gather(1, at).to(loss.dtype).log(), 0).sum()
            p.scatter_add_(1, at, p.new_full((1, 1), -1.0).expand_as(at))
            dx[i:i + rows] = (p @ w) * counts
            dw.addmm_(p.t(), part * counts)
        ctx.save_for_backward(dx, dw)
        return loss

    @staticmethod
    def backward(ctx, dloss):
        dx, dw = ctx.saved_tensors
        return dx.mul_(dloss), dw.mul_(dloss), None, None, None


def head_loss(x, embed, labels, vocab, rows):
    """Mean over the labels that count. rows = 0: whole logits and torch's own cross-entropy, for torch.compile to fuse."""
    x, labels, w = x.reshape(-1, x.shape[-1]), labels.reshape(-1), embed.to(x.dtype)
    if rows:
        return RowsHead.apply(x, w, labels, vocab, rows) / (labels >= 0).sum()
    logits = F.linear(x, w)
    logits = logits.to(torch.promote_types(x.dtype, torch.float32))
    if vocab < w.shape[0]:
        logits = torch.where(torch.arange(w.shape[0], device=x.device) < vocab, logits, -torch.inf)
    return F.cross_entropy(logits, labels, ignore_index=-1)


HEADS, ROWS = ("whole", "rows", "triton"), 16384
GRAPHS = ("layers", "whole", "none")


def layer_params(params, layers):
    """For each layer its parameters by their names in it, and as `next.*` those of the norm behind it."""
    out = []
    for i in range(layers):
        own = {name.split(".", 1)[1]: p for name, p in params.items() if name.startswith(f"layer{i}.")}
        norm = f"layer{i + 1}.norm1." if i + 1 < layers else "norm_f."
        out.append({**own, **{f"next.{name[len(norm):]}": p for name, p in params.items() if name.startswith(norm)}})
    return out


def make_body(params, kinds, begin, layer, dtype, graph):
    """body(tokens) -> (B,T,d): begin(params, tokens, dtype) -> (x, its norm), then layer(kind, params of it, x, norm) -> the same
    behind it. graph=layers compiles one layer of each kind, in seconds; nothing is lost by it, since what passes from layer to
    layer is stored in any case. graph=whole compiles all of them as one."""
    parts = layer_params(params, len(kinds))
    if graph == "layers":
        begin, layer = torch.compile(begin, dynamic=False), torch.compile(layer, dynamic=False)

    def body(tokens):
        x, u = begin(params, tokens, dtype)
        for kind, part in zip(kinds, parts):
            x, u = layer(kind, part, x, u)
        return u

    return torch.compile(body) if graph == "whole" else body


def make_loss(body, head, embed, vocab, compiled):
    """loss_of(tokens, labels) from body(tokens) -> (B,T,d)."""
    if head == "triton":
        import triton_blocks
        return lambda tokens, labels: triton_blocks.head_loss(body(tokens), embed, labels, vocab)
    loss = lambda x, labels: head_loss(x, embed, labels, vocab, ROWS if head == "rows" else 0)
    if compiled and head == "whole":
        loss = torch.compile(loss)
    return lambda tokens, labels: loss(body(tokens), labels)


# --- the step ------------------------------------------------------------------------------------------------------------

def make_optimizer(net, params):
    s, groups = net.settings, {}
    for name, p in params.items():
        key = s["train.decay"] if net.decays[name] else 0.0, s["train.lr"] * net.lr_factor[name]
        groups.setdefault(key, []).append(p)
    groups = [{"params": ps, "weight_decay": decay, "lr": lr} for (decay, lr), ps in groups.items()]
    return torch.optim.AdamW(groups, betas=(s["train.beta1"], s["train.beta2"]), eps=s["train.eps"], fused=True)


def make_step(net, params, loss_of):
    """loss_of(tokens, labels) -> a function that makes one step and returns its loss, a tensor."""
    optimizer, every, limit = make_optimizer(net, params), list(params.values()), net.settings["train.clip"]

    def one(tokens, labels):
        loss = loss_of(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(every, limit, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return one


def first_steps(one, model, net, tokens, labels, path):
    """Trains on each batch once, which also warms up and compiles; writes weights, batches and losses where a path is given."""
    losses = [one(tokens[i], labels[i]) for i in range(tokens.shape[0])]
    losses = torch.stack(losses).double().cpu()
    if path:
        out = {f"param.{name}": p.detach().float() for name, p in net.params.items()}
        out.update({"input.tokens": tokens.cpu().int(), "input.labels": labels.cpu().int(), "output.loss": losses[0].clone(),
                    "output.losses": losses})
        against.write_file(path, model, net.settings, out)
    return losses.tolist()


# --- timing --------------------------------------------------------------------------------------------------------------

def time_steps(one, steps):
    """Milliseconds of each step on the GPU's clock."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        one()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def profile(one, steps=3, most=20):
    """Where the time of the kernels goes: share of products and attention, and the largest kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        for _ in range(steps):
            one()
        torch.cuda.synchronize()
    rows = [(e.key, e.self_device_time_total, e.count) for e in p.key_averages() if e.self_device_time_total > 0]
    total = sum(t for _, t, _ in rows)
    share = lambda words: round(sum(t for name, t, _ in rows if any(w in name.lower() for w in words)) / total, 4)
    kernels = [{"kernel": name[:70], "ms": round(t / 1e3 / steps, 3), "calls": n // steps, "share": round(t / total, 4)}
               for name, t, n in sorted(rows, key=lambda r: -r[1])[:most]]
    return {"kernel_ms": round(total / 1e3 / steps, 3), "gemm_share": share(GEMMS), "attention_share": share(ATTENTION), "kernels": kernels}


def timing_line(name, args, one, steps):
    torch.cuda.reset_peak_memory_stats()
    times = time_steps(one, steps)
    ms = statistics.median(times)
    q = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [ms] * 3
    return {"name": name, "side": args.form, "value": round(ms, 4), "unit": "ms", "spread": round((q[2] - q[0]) / 2, 4), "steps": len(times),
            "tokens_per_s": round(1e3 * args.batch * args.length / ms), "batch": args.batch, "length": args.length,
            "peak_mb": round(torch.cuda.max_memory_allocated() / 1e6), "torch": torch.__version__}


def serve(name, args, one, losses):
    """Reads `time N`, `profile` and `quit`; answers each with a line of JSON. The first line says that the peer is warm."""
    def say(fields):
        print(json.dumps(fields), flush=True)

    memory = round(torch.cuda.memory_reserved() / 1e6)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # while others are timed, a peer holds its weights alone
    say({"name": name, "side": args.form, "ready": True, "losses": losses, "memory_mb": memory})
    for command in sys.stdin:
        words = command.split()
        if words[:1] == ["quit"]:
            return
        one()  # takes the memory again
        line = timing_line(name, args, one, int(words[1])) if words[0] == "time" else {"name": name, "side": args.form, **profile(one)}
        torch.cuda.empty_cache()
        say(line)


# --- command -------------------------------------------------------------------------------------------------------------

def parse_arguments(description, forms, batch, length, settings):
    """settings: default text of each network, by name."""
    a = argparse.ArgumentParser(description=description)
    a.add_argument("--net", choices=list(settings), default=next(iter(settings)))
    a.add_argument("--form", choices=forms, default=forms[0])
    a.add_argument("--batch", type=int, default=batch, help="sequences of a batch")
    a.add_argument("--length", type=int, default=length, help="tokens of a sequence")
    a.add_argument("--settings", help='"key=value key=value", as for tenon')
    a.add_argument("--steps", type=int, default=30, help="timed steps")
    a.add_argument("--first", type=int, default=FIRST_STEPS, help="steps on batches of their own before")
    a.add_argument("--text", help="take batches from this data set of `tenon data prepare`")
    a.add_argument("--file", help="write weights, batches and the first losses here (docs/against.md)")
    a.add_argument("--head", choices=HEADS, help="cross-entropy of whole logits, of some rows at a time, or in Triton (default: by the form)")
    a.add_argument("--graph", choices=GRAPHS[:2], default="layers", help="what torch.compile sees at a time")
    a.add_argument("--profile", action="store_true", help="also print where a step's time goes")
    a.add_argument("--serve", action="store_true", help="wait for commands on standard input")
    args = a.parse_args()
    if min(args.batch, args.length, args.steps, args.first) < 1:
        a.error("--batch, --length, --steps and --first must be at least 1")
    args.settings = args.settings or settings[args.net]
    return args


def run(model, args, make):
    """make(args) -> (net, params, loss_of, tokens, labels)."""
    name = args.net
    torch.set_float32_matmul_precision("high")
    try:
        net, params, loss_of, tokens, labels = make(args)
        step = make_step(net, params, loss_of)
        losses = first_steps(step, model, net, tokens, labels, args.file)
        one = lambda: step(tokens[0], labels[0])
        if args.serve:
            return serve(name, args, one, losses)
        print(json.dumps({**timing_line(name, args, one, args.steps), "losses": [losses[0], losses[-1]]}), flush=True)
        if args.profile:
            print(json.dumps({"name": f"{name}.profile", **profile(one)}), flush=True)
    except (RuntimeError, ValueError, ImportError) as error:
        sys.exit(f"error: {type(error).__name__}: {str(error).strip()[:1500]}")
