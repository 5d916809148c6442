"""Times PyTorch peers on a GPU and `tenon bench` in turn and prints the ratios; see README.md.

    python3 bench/peers/gpu.py [gpt2] [ten] [ten_b:2048,32768] [lattice] [outer] [--length 1024 32768] [--forms triton eager] [--tenon build/tenon]
    python3 bench/peers/gpu.py inputs[:qwen2_5_0_5b] decode [--forms lean graphs]        # frozen language models: lm_cases.py

For each case and length the peers are started together (compiling takes most of a minute); each trains its first 20 steps and
writes weights, batches and losses, on which `tenon check --against` then trains as well. When all are warm, rounds begin: each
peer some steps, then ours, in turn, so that a machine whose speed drifts moves all sides. A peer that waits holds its weights
alone, but while they start their memory adds up; the uncompiled ones, which need most, start last. JSON lines go to standard
output, or to the file of --out; the table to standard error, row by row. Uses the standard library alone.
"""
import argparse
import concurrent.futures
import pathlib
import sys
import tempfile
import time

import lm_cases
import turns
from turns import middle, run_lines, say

HERE = pathlib.Path(__file__).parent
TOKENS = 65536
LOSSES_TOLERANCE = 1e-2
LOOP = {"batch": 8, "length": 128}  # the prototype's batch; a step per token takes so long that few tokens must do

# case: the peer's command, its forms, our preset and its settings (`bench ten` has a row of its own behind what was asked for)
CASES = {
    "gpt2": {"peer": ["gpu_gpt2.py"], "forms": ["compiled"], "ours": ["gpt2_124m"], "lengths": [1024, 8192, 32768]},
    "ten": {"peer": ["gpu_ten.py"], "forms": ["triton", "eager", "loop"], "lengths": [1024, 8192, 32768],
            "ours": ["ten_tiny", "dim=768", "layers=12", "heads=12", "k=64", "vocab=50257"]},
    "ten_b": {"peer": ["gpu_ten.py", "--net", "ten_b"], "forms": ["triton", "eager", "loop"], "lengths": [2048, 8192, 32768],
              "ours": ["ten_b", "dim=1024", "layers=8", "k=128", "vocab=50257", "train.dropout=0"]},
    # 16 surfaces of 784 cells, a flow each; the first losses are not compared: gpu_lattice.py --check does that
    "lattice": {"peer": ["gpu_lattice.py"], "forms": ["graph", "eager"], "lengths": [784], "batch": 16, "losses": False,
                "ours": ["flow_experiment", "stop=never", "kappa=0", "drift=0", "train.accumulate=1"]},
}


def batch_of(name, length):
    return CASES.get(name, {}).get("batch") or max(TOKENS // length, 1)


# --- a peer ----------------------------------------------------------------------------------------------------------------

class Peer(turns.Process):
    """A training step, warm after its first steps."""

    def __init__(self, name, form, batch, length, work, text=None):
        case = CASES[name]
        if form == "loop":
            batch, length = LOOP["batch"], LOOP["length"]
        self.form, self.batch, self.length, self.losses = form, batch, length, None
        self.path = str(pathlib.Path(work) / f"{name}-{form}-{length}.safetensors")
        command = [sys.executable, str(HERE / case["peer"][0]), *case["peer"][1:], "--form", form, "--batch", str(batch),
                   "--length", str(length), "--serve", "--file", self.path, *(["--first", "3"] if form == "loop" else []), *(["--text", text] if text else [])]
        super().__init__(f"{name} {form} {batch}x{length}", command, work)


# --- ours ------------------------------------------------------------------------------------------------------------------

def run_ours(args, case, batch, length, more=()):
    """(the step's line, all lines) of `tenon bench`, or None."""
    lines, errors = run_lines([args.tenon, "bench", *case["ours"], f"train.batch={batch}", f"train.context={length}", f"device={args.device}",
                               *args.set, *more, "--json"])
    step = next((line for line in lines if line.get("group") == "model"), None)
    if not step:
        say(f"  tenon {batch} x {length}: {errors[-400:]}")
        return None
    return step, lines


def compare_losses(args, peer, out, name):
    """Ours trained on the peer's weights and batches: the largest relative distance of the first losses, or None."""
    model = "gpt" if name == "gpt2" else "ten"
    lines, errors = run_lines([args.tenon, "check", model, f"--against={peer.path}", f"device={args.device}", "compute=bf16", "--json"])
    row = next((line for line in lines if line["name"] == "output.losses"), None)
    if not row:
        say(f"  no comparison of losses with {peer.form}: {errors[-300:]}")
        return None
    out.line({"name": f"{name}.losses", "side": peer.form, "batch": peer.batch, "length": peer.length, "value": row["value"],
              "within": row["value"] <= LOSSES_TOLERANCE, "detail": row["detail"].split(": error")[0]})
    return row["value"]


# --- a case ----------------------------------------------------------------------------------------------------------------

def forms_of(args, name, length, first):
    """The case's own forms, of --forms those it has, and what is asked for it by name: `gpt2.eager`. `form@length` counts at that
    length alone, the loop once: its rate is the same."""
    forms, more = [], []
    for word in args.forms or CASES[name]["forms"]:
        form, _, at = word.partition("@")
        if form in CASES[name]["forms"]:
            forms.append((form, at))
        elif form.startswith(name + "."):
            more.append((form[len(name) + 1:], at))
    forms = forms + more or [(form, "") for form in CASES[name]["forms"]]
    return [form for form, at in forms if at in ("", str(length)) and (form != "loop" or first)]


def start_peers(args, job, work, late):
    """Peers that may not be warm yet; late: those that are not compiled, with their large tensors, else the others."""
    name, length, first = job
    return [Peer(name, form, batch_of(name, length), length, work, args.text) for form in forms_of(args, name, length, first) if (form == "eager") == late]


def wait_peers(peers, out):
    """Those that came up."""
    alive = []
    for peer in peers:
        begin = time.monotonic()
        ready = peer.answer()
        if ready:
            out.line({**ready, "waited_s": round(time.monotonic() - begin, 1)})
            alive.append(peer)
    return alive


def bring_up(args, jobs, work, out):
    """Warm peers of each job, their first losses compared with ours meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        peers = {job: [] for job in jobs}
        for late in (False, True):
            started = {job: start_peers(args, job, work, late) for job in jobs}
            for job in jobs:
                peers[job] += wait_peers(started[job], out)
                for peer in peers[job]:
                    if peer.losses is None and not args.no_losses and CASES[job[0]].get("losses", True):
                        peer.losses = pool.submit(compare_losses, args, peer, out, job[0])
    return peers


def measure(args, name, length, peers, out):
    """Rounds of all sides in turn. Rows of the table."""
    case, batch = CASES[name], batch_of(name, length)
    ours, rows = [], []
    for i in range(args.rounds or 4):
        for side in (peers + [None] if i % 2 == 0 else [None] + peers):
            if side is None:
                step = run_ours(args, case, batch, length)
                if step:
                    ours.append(step[0]["value"])
                    out.line({**step[0], "name": name, "side": "tenon", "batch": batch, "length": length, "round": i})
            else:
                line = side.ask(f"time {args.slow if side.form in ('loop', 'eager') else args.steps}")
                if line:
                    side.times.append(line["value"])
                    out.line({**line, "round": i})
    for peer in peers:
        if peer.times and not args.no_profile and peer.form != "loop":
            out.line({**(peer.ask("profile") or {}), "name": f"{name}.profile", "length": length})
    if ours:
        parts = run_ours(args, case, batch, length, ["--by-op"]) if args.by_op else None
        for line in parts[1] if parts else []:
            if line.get("group") == "op":
                out.line({**line, "name": f"{name}.op.{line['name']}", "side": "tenon", "length": length})
        ms, spread = middle(ours)
        rows.append((name, batch, length, "tenon", ms, spread, 1e3 * batch * length / ms, "", ""))
    for peer in peers:
        if peer.times:
            ms, spread = middle(peer.times)
            rate = 1e3 * peer.batch * peer.length / ms
            ratio = ""
            if ours:
                each = [(p / (peer.batch * peer.length)) / (m / (batch * length)) for p, m in zip(peer.times, ours)]
                ratio = "%.3f +-%.3f" % middle(each)
                out.line({"name": f"{name}.ratio", "side": peer.form, "length": length, "value": middle(each)[0], "spread": middle(each)[1]})
            apart = peer.losses.result() if peer.losses else None
            loss = "" if apart is None else f"{apart:.1e}"
            rows.append((name, peer.batch, peer.length, peer.form, ms, spread, rate, ratio, loss))
    return rows


def run_outer(args, lengths, out):
    """The op alone: eager chunks and Triton in one process, ours from a small network's time by op."""
    lines, errors = run_lines([sys.executable, str(HERE / "gpu_outer.py"), "--lengths", *map(str, lengths)])
    if not lines:
        say(f"  outer: {errors[-400:]}")
    case, rows = {"ours": ["ten_tiny", "pattern=O", "dim=512", "heads=8", "layers=4", "vocab=256"]}, []
    for length in lengths:
        batch, mine = max(TOKENS // length, 1), None
        parts = run_ours(args, case, batch, length, ["--by-op"])
        for line in parts[1] if parts else []:
            if line.get("group") == "op" and line["name"] == "outer":
                mine = line["value"] / 4  # layers
                out.line({"name": "outer", "side": "tenon", "length": length, "batch": batch, "heads": 8, "value": mine, "unit": "ms"})
                rows.append(("outer", batch, length, "tenon", mine, 0, 1e3 * TOKENS / mine, "", ""))
        for line in lines:
            if line["length"] == length:
                out.line(line)
                rows.append(("outer", batch, length, line["side"], line["value"], line["spread"] / 2, 1e3 * TOKENS / line["value"],
                             f"{line['value'] / mine:.3f}" if mine else "", ""))
    return rows


def print_head():
    say(f"{'case':6} {'shape':>12}  {'side':9} {'ms':>10} {'+-':>7} {'K tokens/s':>11}  {'its time / ours, per token':26}  losses apart")


def print_rows(rows):
    for name, batch, length, side, ms, spread, rate, ratio, loss in rows:
        say(f"{name:6} {f'{batch}x{length}':>12}  {side:9} {ms:10.2f} {spread:7.2f} {rate / 1e3:11.1f}  {ratio:26}  {loss}")


def read_cases(parser, args):
    """(name, lengths) of each: `ten`, `ten:1024,32768`, or all; of language models (name, models)."""
    out, frozen = [], []
    for word in [*CASES, "outer"] if args.cases in ([], ["all"]) else args.cases:
        name, _, lengths = word.partition(":")
        if name in lm_cases.NAMES:
            models = lengths.split(",") if lengths else lm_cases.MODELS
            if lengths and (name != "inputs" or not set(models) <= set(lm_cases.MODELS)):
                parser.error(f"{word}: use {name}" + (f", or inputs: and one of {', '.join(lm_cases.MODELS)}" if name == "inputs" else ""))
            frozen.append((name, models))
            continue
        if name not in CASES and name != "outer":
            parser.error(f"{name} is none of {', '.join([*CASES, *lm_cases.NAMES])}, outer and all")
        lengths = [int(n) for n in lengths.split(",") if n] if lengths.replace(",", "").isdigit() else []
        out.append((name, lengths or args.length or CASES.get(name, CASES["ten"])["lengths"]))
    return out, frozen


def main():
    a = argparse.ArgumentParser(description="Times PyTorch peers on a GPU and Tenon in turn.")
    a.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join([*CASES, *lm_cases.NAMES])}, outer or all: those that train (default: all)")
    a.add_argument("--length", type=int, nargs="+", help=f"tokens of a sequence; a step has {TOKENS}")
    a.add_argument("--forms", nargs="+", help="only these peers: triton, eager@32768 (at that length), gpt2.autocast (of that case)")
    a.add_argument("--tenon", default=str(HERE.parents[1] / "build" / "tenon"), help="the command")
    a.add_argument("--device", default="cuda")
    a.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more settings of ours")
    a.add_argument("--rounds", type=int, help=f"default: 4; of language models {lm_cases.ROUNDS}")
    a.add_argument("--steps", type=int, default=10, help="of a peer in a round; ours has 31")
    a.add_argument("--slow", type=int, default=5, help="the same for the peers that are not compiled")
    a.add_argument("--text", help="first losses on this data set of `tenon data prepare` instead of made up tokens")
    a.add_argument("--out", help="append the JSON lines here instead of printing them")
    a.add_argument("--no-losses", action="store_true", help="do not compare the first losses")
    a.add_argument("--no-profile", action="store_true", help="do not profile the peers")
    a.add_argument("--by-op", action="store_true", help="our time by op as well")
    a.add_argument("--together", action="store_true", help="start the peers of all cases at once: less waiting, more memory")
    a.add_argument("--tiny", action="store_true", help="language models of a few thousand parameters, on --device cpu too: does everything run?")
    args = a.parse_args()
    cases, frozen = read_cases(a, args)
    out = turns.Out(args.out)
    jobs = [(name, length, length == lengths[0]) for name, lengths in cases for length in lengths if name != "outer"]
    if cases:
        print_head()
    with tempfile.TemporaryDirectory() as work:
        for group in [jobs] if args.together else [[job] for job in jobs]:
            peers = bring_up(args, group, work, out)
            for job in group:
                try:
                    print_rows(measure(args, job[0], job[1], peers[job], out))
                finally:
                    for peer in peers[job]:
                        peer.close()
    for name, lengths in cases:
        if name == "outer":
            print_rows(run_outer(args, lengths, out))
    if frozen:
        with tempfile.TemporaryDirectory() as work:
            lm_cases.run(args, frozen, work, out)


if __name__ == "__main__":
    main()
