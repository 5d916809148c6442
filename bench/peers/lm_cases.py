"""The cases of gpu.py with frozen language models: `inputs` (loss and its gradient with respect to input embeddings), `decode` (tokens
one by one, and a prompt) and `prefill` (the prompt alone). Peers of all of them start together and compile side by side; an
uncompiled one takes its memory only while it is timed. Then rounds of all sides in turn. Uses the standard library alone."""
import os
import pathlib
import sys
import time

import turns
from turns import middle, say

HERE = pathlib.Path(__file__).parent
LIMIT_S = {"cuda": 180, "cpu": 900}  # of an answer; compiling a network as a whole takes most of a minute, more where many compile at once
ROUNDS = 3
STEPS = {"inputs": 10, "decode": 3, "prefill": 10}  # calls of a peer in a round; one of decode has 128 tokens
MODELS = ("qwen2_5_0_5b", "llama3_2_1b")
FORMS = {"inputs": ("lean", "compiled", "eager"), "decode": ("graphs", "tuned"), "prefill": ("compiled", "eager")}
OTHERS = {"inputs": ("layers",), "decode": ("eager",), "prefill": ()}
NAMES = tuple(FORMS)
TINY = ["dim=32", "layers=3", "heads=4", "kv_heads=2", "ffn=48", "vocab=71"]
SIZES = {False: {"batch": 16, "length": 512, "scored": 480, "context": 1024, "batches": (1, 64), "prompt": 4096},
         True: {"batch": 2, "length": 16, "scored": 12, "context": 32, "batches": (1, 3), "prompt": 24}}


# --- what is measured --------------------------------------------------------------------------------------------------------

class Job:
    """One shape: its peers, and how our lines of it are found."""

    def __init__(self, kind, model, batch, length, ours):
        self.kind, self.model, self.batch, self.length = kind, model, batch, length
        self.group, self.peers, self.times, self.bytes = ours, [], [], None
        self.tokens = batch if kind == "decode" else batch * length

    def key(self):
        return {"name": self.kind, "model": self.model, "batch": self.batch, "length": self.length}

    def start(self, args, form, work):
        more = ["--prefill"] if self.kind == "prefill" else []
        if self.kind == "inputs":
            more = ["--model", self.model, "--scored", str(SIZES[args.tiny]["scored"])]
        command = [sys.executable, str(HERE / ("gpu_inputs.py" if self.kind == "inputs" else "gpu_decode.py")), *more, "--form", form, "--batch",
                   str(self.batch), "--length", str(self.length), "--device", args.device, "--serve", *(["--tiny"] if args.tiny else [])]
        env = {"TORCHINDUCTOR_COMPILE_THREADS": "3", **os.environ}
        peer = turns.Process(f"{self.kind} {self.model} {form} {self.batch}x{self.length}", command, work, env, LIMIT_S.get(args.device, 180))
        peer.form, peer.bytes = form, None
        return peer

    def take(self, lines, out, i):
        """Our time, and memory where it is told."""
        for line in lines:
            if line.get("group") != self.group or line.get("batch", self.batch) != self.batch or "value" not in line:
                continue
            memory = next((m for m in lines if m.get("group") == "memory"), None)
            self.times.append(line.get("ms", line["value"]))
            self.bytes = memory["value"] if memory else line["weight_bytes"] + line["state_bytes"]
            told = {"planned_bytes": memory["value"], "measured_bytes": memory.get("measured")} if memory else {}
            out.line({**line, **self.key(), "side": "tenon", "value": self.times[-1], "unit": "ms", "round": i, **told})


def make_jobs(args, names):
    """(jobs, our commands): one of our commands may measure several jobs."""
    s, tiny = SIZES[args.tiny], TINY if args.tiny else []
    more = [*tiny, f"device={args.device}", *args.set, "--json"]
    jobs, commands = [], []
    for name, models in names:
        for model in models if name == "inputs" else []:
            jobs.append(Job("inputs", model, s["batch"], s["length"], "inputs"))
            commands.append((jobs[-1:], [args.tenon, "bench", "inputs", model, f"train.batch={s['batch']}", f"train.context={s['length']}",
                                         f"--scored={s['scored']}", "--seconds=3", *more]))
    kinds = [name for name, _ in names if name != "inputs"]
    for batch in s["batches"] if kinds else []:
        decode = "decode" in kinds
        if batch > 1 and not decode:
            break
        mine = [Job("decode", MODELS[1], batch, s["context"], "decode")] if decode else []
        if batch == 1:  # a prompt of 64 sequences would compare nothing more
            mine.append(Job("prefill", MODELS[1], 1, s["prompt"], "prefill"))
        context = s["context"] if decode else 1
        commands.append((mine, [args.tenon, "bench", "decode", MODELS[1], f"--contexts={context}", f"--batch={batch}",
                                *([f"--prefill={s['prompt']}"] if batch == 1 else []), "--rounds=3", *more]))
        jobs += mine
    return jobs, commands


def forms_of(args, kind, batch):
    """Those of --forms that the case has (`inputs.layers`: of that case alone), else its own. Tuned products are for one sequence."""
    words = [word.partition(".")[2] if word.startswith(kind + ".") else word for word in args.forms or []]
    forms = [word for word in words if word in FORMS[kind] + OTHERS[kind]] or FORMS[kind]
    return [form for form in forms if form != "tuned" or batch == 1 or words]


# --- rounds ------------------------------------------------------------------------------------------------------------------

def bring_up(args, jobs, work, out):
    for job in jobs:
        job.peers = [job.start(args, form, work) for form in forms_of(args, job.kind, job.batch)]
    begin = time.monotonic()
    for job in jobs:
        ready = [(peer, peer.answer()) for peer in job.peers]
        for peer, line in ready:
            if line:
                out.line({**line, **job.key(), "model": job.model, "waited_s": round(time.monotonic() - begin, 1)})
            else:
                peer.close()
        job.peers = [peer for peer, line in ready if line]
    say(f"peers are ready after {time.monotonic() - begin:.0f} s")


def time_peer(args, job, peer, out, i):
    line = peer.ask(f"time {args.slow if peer.form == 'eager' else STEPS[job.kind]}")
    if line:
        peer.times.append(line["value"])
        peer.bytes = line.get("peak_bytes")
        if line.get("graphs_skipped"):
            say(f"  {peer.label}: torch recorded no CUDA graph for {line['graphs_skipped']} of its functions")
        out.line({**line, **job.key(), "side": peer.form, "round": i})


def run_rounds(args, jobs, command, out):
    for i in range(args.rounds or ROUNDS):
        sides = [(job, peer) for job in jobs for peer in job.peers] + [None]
        for side in sides if i % 2 == 0 else reversed(sides):
            if side:
                time_peer(args, *side, out, i)
                continue
            lines, errors = turns.run_lines(command)
            for job in jobs:
                job.take(lines, out, i)
            if not any(job.times for job in jobs):
                say(f"  tenon: {next((line['why'] for line in lines if 'why' in line), errors)[-400:]}")
    for job in jobs:
        for peer in job.peers:
            if peer.times and not args.no_profile:
                line = peer.ask("profile")
                if line:
                    out.line({**line, **job.key(), "name": f"{job.kind}.profile", "side": peer.form})
            peer.close()


# --- table -------------------------------------------------------------------------------------------------------------------

def print_head():
    say(f"{'case':8} {'model':13} {'shape':>9}  {'side':9} {'ms':>10} {'+-':>8} {'tokens/s':>11}  {'its time / ours':18} {'GB':>7}")


def print_row(job, side, times, memory, ratio=""):
    ms, spread = middle(times)
    told = f"{memory / 1e9:7.2f}" if memory else ""
    say(f"{job.kind:8} {job.model:13} {f'{job.batch}x{job.length}':>9}  {side:9} {ms:10.3f} {spread:8.3f} {1e3 * job.tokens / ms:11.0f}  {ratio:18} {told}")


def print_job(job, out):
    """ratio: of each round's two times; the fastest peer is the one that counts."""
    if job.times:
        print_row(job, "tenon", job.times, job.bytes)
    best = None
    for peer in job.peers:
        if not peer.times:
            continue
        ratio = ""
        if job.times:
            value, spread = middle([theirs / mine for theirs, mine in zip(peer.times, job.times)])
            ratio = f"{value:.3f} +-{spread:.3f}"
            fields = {**job.key(), "name": f"{job.kind}.ratio", "side": peer.form, "value": value, "spread": spread, "bytes": peer.bytes, "our_bytes": job.bytes}
            out.line(fields)
            best = fields if best is None or value < best["value"] else best
        print_row(job, peer.form, peer.times, peer.bytes, ratio)
    if best:
        out.line({**best, "name": f"{job.kind}.fastest"})


def run(args, names, work, out):
    """names: (case, models of it)."""
    begin = time.monotonic()
    jobs, commands = make_jobs(args, names)
    try:
        bring_up(args, jobs, work, out)
        print_head()
        for mine, command in commands:
            run_rounds(args, mine, command, out)
            for job in mine:
                print_job(job, out)
    finally:
        for job in jobs:
            for peer in job.peers:
                if not peer.errors.closed:
                    peer.close()
    say("GB: weights and activations of an evaluation, as planned by Tenon and as allocated at most by PyTorch; of `tenon bench decode` weights and"
        f" cache alone. {time.monotonic() - begin:.0f} s in all")
