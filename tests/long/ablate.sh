#!/usr/bin/env bash
# `tenon ablate` on one core beside somebody who keeps another busy: in three runs, switches worth 1.10 or more are gains in all three, and
# none is a gain in one and a loss in another. TENON_ABLATE_ROWS=opt,recurrence TENON_ABLATE_SECONDS=180 looks at all switches.
# The ops of the recurrence alone are at least twice as fast as one step per token. A twin that computes something else fails, by the name of
# the parameter and with exit code 4. Ends with "N passed, N failed". About a minute.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
root=$PWD build=$(realpath -m "${BUILD:-build}") passed=0 failed=0 busy=
tenon=$build/tenon
work=$build/long/ablate
trap '[ -z "$busy" ] || kill "$busy" 2>/dev/null' EXIT
rm -rf "$work" && mkdir -p "$work" && cat ./*.md docs/*.md >"$work/text.txt" && cd "$work" || exit 2

check() { # what, then a command that says whether it holds
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $what"; fi
}

# --- a wrong twin
"$tenon" new model wrong >/dev/null && cp "$root/tests/long/ablate/wrong.c" wrong/ &&
    make -s -C wrong CFLAGS='-O1 -Wall -Wextra -Werror' || exit 2
"$tenon" ablate ./wrong/wrong.so train.context=32 train.batch=8 --seconds=4 --rows=opt.bias_right,opt.bias_wrong >table 2>error
code=$?
cat table error
check 'exit code 4' [ $code = 4 ]
check 'the wrong twin fails' grep -qE '^opt\.bias_wrong .* FAILED$' table
check 'by the name of its parameter' grep -qE '^ +(gradient of )?layer1\.b differs by 2\.[0-9]e-02 after' table
check 'the error names both' grep -qE '^error: 1 of 2 rows .*opt\.bias_wrong: (gradient of )?layer1\.b$' error
check 'the right twin does not' grep -qE '^opt\.bias_right .* (bit-identical|within [0-9]e-[0-9]+)$' table

# --- held-out metrics of a switch, against what rounding does
"$tenon" ablate net task=parity task.bits=8 dim=16 train.batch=16 --rows=opt.epilogue --eval=20 --seconds=6 --json >scores 2>error
check 'a switch leaves the metrics as they are' [ $? = 0 ]
check 'all of them are told' grep -qE '"group":"heldout","name":"opt.epilogue","metric":"accuracy",.*"allowed":0\.[0-9]+,"moved":false,"steps":20' scores

# --- three runs beside a busy loop
core=$(taskset -pc $$ | sed -n 's/.*: \([0-9]*\).*/\1/p') # the first that this process may use
taskset -c "$core" bash -c 'while :; do :; done' &
busy=$!
neighbour() { kill -0 "$busy" 2>/dev/null || { echo "no neighbour on core $core"; exit 2; }; }
neighbour
rows=${TENON_ABLATE_ROWS:-opt.gemm_kernels,opt.linear_xent,recurrence} seconds=${TENON_ABLATE_SECONDS:-24}
for i in 1 2 3; do
    "$tenon" ablate ten data=text.txt dim=64 layers=3 heads=2 train.context=128 train.batch=2 threads=1 "--seconds=$seconds" "--rows=$rows" --json >"run$i" 2>error ||
        { cat error; echo "FAILED: run $i"; failed=$((failed + 1)); }
done
neighbour
kill "$busy"
busy=
python3 - run1 run2 run3 <<'PY'
import json, statistics, sys
runs = [{r["name"]: r for r in map(json.loads, open(f)) if "verdict" in r} for f in sys.argv[1:]]
bad = 0
for name in runs[0]:
    rows = [r[name] for r in runs if name in r]
    values = [r["value"] or 0 for r in rows]
    verdicts = [r["verdict"] for r in rows]
    effect = statistics.median(values)
    alone = [r["alone"] for r in rows if "alone" in r]
    wrong = len(rows) < 3 or (effect >= 1.10 and set(verdicts) != {"gain"}) or {"gain", "loss"} <= set(verdicts)
    wrong = wrong or (name == "recurrence" and (len(alone) < 3 or statistics.median(alone) < 2))
    bad += wrong
    print(f"{name:22} {' '.join(f'{v:.2f}' for v in values)}  {', '.join(verdicts)}"
          f"{'; ops alone ' + ' '.join(f'{v:.2f}' for v in alone) if alone else ''}{'  FAILED' if wrong else ''}")
sys.exit(bad > 0 or len(runs[0]) < 3)
PY
check 'the same verdicts in three runs' [ $? = 0 ]
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
