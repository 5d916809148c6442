#!/usr/bin/env bash
# All 600 trials of phase 1 on one GPU with 16 lanes, several times: every trial ends well, and the tables are equal.
# The objective `seconds` is left out: NSGA-II would draw other points in every run.
#
#   tests/cuda/phase1.sh DIGITS.csv[.gz]      TIMES=3, LANES=16, DEVICE=cuda; KEEP=folder keeps the databases, and tables of former calls are compared
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
tenon=$(realpath "${BUILD:-build}/tenon") || exit 2
data=$(realpath "${1:-}") || { echo "name the digits: tests/cuda/phase1.sh DIGITS.csv.gz"; exit 2; }
work=${KEEP:-$(mktemp -d)} passed=0 failed=0
mkdir -p "$work" || exit 2
[ -n "${KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
check() { local what=$1; shift; if "$@"; then passed=$((passed + 1)); echo "ok      $what"; else failed=$((failed + 1)); echo "FAILED  $what"; fi; }
query() { python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print("|".join(map(str, row)))' "$1" "$2"; }

sed -e '/^published:/,$d' -e 's/seconds min 1000, //' -e '/^trial_seconds:/d' -e '/^seconds:/d' -e '/^db:/d' studies/phase1.yaml >"$work/phase1.yaml"
first=$(ls "$work"/*.table 2>/dev/null | head -n 1)
for i in $(seq "${TIMES:-3}"); do
    db=$work/run-$(date +%s).db begun=$(date +%s.%N)
    "$tenon" lab run "$work/phase1.yaml" task.data="$data" device="${DEVICE:-cuda}" --db="$db" --workers=1 --lanes="${LANES:-16}" >"$work/out" 2>"$work/err" || tail -n 2 "$work/err"
    echo "run $i: $(python3 -c "import time; print('%.1f s' % (time.time() - $begun))")"
    query "$db" 'select side, number, state, seed, x, y, parameters, error from trial order by side, number' >"${db%.db}.table"
    check "run $i: 600 of 600 trials" [ "$(query "$db" 'select count(*), sum(state in (2, 3)) from trial')" = '600|600' ]
    query "$db" 'select error, count(*) from trial where state not in (2, 3) group by error' | head -n 3 | cut -c1-200
    if [ -z "$first" ]; then first=${db%.db}.table; else check "run $i: the table of the first" cmp -s "$first" "${db%.db}.table"; fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
