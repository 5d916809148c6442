#!/usr/bin/env bash
# What the levels of log.level cost: instructions of the same training with each of them against one that writes no lines
# (callgrind; one thread, no loader threads, so that no neighbour disturbs the count), and CPU time as a cross-check, best of
# several rounds in turn, which is only printed. Limits: info 0.1 %, training 1 %, performance 3 %, profiling 10 %. The
# beginning and the end of a run are taken off by a run of fewer steps. TENON_SECONDS=1 also takes the times.
# Ends with "N passed, N failed".
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon
command -v valgrind >/dev/null || { echo "valgrind is missing: make deps"; exit 2; }
work=$build/long/levels
rm -rf "$work" && mkdir -p "$work" && cat ./*.md >"$work/text.txt" && cd "$work" || exit 2
export model='ten data=text.txt dim=64 layers=2 heads=2 train.context=64 train.batch=2 threads=1 loader.workers=0
    train.eval_every=0 train.eval_batches=1 ckpt.keep_best=0'

level() { # $1: a level, or off
    if [ "$1" = off ]; then echo log.level=info log.every=1e9; else echo "log.level=$1" log.every=5; fi
}

instructions() { # $1: a level, $2: steps
    # shellcheck disable=SC2046,SC2086
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$tenon" train $model $(level "$1") train.steps="$2" run="r-$1-$2" 2>&1 >/dev/null |
        sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p'
}

export tenon
export -f level instructions

cpu_seconds() { # $1: a level, $2: steps
    local TIMEFORMAT='%U %S'
    rm -rf r
    # shellcheck disable=SC2046,SC2086
    { time "$tenon" train $model $(level "$1") train.steps="$2" run=r >/dev/null 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}

# As many counts at once as there are cores: they do not disturb each other.
for name in off info training performance profiling; do
    for steps in 10 5; do echo "$name $steps"; done
done | xargs -P "$(nproc)" -L 1 bash -c 'instructions "$1" "$2" >"count-$1-$2"' _
count() { cat "count-$1-$2"; }
first=$(count off 5) all=$(count off 10)
[ -n "$first" ] && [ -n "$all" ] || { echo "callgrind counts nothing here"; exit 2; }
for row in info:0.1 training:1 performance:3 profiling:10; do
    name=${row%:*} limit=${row#*:}
    a=$(count "$name" 5) b=$(count "$name" 10)
    [ -n "$a" ] && [ -n "$b" ] && [ "$b" -gt "$a" ] || { failed=$((failed + 1)); echo "FAILED: $name: no count"; continue; }
    if awk -v n="$name" -v limit="$limit" -v was=$((all - first)) -v is=$((b - a)) 'BEGIN {
        cost = 100 * (is - was) / was
        printf "%-12s %+.3f %% instructions (limit %s %%)\n", n, cost, limit
        exit !(cost < limit) }'; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; fi
done
if [ -n "${TENON_SECONDS:-}" ]; then
    for round in 1 2 3 4 5; do
        for name in off info training performance profiling; do echo "$name $(cpu_seconds $name 150)"; done
    done | awk '{ if (!($1 in best) || $2 < best[$1]) best[$1] = $2; if (!n[$1]++) order[++m] = $1 }
        END { for (i = 2; i <= m; i++) printf "%-12s %+.2f %% CPU time\n", order[i], 100 * (best[order[i]] / best["off"] - 1) }'
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
