#!/usr/bin/env bash
# `tenon report`, traces, levels of log.level and advice on a GPU. Ends with "N passed, N failed".
#
#   tests/cuda/report.sh TEXT [components|levels|trace|advice ...]     TEXT: a file to train on; DEVICE=cpu rehearses the script at tiny shapes;
#                                                                      KEEP=DIR keeps pages, JSON and the trace there; PYTHON an interpreter
#
#   components  GPT-2 124M and TEN 131 M: components add up to the undisturbed step, "other" at most 3 %, none above 105 % of its ceiling
#   levels      tokens/s with log.level=training and performance against info, in turn: at most 0.5 and 3 % less, median of the rounds
#   trace       100 steps of GPT-2 124M: a busy share is printed, spans nest; HolisticTraceAnalysis, where it is installed, within a point
#   advice      a configuration in f32 is told of bf16 first; what it predicts comes true ((achieved - 1) / (predicted - 1) from 0.7 to 1.5)
set -uo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
[ -f "${1:-}" ] || { sed -n '4,5s/^# *//p' "$0" >&2; exit 2; }
text=$(realpath "$1") device=${DEVICE:-cuda} tenon=$(realpath "${BUILD:-build}/tenon") python=${PYTHON:-python3} passed=0 failed=0
shift
parts=" $* "
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
keep=${KEEP:-$work}
ok() { passed=$((passed + 1)); echo "ok      $1"; }
bad() { failed=$((failed + 1)); echo "FAILED  $1"; }
wanted() { [ "$parts" = '  ' ] || [[ $parts == *" $1 "* ]]; }

gpt='gpt2_124m train.batch=64 train.context=1024' seconds=4 rounds=5 steps=200
ten='ten_b dim=1024 layers=8 k=128 vocab=50257 train.dropout=0 train.batch=32 train.context=2048'
small='ten dim=512 layers=8 train.batch=32 train.context=1024'
slow='dim=512 layers=6 heads=8 train.batch=16 train.context=512'
[ "$device" != cpu ] || {
    gpt='gpt dim=64 layers=2 heads=2 vocab=256 train.batch=4 train.context=64' ten='ten dim=64 layers=2 heads=2 vocab=256 train.batch=4 train.context=64'
    small='ten dim=64 layers=2 heads=2 train.batch=4 train.context=64' slow='dim=64 layers=2 heads=2 train.batch=4 train.context=64'
    seconds=1 rounds=2 steps=30
}

components() { # NAME SETTINGS
    local said
    # shellcheck disable=SC2086
    "$tenon" report $2 device="$device" --no-advice --seconds=$seconds --json --html="$keep/$1.html" >"$keep/$1.json" 2>"$work/err" || tail -1 "$work/err"
    said=$("$python" tests/long/components.py <"$keep/$1.json" 2>&1 | tail -1)
    if [[ $said == ok* ]]; then ok "components of $1: $said"; else bad "components of $1: $said"; fi
}

levels() {
    "$python" - "$tenon" "$device" "$text" "$work" $rounds $steps "$small" <<'END'
import json, statistics, subprocess, sys
tenon, device, text, work, rounds, steps, model = sys.argv[1:]
LIMITS = {"training": 1.005, "performance": 1.03}
took = {"info": [], "training": [], "performance": []}
for k in range(int(rounds)):
    for level in sorted(took, reverse=k % 2 == 1):
        run = subprocess.run([tenon, "train", *model.split(), f"data={text}", f"device={device}", f"train.steps={steps}", "train.eval_every=0",
                              "train.eval_batches=1", "ckpt.keep_best=0", "log.every=10", f"log.level={level}", f"run={work}/levels", "--fresh"],
                             capture_output=True, text=True)
        if run.returncode: sys.exit(run.stderr[-300:])
        lines = [json.loads(x) for x in open(f"{work}/levels/metrics.jsonl")]
        seen = [(x["step"], x["seconds"]) for x in lines if "seconds" in x and x["step"] > int(steps) // 5]
        took[level].append((seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]))  # behind warm-up, between two lines
good = True
for level, limit in LIMITS.items():
    ratio = [a / b for a, b in zip(took[level], took["info"])]
    fine = statistics.median(ratio) <= limit
    good &= fine
    print(f"  {level}: {statistics.median(ratio):.4f} of info's time ({min(ratio):.4f} to {max(ratio):.4f}), at most {limit}" + ("" if fine else "  TOO MUCH"))
sys.exit(not good)
END
}

trace() {
    local share
    # shellcheck disable=SC2086
    "$tenon" bench $gpt device="$device" --seconds=2 --trace="$keep/trace.json" >"$work/trace.txt" 2>&1 || { tail -1 "$work/trace.txt"; return 1; }
    grep -A2 '^trace .* steps: ' "$work/trace.txt"
    share=$(sed -n 's/.* wall, \([0-9.]*\) %.*/\1/p' "$work/trace.txt" | head -1)
    [ -n "$share" ] || [ "$device" = cpu ] || { echo '  no busy share was printed'; return 1; }
    "$python" tests/cuda/trace_hta.py "$keep/trace.json" ${share:+"$share"}
}

advice() {
    local line set predicted achieved
    # shellcheck disable=SC2086
    line=$("$tenon" report gpt,compute=f32 data="$text" $slow device="$device" --seconds=3 --json 2>/dev/null | grep -m 1 '"group":"advice"')
    set=$(sed -n 's/.*"set":"\([^"]*\)".*/\1/p' <<<"$line") predicted=$(sed -n 's/.*"value":\([0-9.e+]*\).*/\1/p' <<<"$line")
    # shellcheck disable=SC2086
    achieved=$("$tenon" report gpt,compute=f32 "gpt,compute=f32${set:+,${set// /,}}" data="$text" $slow device="$device" --seconds=3 --json 2>/dev/null |
        grep '"name":"step"' | sed -n 's/.*"before":\([0-9.e+-]*\),"after":\([0-9.e+-]*\).*/\1 \2/p' | awk '{ print $1 / $2 }')
    echo "  first: $set, predicted $predicted, achieved $achieved"
    [ "$set" = compute=bf16 ] && awk -v p="$predicted" -v a="$achieved" 'BEGIN { q = p > 1 ? (a - 1) / (p - 1) : 0; exit !(p >= 1.5 && q >= 0.7 && q <= 1.5) }'
}

if wanted components; then components gpt2 "$gpt"; components ten "$ten"; fi
if wanted levels; then if levels; then ok 'what levels cost'; else bad 'what levels cost'; fi; fi
if wanted trace; then if trace; then ok 'a trace of 100 steps'; else bad 'a trace of 100 steps'; fi; fi
if wanted advice; then if advice; then ok 'advice: bf16'; else bad 'advice: bf16'; fi; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
