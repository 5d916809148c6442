"""tune_grid.py TENON TEXT: how near `tenon tune` comes to the best of a full grid, on three small models, each combination in a process of its own.

Every combination of what tune may change trains a few steps in each of several rounds, in another order each time; then the fastest of them and
what tune chose run again in turn, since the fastest of many is also the luckiest. Passes where the choice takes at most 1.05 times as long as
the best of these, where tune on the TEN of the demo ended within its 60 s, and where the batch of a step is what was asked for."""
import itertools, json, os, random, statistics, subprocess, sys, time

tenon, text = sys.argv[1:3]
ROUNDS, AGAIN, FINALISTS, WARM = 2, 9, 5, 4
CORES = len(os.sched_getaffinity(0))
QUIET = ["train.eval_every=0", "train.eval_batches=1", "log.every=1", "log.level=info", "ckpt.keep_best=0"]
THREADS = [["threads=auto"]] + [[f"threads={n}"] for n in (1, 2, 4, 8) if n < CORES]
MODELS = {
    "ten": (["ten", f"data={text}", "dim=64", "layers=3", "heads=2", "train.context=128"], 8,
            [["plan.recompute=none"], ["plan.recompute=layer"], ["plan.recompute=chunk", "plan.chunk=64"]], 3, 16),
    "gpt": (["gpt", f"data={text}", "dim=64", "layers=2", "heads=2", "train.context=64"], 12,
            [["plan.recompute=none"], ["plan.recompute=layer"]], 3, 24),
    "tep": (["tep", "task=parity", "task.bits=8", "dim=64"], 64, [[]], 2, 60),
}
passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + holds, failed + (not holds)
    if not holds: print(f"FAILED: {what}")


def step_ms(words, steps):
    """The median of the steps behind the first ones."""
    run = subprocess.run([tenon, "train", *words, *QUIET, f"train.steps={steps + WARM}", "train.epochs=0", "run=grid-run", "--fresh"],
                         capture_output=True, text=True)
    if run.returncode: sys.exit(f"{words}: {run.stderr}")
    lines = [json.loads(line) for line in open("grid-run/metrics.jsonl")]
    return statistics.median([x["step_ms"] for x in lines if "step_ms" in x and x.get("step", 0) > WARM])


def times(points, rounds, steps):
    """Points by name: all their rounds."""
    found = {name: [] for name in points}
    for i in range(rounds):
        order = list(points)
        random.Random(i).shuffle(order)
        for name in order: found[name].append(step_ms(points[name], steps))
    return found


for name, (words, batch, recompute, workers, steps) in MODELS.items():
    begun = time.time()
    code = subprocess.run([tenon, "tune", *words, f"train.batch={batch}", f"--out={name}.yaml"], capture_output=True, text=True)
    seconds = time.time() - begun
    if code.returncode: sys.exit(code.stderr)
    chosen = [line.split(None, 1)[1].split() for line in code.stdout.splitlines() if line.startswith("chosen")]
    chosen = chosen[0] if chosen and "=" in chosen[0][0] else []
    if name == "ten": check(f"tune took {seconds:.1f} s", seconds <= 60)
    rows = [["plan.microbatches=%d" % k] for k in range(1, batch + 1) if batch % k == 0]
    loaders = [[f"loader.workers={n}"] for n in (0, 1, 2)[:workers]]
    base = [*words, f"train.batch={batch}"]
    grid = {" ".join(sum(c, [])): base + sum(c, []) for c in itertools.product(rows, recompute, THREADS, loaders)}
    found = times(grid, ROUNDS, steps)
    first = sorted(grid, key=lambda p: min(found[p]))[:FINALISTS]
    finalists = {p: grid[p] for p in first} | {"chosen": base + chosen}
    again = {p: statistics.median(x) for p, x in times(finalists, AGAIN, 2 * steps).items()}
    best = min(again, key=again.get)
    ratio = again["chosen"] / again[best]
    print(f"{name}: {len(grid)} combinations; tune {seconds:.1f} s: {' '.join(chosen) or 'as it is'}: {again['chosen']:.2f} ms a step; "
          f"the best of the grid, {best}: {again[best]:.2f} ms; {ratio:.3f} times", flush=True)
    check(f"{name}: {ratio:.3f} times the best of the grid", ratio <= 1.05)
    config = subprocess.run([tenon, "config", "show", f"{name}.yaml", "--json"], capture_output=True, text=True).stdout
    shown = {x["name"]: x.get("value") for x in map(json.loads, config.splitlines())}
    check(f"{name}: the rows of a step", shown["train.batch"] * shown["train.accumulate"] == batch)
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
