"""Times the PyTorch steps and `tenon bench` in turn and prints the ratios as one page of Markdown; run.sh starts it.

For each case and thread count it first looks for the fastest setting of either side (torch.compile, chunked loss, kind
of cell), one option after the other and in each type by itself, then runs the two winners alternately in processes of
their own: bfloat16 where the processor has instructions for it, and float32. A ratio is made of neighbouring runs, so
that a machine whose speed drifts moves both sides. Uses the standard library alone.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
SMALL = bool(os.environ.get("PEERS_SMALL"))
ROUNDS = int(os.environ.get("PEERS_ROUNDS", "2" if SMALL else "5"))
SECONDS = float(os.environ.get("PEERS_SECONDS", "1" if SMALL else "20"))
THREADS = [int(n) for n in os.environ.get("PEERS_THREADS", "1 2").split()]
TYPES = os.environ.get("PEERS_TYPES", "bfloat16 float32").split()

DTYPE = [("--dtype", "float32"), ("--dtype", "bfloat16")]
COMPILE = [(), ("--compile",)] if os.environ.get("PEERS_COMPILE", "1") != "0" else [()]
COMPUTE = [("compute=f32",), ("compute=bf16",)]
SMALL_GPT = "dim=64 layers=2 heads=2 vocab=512"
SMALL_TEN = "dim=64 layers=2 k=16 vocab=512"

# case: the peer's script, its options to choose from (the first of each is where the search starts), our command and ours
CASES = {
    "gpt2": {
        "peer": ["step_gpt2.py"] + (["--settings", "shape=gpt2 " + SMALL_GPT] if SMALL else []),
        "peer_options": [DTYPE, COMPILE, [("--loss-rows", "0"), ("--loss-rows", "256")]],
        "ours": ["gpt2_124m", "train.batch=4", "train.context=64"] + (SMALL_GPT.split() if SMALL else []), "our_options": [COMPUTE],
        "what": "GPT-2 124M, a training step of 4 x 64 tokens",
    },
    "ten": {
        "peer": ["step_ten.py"] + (["--settings", SMALL_TEN, "--length", "64"] if SMALL else []),
        "peer_options": [DTYPE, COMPILE, [("--loss-rows", "1024"), ("--loss-rows", "0")]],
        "ours": ["ten", "train.batch=4"] + (SMALL_TEN.split() + ["train.context=64"] if SMALL else
                                            ["dim=512", "layers=6", "k=64", "train.context=512"]), "our_options": [COMPUTE],
        "what": "TEN d512 L6 K64 V50257, a training step of 4 x 512 tokens",
    },
    "gru": {
        "peer": ["step_gru.py"],
        "peer_options": [DTYPE, [("--cell", "hand"), ("--cell", "library"), *(("--cell", "plain", *how) for how in COMPILE)]],
        "ours": ["gru"], "our_options": [COMPUTE],
        "what": "GRU cell, 2 layers, 784 flows of 256, forward and backward",
    },
    "tep": {
        "peer": ["tep_torch.py", "--time", "--rtol", "1e-9", "--iterations", "20"] + (["--d", "16", "--batch", "32"] if SMALL else
                                                                                     ["--d", "64", "--batch", "128"]),
        "peer_options": [[("--onednn", "off"), ("--onednn", "on")]],
        "ours": ["tep", "inputs=64", "tokens=1", "classes=10", "iterations=20", "rtol=1e-9"] + (["dim=16", "train.batch=32"] if SMALL else
                                                                                              ["dim=64", "train.batch=128"]),
        "our_options": [COMPUTE],
        "what": "equilibrium network d64, an update of 128 samples by equilibrium propagation, 20 free and 20 nudged iterations",
    },
}


# --- running a side ------------------------------------------------------------------------------------------------------

def say(text):
    print(text, file=sys.stderr, flush=True)


def environment(threads):
    """A BLAS beside torch has threads of its own, which torch.set_num_threads does not reach."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict(os.environ, **{name: str(threads) for name in names}) if threads else None


def run_lines(command, limit, threads=None):
    """The JSON lines a command printed; None when it fails, which for a peer means a setting it cannot do."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=limit,
                              env=environment(threads))
    except subprocess.TimeoutExpired:
        say(f"    stopped after {limit:.0f} s: {' '.join(command[1:])}")
        return None
    if done.returncode:
        say(f"    {' '.join(command[1:])}: {(done.stderr.strip().splitlines() or ['failed'])[-1][:200]}")
        return None
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run_peer(case, threads, options, limit=7200.0, steps=20, more=()):
    command = [sys.executable, str(HERE / case["peer"][0]), *case["peer"][1:], "--threads", str(threads), "--seconds", str(SECONDS),
               "--steps", str(steps), *options, *more]
    return run_lines(command, limit, threads)


def run_ours(tenon, case, threads, options, limit=7200.0):
    model = [f"threads={threads}"]
    if case["ours"] == ["gru"]:  # no model: float32 unless told otherwise
        model, options = [], [word for word in options if word != "compute=f32"]
    lines = run_lines([tenon, "bench", *case["ours"], *options, *model, f"--threads={threads}", "--json"], limit)
    if not lines:
        return None
    timed = [line for line in lines if line.get("unit") == "ms" and not line["name"].endswith(" plain")][-1]  # a rate may follow
    peaks = {line["name"]: line["value"] for line in lines if line["name"].endswith("_peak")}
    timed["peak"], timed["bf16_peak"] = peaks.get("fma_peak", 0), peaks.get("bf16_peak", 0)
    return [timed]


def fastest(axes, run):
    """One option after the other, the best of each kept: (options, ms, line), or None when nothing runs."""
    chosen, best, took = [axis[0] for axis in axes], None, 0.0
    tried = set()
    for i in range(max(len(axes), 1)):
        for choice in (axes[i] if axes else [()]):
            options = [*chosen[:i], choice, *chosen[i + 1:]] if axes else []
            flat = tuple(word for option in options for word in option)
            if flat in tried:
                continue
            tried.add(flat)
            begin = time.monotonic()
            lines = run(flat, 7200.0 if best is None else 600 + 4 * took)  # 600: torch.compile's own time
            if not lines:
                continue
            say(f"    {lines[0]['value']:12.3f} ms  {' '.join(flat)}")
            if best is None or lines[0]["value"] < best[1]:
                best, took, chosen = (flat, lines[0]["value"], lines[0]), time.monotonic() - begin, options or chosen
    return best


# --- a row -----------------------------------------------------------------------------------------------------------------

def middle(values):
    """Median and half the distance of the quartiles."""
    if len(values) < 2:
        return values[0], 0.0
    q = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), (q[2] - q[0]) / 2


def short(options):
    words = [word for word in options if word not in ("--dtype", "--cell")]
    return " ".join(word.lstrip("-") for word in words) or "-"


def alternate(tenon, name, case, threads, peer, ours):
    """ROUNDS rounds of both sides, who begins changing with each; the table's row and the last lines."""
    peers, mine = [], []
    for i in range(ROUNDS):
        for side in ("peer", "ours") if i % 2 == 0 else ("ours", "peer"):
            lines = run_peer(case, threads, peer) if side == "peer" else run_ours(tenon, case, threads, ours)
            if not lines:
                raise SystemExit(f"error: {name}: a setting that ran before does not run now; its message is above")
            (peers if side == "peer" else mine).append(lines[0])
        say(f"    round {i + 1}: {peers[-1]['value']:.3f} ms against {mine[-1]['value']:.3f} ms")
    p, dp = middle([x["value"] for x in peers])
    m, dm = middle([x["value"] for x in mine])
    r, dr = middle([a["value"] / b["value"] for a, b in zip(peers, mine)])
    row = f"| {name} | {threads} | {p:.1f} +-{dp:.1f} | {short(peer)} | {m:.1f} +-{dm:.1f} | {short(ours)} | **{r:.2f}** +-{dr:.2f} |"
    return row, peers[-1], mine[-1]


def profile_text(name, threads, peer, lines):
    p = lines[-1]
    tops = ", ".join(f"{t['op']} {100 * t['share']:.0f} %" for t in p["top"])
    a, b = p["largest_gap_between"]
    return (f"- {name}, {threads} thread{'s' * (threads > 1)}, {short(peer)}: matrix products {100 * p['gemm_share']:.0f} % of the step "
            f"(a product of 512 runs at {lines[0]['mm_gflops']:.0f} GFLOP/s); most time in {tops}; no op at all in "
            f"{100 * p['gap_share']:.1f} %, at most {p['largest_gap_ms']:.2f} ms at once ({100 * p['largest_gap_share']:.1f} %, "
            f"between `{a}` and `{b}`).")


def slow_blas_text(peer, mine):
    """A warning where the peer's own matrix product is far below what the machine does, or nothing."""
    if peer["mm_gflops"] >= 0.4 * mine["peak"]:
        return []
    return [f"- **This torch multiplies matrices at {peer['mm_gflops']:.0f} of {mine['peak']:.0f} GFLOP/s: it has no fast BLAS (Debian: "
            "libopenblas0-pthread), and a ratio to it says little.**"]


def in_type(axes, dtype):
    """The axes with the choices of this type alone; an axis without any choice of type stays."""
    other = {"float32": ("bfloat16", "compute=bf16"), "bfloat16": ("float32", "compute=f32")}[dtype]
    return [[choice for choice in axis if not any(word in other for word in choice)] for axis in axes]


def run_case(tenon, name, threads, rows, profiles):
    case = CASES[name]
    search = lambda dtype: fastest(in_type(case["peer_options"], dtype),
                                   lambda options, limit: run_peer(case, threads, options, limit, steps=3))
    search_ours = lambda dtype: fastest(in_type(case["our_options"], dtype),
                                        lambda options, limit: run_ours(tenon, case, threads, options, limit))
    has_bf16, last = True, None
    for dtype in sorted(TYPES, reverse=True):  # float32 first: it tells whether there are instructions for bfloat16
        if dtype == "bfloat16" and not has_bf16:
            say(f"{name}, {threads} thread(s): no bfloat16, as this processor has no instructions for it")
            continue
        say(f"{name}, {threads} thread(s), {dtype}: looking for the fastest settings")
        peer, ours = search(dtype), search_ours(dtype)
        if not peer or not ours:
            raise SystemExit(f"error: {name} in {dtype}: {'the peer' if not peer else 'tenon'} runs in no setting; its messages are above")
        has_bf16 = ours[2]["bf16_peak"] > 1.2 * ours[2]["peak"]
        row, last, mine = alternate(tenon, f"{name} ({dtype})", case, threads, peer[0], ours[0])
        rows.append(row)
        if dtype == "float32":
            profiles += slow_blas_text(last, mine)
        lines = run_peer(case, threads, peer[0], more=("--profile",))
        if lines:
            profiles.append(profile_text(name, threads, peer[0], lines))
        profiles.append(f"- tenon, {name}, {dtype}, {threads} thread{'s' * (threads > 1)}: {mine.get('gflops', 0):.1f} GFLOP/s, "
                        f"{100 * mine.get('of_ceiling', 0):.0f} % of the ceiling measured in the same run.")
    return last


# --- the page --------------------------------------------------------------------------------------------------------------

def output_of(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, cwd=HERE).stdout.strip()
    except OSError:
        return ""


def machine():
    cpu = dict(line.split(":", 1) for line in output_of("lscpu").splitlines() if ":" in line)
    flags = cpu.get("Flags", "").split()
    isa = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16", "svebf16") if f in flags]
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) / 2 ** 20
    return (f"{platform.machine()}, {cpu.get('Model name', 'unknown').strip()}, {cpu.get('CPU(s)', '?').strip()} CPUs "
            f"({' '.join(isa)}), {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}")


def main():
    a = argparse.ArgumentParser(description="Times PyTorch and Tenon in turn; see run.sh.")
    a.add_argument("--tenon", required=True, help="the command")
    a.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    args = a.parse_args()
    for name in args.cases:
        if name not in CASES:
            a.error(f"{name} is none of {', '.join(CASES)}")
    names, rows, profiles, begin, last = args.cases or list(CASES), [], [], machine(), None
    for name in names:
        for threads in THREADS:
            last = run_case(args.tenon, name, threads, rows, profiles)
    print(f"# Tenon and PyTorch: {time.strftime('%Y-%m-%d')}\n")
    print(f"Machine: {begin} at the start, {os.getloadavg()[0]:.1f} at the end. Commit {output_of('git', 'describe', '--always', '--dirty')}, "
          f"{output_of(args.tenon, '--version')}; torch {last['torch']}, Python {platform.python_version()}, "
          f"{(output_of('gcc', '--version').splitlines() or ['no gcc'])[0]}.\n")
    if SMALL:
        print("PEERS_SMALL=1: tiny shapes, a test of the machinery and no measurement.\n")
    for name in names:
        print(f"- {name}: {CASES[name]['what']}")
    print(f"\nMedians of {ROUNDS} alternating rounds, +- half the distance of the quartiles; the ratio is of neighbouring runs, more "
          "than 1 means Tenon takes less time.\n")
    print("| case | threads | PyTorch ms | its fastest setting | Tenon ms | setting | PyTorch / Tenon |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    print("\nWhere the time goes:\n")
    print("\n".join(profiles))


if __name__ == "__main__":
    main()
