"""Greedy decoding and prompts of a GGUF model on the CPU: Tenon, transformers and llama.cpp in turn.

    python3 bench/peers/cpu_decode.py MODEL.gguf [--length 512] [--rounds 5] [--threads 2] [--json FILE]

Each side decodes after a prompt, up to `length` positions, and reads a prompt of `length` tokens up to the logits behind its last. transformers
has the file's weights dequantised, in float32 and bfloat16, as usually written (eager) and compiled with frozen weights (compiled: Inductor
packs them), Tenon has them in bf16 and computes in f32 and in bf16. What counts is the fastest form of both, in decoding and for
prompts. llama.cpp (PyPI: xllamacpp) keeps the weights in their 4 bits: its figures stand beside, they are no ratio of equal work. Every round times every side once, for at least a second each. Prints a table in Markdown.
Needs build/tenon, torch, transformers, gguf; llama.cpp is left out where xllamacpp is missing."""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import turns

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENON = str(ROOT / os.environ.get("BUILD", "build") / "tenon")
FORMS = ("eager float32", "eager bfloat16", "compiled float32", "compiled bfloat16")
OURS = ("f32", "bf16")
TOKENS, LEAST_S = 64, 1.0


# --- one side, as a process --------------------------------------------------------------------------------------------------

def seconds_of(run):
    """Seconds of a call: as many calls as make a second, their median."""
    times, begin = [], time.perf_counter()
    while not times or time.perf_counter() - begin < LEAST_S:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def answer_commands(fields, runs):
    """runs: name -> (function, tokens of a call). A line `NAME` of standard input is answered with tokens per second."""
    print(json.dumps({**fields, "ready": True}), flush=True)
    for command in sys.stdin:
        name = command.strip()
        if name == "quit":
            return
        run, tokens = runs[name]
        print(json.dumps({**fields, "name": name, "value": tokens / seconds_of(run)}), flush=True)


def serve_transformers(args):
    import torch
    import gpu_decode
    import gpu_lm
    form, dtype = args.serve.split()
    torch.set_num_threads(args.threads)
    where = dict(pretrained_model_name_or_path=os.path.dirname(args.model) or ".", gguf_file=os.path.basename(args.model))
    model = gpu_lm.AutoModelForCausalLM.from_pretrained(**where, dtype=getattr(torch, dtype),
                                                        attn_implementation="peer" if form == "compiled" else "sdpa").eval().requires_grad_(False)
    prompt = torch.randint(model.config.vocab_size, (1, args.length))
    if form == "compiled":
        torch._inductor.config.freezing = True  # weights are constants: packed for the products
        gpu_lm.choose_decode_kernel(model.config, 1, args.length, getattr(torch, dtype), "cpu", names=("grouped", "products"))
    mode = "default" if form == "compiled" else "off"
    decoder = gpu_decode.Decoder(model, prompt[:, :args.length - TOKENS], args.length, mode)

    def last(ids, positions):
        return model(input_ids=ids, position_ids=positions, use_cache=True, logits_to_keep=1).logits

    read = gpu_lm.compiled(last, mode)
    positions = torch.arange(args.length)[None]

    def prefill():
        with torch.no_grad():
            read(prompt, positions)

    for run in (decoder.run, prefill, decoder.run):  # compiles
        run()
    answer_commands({"side": "transformers " + args.serve, "version": gpu_lm.transformers.__version__, "torch": torch.__version__},
                    {"decode": (decoder.run, TOKENS), "prefill": (prefill, args.length)})


def serve_llama(args):
    import xllamacpp as x
    p = x.CommonParams()
    p.model.path = args.model
    p.n_ctx, p.n_parallel, p.warmup = 2 * args.length, 1, False
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
    p.n_batch = p.n_ubatch = args.length
    server = x.Server(p)

    def ask(prompt, tokens):
        got = server.handle_completions({"prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": False, "ignore_eos": True})
        got = got if isinstance(got, dict) else json.loads(got)
        return got["timings"]

    print(json.dumps({"side": "llama.cpp, 4 bits", "ready": True}), flush=True)
    count = 0
    for command in sys.stdin:
        name = command.strip()
        if name == "quit":
            return
        values, begin = [], time.perf_counter()
        while not values or time.perf_counter() - begin < LEAST_S:
            count += 1
            ids = [100 + (count * 7919 + 31 * i) % 40000 for i in range(args.length - (TOKENS if name == "decode" else 0))]
            t = ask(ids, TOKENS if name == "decode" else 1)
            values.append(t["predicted_per_second"] if name == "decode" else t["prompt_per_second"])
        print(json.dumps({"side": "llama.cpp, 4 bits", "name": name, "value": statistics.median(values)}), flush=True)


# --- in turn -----------------------------------------------------------------------------------------------------------------

def ours(args, compute):
    """tokens per second by name, of one round."""
    lines, errors = turns.run_lines([TENON, "bench", "decode", args.model, f"--contexts={args.length}", "--batch=1", f"--prefill={args.length}",
                                     "--rounds=1", f"--seconds={LEAST_S}", f"--threads={args.threads}", "device=cpu", f"compute={compute}", "--json"])
    got = {line["group"]: line["value"] for line in lines if line.get("group") in ("decode", "prefill")}
    if len(got) != 2:
        sys.exit(f"error: {errors}")
    return got


def sides(args, work):
    """Processes that are ready; the others said why not."""
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    found = []
    for label in [*args.forms.split(","), "llama"]:
        command = [sys.executable, __file__, args.model, f"--length={args.length}", f"--threads={args.threads}", f"--serve={label}"]
        peer = turns.Process(label, command, work, env, limit_s=900)
        ready = peer.answer()
        turns.say(f"{label}: {ready or 'left out'}")
        if ready:
            found.append((ready["side"], peer))
    return found


def main(args):
    args.model = os.path.abspath(args.model)
    if args.serve:
        return serve_llama(args) if args.serve == "llama" else serve_transformers(args)
    out = turns.Out(args.json) if args.json else None
    values = {}  # (side, name) -> tokens per second of each round
    with tempfile.TemporaryDirectory() as work:
        peers = sides(args, work)
        for n in range(args.rounds):
            for compute in OURS:
                for name, value in ours(args, compute).items():
                    values.setdefault(("Tenon, " + compute, name), []).append(value)
            for side, peer in peers:
                for name in ("decode", "prefill"):
                    got = peer.ask(name)
                    if got:
                        values.setdefault((side, name), []).append(got["value"])
            now = "; ".join(f"{side} {name} {rounds[-1]:.1f}" for (side, name), rounds in values.items())
            turns.say(f"round {n + 1} of {args.rounds}: {now}")
        for _, peer in peers:
            peer.close()
    print("| side | decode, tokens/s | Tenon / side | prefill, tokens/s | Tenon / side |\n| --- | --- | --- | --- | --- |")
    mine = {name: max((values["Tenon, " + compute, name] for compute in OURS), key=statistics.median) for name in ("decode", "prefill")}
    for side in dict.fromkeys(side for side, _ in values):
        cells = []
        for name in ("decode", "prefill"):
            theirs = values[side, name]
            ratios = [a / b for a, b in zip(mine[name], theirs)]
            value, ratio = turns.middle(theirs), turns.middle(ratios)
            cells += [f"{value[0]:.1f} ({value[1]:.1f})", "" if side.startswith("Tenon") else f"{ratio[0]:.2f} ({ratio[1]:.2f})"]
            if out:
                out.line({"side": side, "name": name, "length": args.length, "threads": args.threads, "value": value[0], "unit": "tokens/s",
                          "spread": value[1], "ratio": ratio[0], "ratio_spread": ratio[1], "rounds": len(theirs)})
        print(f"| {side} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--length", type=int, default=512)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--threads", type=int, default=os.cpu_count())
    a.add_argument("--forms", default=",".join(FORMS), help="of transformers")
    a.add_argument("--json", metavar="FILE")
    a.add_argument("--serve", metavar="SIDE", help="be that side, for another process")
    main(a.parse_args())
