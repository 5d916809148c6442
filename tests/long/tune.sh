#!/usr/bin/env bash
# `tenon tune` on configurations drawn at random under random limits of memory (TENON_TUNE_CONFIGS of them, 6 if it is not set): each ends
# well, or says in one line that nothing of it fits; no process takes more than its limit beside the command itself; what is written trains.
# TENON_TUNE_GRID=1: how near it comes to the best of a full grid on three models, and whether it keeps its time (tune_grid.py; some minutes
# on a machine that does nothing else). Ends with "N passed, N failed". Half a minute.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cat "$here"/../../docs/*.md >"$work/text.txt" && cd "$work" || exit 2
[ -z "${TENON_TUNE_GRID:-}" ] || {
    XDG_CACHE_HOME=$work python3 "$here/tune_grid.py" "$tenon" "$work/text.txt"
    exit
}
XDG_CACHE_HOME=$work python3 - "$tenon" "${TENON_TUNE_CONFIGS:-6}" <<'END'
import os, random, resource, subprocess, sys
tenon, configs = sys.argv[1], int(sys.argv[2])
OWN_MB = 48  # of the command: code, text of the data, threads, what a kernel's stack takes
passed = failed = refused = 0


def run(*words):
    """Exit code, what it said, and the most memory it took."""
    pid = os.fork()
    if not pid:
        out = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        os.execv(tenon, [tenon, *words])
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), open("said").read(), used.ru_maxrss / 1024


for k in range(configs):
    r = random.Random(k)
    pick = r.choice
    rows, batch = [], pick([1, 3, 4, 8, 12, 32, 64, 100])
    kind = pick(["gpt", "ten", "ten_b", "ten_hybrid", "tep", "net", "flow_debug"])
    if kind in ("tep", "net"): rows = [kind, "task=parity", "task.bits=8", f"dim={pick([8, 16, 64])}"]
    elif kind == "flow_debug": rows = [kind]
    else:
        heads = pick([1, 2, 4])
        rows = [kind, f"dim={heads * pick([8, 16, 32])}", f"heads={heads}", f"layers={pick([1, 2, 3])}",
                f"train.context={pick([16, 33, 64, 128, 256])}", f"plan.recompute={pick(['none', 'none', 'layer'])}"]
        if r.random() < 0.7: rows.append("data=text.txt")
        else: rows.append(f"vocab={pick([64, 300, 2000])}")
        if r.random() < 0.2: rows.append("train.dropout=0.1")
        if kind == "gpt" and r.random() < 0.3: rows.append("compute=bf16")
    if r.random() < 0.8: rows.append(f"train.batch={batch}")
    if r.random() < 0.3: rows.append(f"train.accumulate={pick([2, 3, 8])}")
    if r.random() < 0.3: rows.append(f"plan.microbatches={pick([1, batch])}" if "train.batch" in " ".join(rows) else "plan.microbatches=1")
    limit = 10 ** r.uniform(-2.3, -0.5)  # GB
    code, said, peak = run("tune", *rows, f"plan.memory_gb={limit:.4f}", "--seconds=0.7", "--out=tuned.yaml")
    errors = [line for line in said.splitlines() if line.startswith("error")]
    fits = "plan.memory_gb" in "".join(errors)
    if code == 5 and len(errors) == 1 and fits: refused += 1
    ok = code == 0 or code == 5 and fits
    ok = ok and peak <= 1000 * limit + OWN_MB
    if ok and code == 0 and k % 3 == 0 and any(x in rows for x in ("data=text.txt", "task=parity")):
        code, said, more = run("train", "tuned.yaml", "train.steps=3", "train.eval_every=0", "run=r", "--fresh")
        ok = code == 0
    if ok: passed += 1
    else:
        failed += 1
        print(f"FAILED {k}: tenon tune {' '.join(rows)} plan.memory_gb={limit:.4f}: code {code}, {peak:.0f} MB\n{said[-600:]}")
    if os.path.exists("tuned.yaml"): os.remove("tuned.yaml")
print(f"{refused} configurations did not fit their limit")
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
END
