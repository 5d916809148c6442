"""Greedy decoding of a frozen language model, and a prompt up to the logits behind its last token, in PyTorch and Hugging Face
transformers, for timing beside `tenon bench decode`:

    python3 bench/peers/gpu_decode.py [--form graphs|tuned|eager] [--batch 1] [--length 1024]
    python3 bench/peers/gpu_decode.py --prefill [--form compiled|eager] [--batch 1] [--length 4096]

graphs    a token with its choice under torch.compile, replayed as a CUDA graph ("reduce-overhead")
tuned     the same with Inductor's coordinate descent, which writes the products of a single sequence as reductions
compiled  a prompt under torch.compile, replayed as a CUDA graph
eager     as usually written, nothing compiled: decoding with a static cache, a prompt with a growing one
A static cache holds `length` positions, and every token reads all of them, as on our side; the tokens timed are the last TOKENS of
them. A token, its position and the text so far stay on the device; the host waits once, at the end.
Keep: tokens are those of full forward passes (--check)."""
import argparse
import time

import torch

import gpu_lm

FORMS = {False: ("graphs", "tuned", "eager"), True: ("compiled", "eager")}
TOKENS = 128


# --- decoding ---------------------------------------------------------------------------------------------------------------

class Decoder:
    """prompt (B,n): the cache is filled with it, uncompiled; run() then chooses tokens n .. capacity-1 and run again does the same."""

    def __init__(self, model, prompt, capacity, mode=None, **options):
        self.model, self.start, self.capacity = model, prompt.shape[1], capacity
        self.cache = gpu_lm.make_cache(model, capacity)
        self.text = torch.zeros(prompt.shape[0], capacity + 1, dtype=torch.long, device=prompt.device)  # (B,capacity+1)
        self.text[:, :self.start] = prompt
        with torch.no_grad():
            logits = model(input_ids=prompt, position_ids=torch.arange(self.start, device=prompt.device)[None], past_key_values=self.cache,
                           use_cache=True, logits_to_keep=1).logits
        self.first = logits[:, -1].argmax(-1, keepdim=True)  # (B,1)
        self.token = self.first.clone()
        for kept in (self.token, self.text):  # changed in place by the compiled step
            torch._dynamo.mark_static_address(kept)
        self.one = gpu_lm.compiled(self.step, mode, **options)

    def step(self):
        """Feeds the token, chooses the next."""
        position = self.cache.get_seq_length() + torch.zeros((1, 1), dtype=torch.long, device=self.token.device)  # the cache's own moves on
        logits = self.model(input_ids=self.token, position_ids=position, past_key_values=self.cache, use_cache=True).logits
        self.text.index_copy_(1, position.view(1), self.token)
        self.token.copy_(logits[:, -1].argmax(-1, keepdim=True))

    @torch.no_grad()
    def run(self, tokens=None):
        gpu_lm.set_back(self.cache, self.start)
        self.token.copy_(self.first)
        for _ in range(tokens or self.capacity - self.start):
            self.one()


def make_decoder(args, dtype):
    """(decoder, what was chosen for it)."""
    eager = args.form == "eager"
    model = gpu_lm.make_model("llama3_2_1b", args.device, dtype, "sdpa" if eager else "peer", args.tiny)
    chosen = {} if eager else gpu_lm.choose_decode_kernel(model.config, args.batch, args.length, dtype, args.device)
    prompt = torch.randint(model.config.vocab_size, (args.batch, max(args.length - TOKENS, args.length // 2)), device=args.device)
    options = {"coordinate_descent_tuning": True, "triton.cudagraphs": True} if args.form == "tuned" and not args.mode else {}
    return Decoder(model, prompt, args.length, args.mode or ("off" if eager else "reduce-overhead"), **options), chosen


def serve_decode(args, dtype, begin):
    decoder, chosen = make_decoder(args, dtype)
    calls = decoder.capacity - decoder.start
    if args.form != "eager":
        for _ in range(2):  # compiles, records, replays
            decoder.run(min(8, calls))
    fields = {"name": "decode.llama3_2_1b", "side": args.form, "batch": args.batch, "length": args.length, "tokens": calls, **chosen,
              "start_s": round(time.monotonic() - begin, 1)}
    gpu_lm.commands_of(args)
    gpu_lm.serve(fields, args.device, decoder.run, gpu_lm.wall_times, lambda: decoder.run(1), calls)


# --- a prompt ----------------------------------------------------------------------------------------------------------------

class Prompt:
    """run() reads prompt (B,n) from its beginning and leaves keys and values in a cache and (B,vocab) in logits, on the host."""

    def __init__(self, model, prompt, form, mode=None):
        self.model, self.prompt, self.form = model, prompt, form
        self.positions = torch.arange(prompt.shape[1], device=prompt.device)[None]
        self.logits = torch.empty(prompt.shape[0], model.config.vocab_size, device=prompt.device, dtype=model.dtype)
        torch._dynamo.mark_static_address(self.logits)
        self.one = self.grow
        if form == "compiled":
            self.cache = gpu_lm.make_cache(model, prompt.shape[1])
            with torch.no_grad():
                self.fill()  # makes the cache's tensors, which a compiled step could not
            self.one = gpu_lm.compiled(self.fill, mode or "reduce-overhead")

    def fill(self):
        gpu_lm.set_back(self.cache, 0)
        self.logits.copy_(self.model(input_ids=self.prompt, position_ids=self.positions, past_key_values=self.cache, use_cache=True,
                                     logits_to_keep=1).logits[:, -1])

    def grow(self):
        self.logits.copy_(self.model(input_ids=self.prompt, use_cache=True, logits_to_keep=1).logits[:, -1])

    @torch.no_grad()
    def on_device(self):
        self.one()

    def run(self):
        self.on_device()
        return self.logits.cpu()


def serve_prompt(args, dtype, begin):
    eager = args.form == "eager"
    model = gpu_lm.make_model("llama3_2_1b", args.device, dtype, "sdpa" if eager else "peer", args.tiny)
    chosen = {} if eager else gpu_lm.choose_prompt_kernel(model.config, args.batch, args.length, dtype, args.device, False)
    prompt = torch.randint(model.config.vocab_size, (args.batch, args.length), device=args.device)
    p = Prompt(model, prompt, args.form, args.mode)
    if not eager:
        for _ in range(3):
            p.run()
    fields = {"name": "prefill.llama3_2_1b", "side": args.form, "batch": args.batch, "length": args.length, **chosen,
              "start_s": round(time.monotonic() - begin, 1)}
    gpu_lm.commands_of(args)
    more = lambda: {"back_to_back_ms": round(sorted(gpu_lm.device_times(p.on_device, 5, args.device))[2], 4)}
    gpu_lm.serve(fields, args.device, p.run, gpu_lm.wall_times, more=more)


# --- checks ------------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def full_forwards(model, prompt, capacity):
    """Greedy tokens with no cache at all: (text (B,capacity), logits behind the last)."""
    text = prompt
    while True:
        logits = model(input_ids=text, use_cache=False).logits[:, -1]
        if text.shape[1] == capacity:
            return text, logits
        text = torch.cat([text, logits.argmax(-1, keepdim=True)], 1)


def check():
    """Each form's tokens, twice over, and a prompt's logits, against full forward passes with transformers' own attention."""
    checks = gpu_lm.Checks()
    models = {a: gpu_lm.make_model("llama3_2_1b", "cpu", torch.float32, a, tiny=True) for a in ("sdpa", "peer")}
    for model in models.values():
        for p in model.parameters():
            p.mul_(4)  # so that a token's choice depends on those before it
    for batch in (1, 3):
        prompt = torch.randint(71, (batch, 9), generator=torch.Generator().manual_seed(3))
        want, logits = full_forwards(models["sdpa"], prompt, 24)
        if len(want[0, 9:].unique()) < 4:
            raise RuntimeError("the text repeats itself: the check would not notice a wrong mask")
        sides = [("sdpa", None, "off")] + [("peer", name, "off") for name in gpu_lm.DECODE] + ([("peer", "products", None)] if batch == 3 else [])
        for attention, name, mode in sides:
            gpu_lm.chosen["decode"] = gpu_lm.DECODE.get(name)
            d = Decoder(models[attention], prompt, 24, mode)
            for again in range(2):
                d.run()
                label = f"decode batch={batch} {attention} {name or ''}{'' if mode else ' under torch.compile'}, run {again + 1}"
                checks(label, (d.text[:, :24] != want).sum().item(), 0)
        for form in ("compiled", "eager"):
            p = Prompt(models["peer" if form == "compiled" else "sdpa"], want, form, "off" if batch == 1 else None)
            for again in range(2):
                checks(f"prefill batch={batch} {form}, run {again + 1}", gpu_lm.distance(p.run(), logits), 1e-5)
    names = [gpu_lm.choose_decode_kernel(models["peer"].config, 2, 24, torch.float32, "cpu", ("grouped", "products"))["attention"]]
    checks(f"choice among attentions ({names[0]})", float(names[0] not in gpu_lm.DECODE), 0)
    checks.end()


if __name__ == "__main__":
    a = argparse.ArgumentParser(description="Decoding and prompts of a frozen language model.")
    gpu_lm.add_arguments(a, tuple(dict.fromkeys(FORMS[False] + FORMS[True])))
    a.add_argument("--prefill", action="store_true", help="a prompt instead of tokens one by one")
    a.add_argument("--batch", type=int, default=1)
    a.add_argument("--length", type=int, help="positions of the cache (1024), or of the prompt (4096)")
    args = a.parse_args()
    if args.prefill and args.form == "graphs":
        args.form = "compiled"
    args.length = args.length or (4096 if args.prefill else 1024)
    if args.form not in FORMS[args.prefill]:
        a.error(f"--form {args.form} is none of {', '.join(FORMS[args.prefill])}")
    if args.batch < 1 or args.length < 4:
        a.error("--batch must be at least 1 and --length at least 4")
    serve = serve_prompt if args.prefill else serve_decode
    gpu_lm.guarded(check if args.check else lambda: serve(args, torch.float32 if args.tiny else torch.bfloat16, time.monotonic()))
