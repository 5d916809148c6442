#!/usr/bin/env python3
"""What the optimisations of the energy-flow lattice gain on a CPU, for bench/items.jsonl.

    bench/flow_items.py encode|stop|batch|levels|compress|keep|collect|stall [--data=FOLDER] [--rounds=N] [--work=FOLDER]

Costs are CPU seconds of one thread, which other processes disturb less than time on the clock. What is compared is run alternately;
printed are the medians and, in brackets, the smallest and largest ratio of a round. A training step's cost is a longer run's less a
shorter one's, so that start and end of a run do not count. --data: the folder of MNIST (stop, stall). TENON names another binary.
"""
import concurrent.futures, json, os, resource, statistics, subprocess, sys, tempfile, time

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
tenon = os.environ.get("TENON", os.path.join(root, "build", "tenon"))
option = dict(a[2:].split("=", 1) for a in sys.argv[1:] if a.startswith("--") and "=" in a)
rounds = int(option.get("rounds", 5))
# Surfaces that are drawn: no files needed. A lattice in which flows leave at different steps.
drawn = "flow task=route task.images=strokes task.size=400 layers=1 train.eval_every=0 train.eval_batches=1 train.test=off ckpt.keep_best=0 seed=1".split()


def call(*arguments):
    """Its output, and the CPU and wall-clock seconds that it took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([tenon, *arguments, "threads=1"], capture_output=True, text=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    if done.returncode: sys.exit(f"tenon {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def step_cost(settings, steps):
    """CPU seconds of a training step: (2 to 2 + steps)."""
    cost = [call("train", *drawn, *settings, f"train.steps={n}", "run=r", "--fresh")[1] for n in (2, 2 + steps)]
    return (cost[1] - cost[0]) / steps


def alternate(rows, cost):
    """Medians by name, and every round's ratio to the first row."""
    seen = {name: [] for name in rows}
    for _ in range(rounds):
        for name in rows: seen[name].append(cost(rows[name]))
    first = seen[next(iter(rows))]
    for name, values in seen.items():
        ratios = [v / f for v, f in zip(values, first)]
        print(f"{name:24} {statistics.median(values):10.4g} s   {statistics.median(ratios):6.3f} [{min(ratios):.3f} {max(ratios):.3f}] of the first row", flush=True)
    return seen


def encode():
    sys.path.insert(0, os.path.join(root, "python"))
    import numpy as np
    import tenon as package
    nets = [package.open("flow_text", "vocab=8192", "text=48", "threads=1", f"train.batch={n}") for n in (64, 1)]
    rng = np.random.default_rng(1)
    words, lengths = rng.integers(1, 8192, (64, 48)).astype(np.int32), rng.integers(4, 49, 64).astype(np.int32)

    def all_at_once():
        return nets[0].run("encode", premise=words, premise_length=lengths)["surface"].copy()

    def one_by_one():
        return np.concatenate([nets[1].run("encode", premise=words[i:i + 1], premise_length=lengths[i:i + 1])["surface"].copy() for i in range(64)])

    def cost(work):
        start = time.process_time()
        work()
        return time.process_time() - start

    print(f"{np.abs(all_at_once() - one_by_one()).max():.3g} is the largest difference of 64 surfaces")
    alternate({"encode(64)": all_at_once, "64 x encode(1)": one_by_one}, cost)


def trained():
    """A run that moves MNIST of 14 x 14 pixels by one, with 20 steps in which flows may leave."""
    if "data" not in option: sys.exit("--data=FOLDER is needed: the folder of MNIST")
    data = os.path.abspath(os.path.join(start_folder, option["data"]))
    if not os.path.exists("deep"):
        call(*f"train flow task=route task.images=mnist task.pool=2 task.data={data} dim=16 layers=1 depth=40 s_min=2 train.batch=16 "
             "train.steps=300 train.warmup=30 train.lr=6e-3 train.eval_every=300 train.eval_batches=10 seed=1 run=deep".split())
    return "deep"


def stop():
    run, values, walls = trained(), {}, {}

    def cost(settings):
        out, cpu, wall = call("eval", run, "split=test", *settings, "--json")
        values[settings] = {m["name"]: m["value"] for m in map(json.loads, out.splitlines()) if "name" in m and "value" in m}
        walls.setdefault(settings, []).append(wall)
        return cpu

    rows = {f"stop={rule}": (f"stop={rule}",) for rule in ("never", "sample", "batch")}
    rows["never, not compacted"] = ("stop=never", "opt.rollout_compact=off")
    alternate(rows, cost)
    for name, settings in rows.items():
        ratio = statistics.median(w / n for w, n in zip(walls[settings], walls[rows["stop=never"]]))
        print(f"{name}: on the clock {ratio:.3f} of stop=never, {values[settings]}")


def stall():
    run = trained()
    lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    waits = [m["stall_frac"] for m in lines if "stall_frac" in m]
    print(f"stall_frac of {len(waits)} lines: median {statistics.median(waits):.5f}, last {waits[-1]:.5f}, largest {max(waits):.5f}")


def batch():
    size = ["dim=32", "depth=8", "stop=never", "kappa=0", "drift=0"]
    seen = alternate({"batch 1": size + ["train.batch=1"], "batch 16": size + ["train.batch=16"]},
                     lambda s: step_cost(s, 3 if s[-1].endswith("16") else 48))
    ratios = [b / a for a, b in zip(*seen.values())]
    print(f"16 times the flows take {statistics.median(ratios):.2f} times as long [{min(ratios):.2f} {max(ratios):.2f}]")


def levels():
    """Instructions of 10 steps and the line after them with each level against those of a run that writes no lines."""
    size = ["dim=32", "depth=4", "task.pool=4", "task.size=20", "train.batch=8", "loader.workers=0", "threads=1"]

    def count(row):
        level, steps = row
        much = ["log.level=info", "log.every=1e9"] if level == "off" else [f"log.level={level}", "log.every=10"]
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", tenon, "train", *drawn, *size, *much,
                   f"train.steps={steps}", f"run={level}-{steps}", "--fresh"]
        done = subprocess.run(command, capture_output=True, text=True)
        found = [int(line.split()[-1]) for line in done.stderr.splitlines() if "Collected :" in line]
        if not found: sys.exit(f"callgrind counts nothing: {done.stderr[-300:]}")
        return found[0]

    names = ["off", "info", "training", "performance", "profiling"]
    rows = [(name, steps) for name in names for steps in (20, 10)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as cores: counts = dict(zip(rows, cores.map(count, rows)))
    cost = {name: counts[name, 20] - counts[name, 10] for name in names}
    print(f"{cost['off'] / 10:.4g} instructions per step without lines")
    for name in names[1:]: print(f"{name:12} {100 * (cost[name] / cost['off'] - 1):+.3f} % instructions")


def compress():
    size = {}
    for way in ("off", "zstd"):
        call("train", *drawn, "dim=256", "depth=4", "train.batch=2", "train.steps=12", f"ckpt.compress={way}", f"run={way}", "--fresh")
        at = os.path.realpath(os.path.join(way, "latest"))
        size[way] = {f.split(".")[0]: os.path.getsize(os.path.join(at, f)) for f in os.listdir(at) if "safetensors" in f}
    for part, off in size["off"].items():
        print(f"{part}: {off} bytes, zstd {size['zstd'][part]}: {size['zstd'][part] / off:.3f}")
    print(f"together {sum(size['zstd'].values()) / sum(size['off'].values()):.3f}")


def keep():
    size = ["dim=32", "depth=40", "train.batch=1", "stop=never", "kappa=0", "drift=0"]
    alternate({"keep=0": size + ["keep=0"], "keep=4": size + ["keep=4"]}, lambda s: step_cost(s, 4))


def switch(name, settings, steps):
    alternate({f"{name}={w}": settings + [f"{name}={w}"] for w in ("on", "off")}, lambda s: step_cost(s, steps))


def collect():
    switch("opt.collect_cells", ["dim=8", "depth=4", "train.batch=8"], 8)


parts = {f.__name__: f for f in (encode, stop, batch, levels, compress, keep, collect, stall)}
wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
if len(wanted) != 1 or wanted[0] not in parts: sys.exit(f"choose one of {', '.join(parts)}")
start_folder = os.getcwd()
tenon = os.path.abspath(tenon)
with tempfile.TemporaryDirectory() as made:
    work = os.path.abspath(option["work"]) if "work" in option else made
    os.chdir(work)
    parts[wanted[0]]()
    os.chdir(start_folder)
