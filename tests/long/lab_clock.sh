#!/usr/bin/env bash
# The wall clock is set back and forth by an hour while a study runs: it goes on, no trial is taken for dead or overdue, and the table is that of a
# study nobody disturbed. About half a minute. Ends with "N passed, N failed".
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "$here/../../${BUILD:-build}") || exit 2
tenon=$(realpath "${TENON:-$build/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
${CC:-gcc} -O1 -shared -fPIC -o "$work/wall_clock.so" "$here/../interpose/wall_clock.c" -ldl || exit 2
cd "$work" || exit 2
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}

cat >s.yaml <<'END'
study: s
base: xor_tep
set: { task.size: 2048, train.epochs: 60, train.batch: 16 }
search: { dim: log int 4..24, train.lr: log 1e-3..1e-1 }
objectives: [ accuracy max 0, parameters min 1e6 ]
sampler: { name: tpe, seed: 7, startup: 2 }
lag: 1
trials: 16
trial_seconds: 30
END

table() { # of what is no time: trial, state, seed, settings and objectives
    "$tenon" lab export "$1.db" --format=csv | cut -d, -f1,5-10 | sort
}

disturbed() { # NAME SHIFT...: the clock is set to each, a third of a second apart, until the study has ended
    local name=$1 pid
    shift
    echo "$1" >shift
    sed "s/study: s/study: $name/" s.yaml >"$name.yaml"
    WALL_SHIFT="$work/shift" LD_PRELOAD="$work/wall_clock.so" timeout -k 5 120 "$tenon" lab run "$name.yaml" --workers=3 >"$name.out" 2>"$name.err" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        for s in "$@"; do
            echo "$s" >shift.new && mv shift.new shift
            timeout 0.3 tail --pid="$pid" -f /dev/null
        done
    done
    wait "$pid"
}

check 'a study with a clock that is right' "$tenon" lab run s.yaml --workers=3 >s.out 2>s.err
check 'it ended' grep -q '^16 done, 0 pruned, 0 failed, 0 timed out' s.out
table s >s.table
for way in 'back 3600 0' 'forth 0 3600' 'both 0 3600 -3600'; do
    # shellcheck disable=SC2086
    check "$way: the study ends" disturbed $way
    name=${way%% *}
    check "$way: nothing failed, nothing was over time" grep -q '^16 done, 0 pruned, 0 failed, 0 timed out' "$name.out"
    table "$name" >"$name.table"
    check "$way: the same table" cmp -s s.table "$name.table"
    check "$way: each trial was begun once" test "$("$tenon" lab export "$name.db" --format=jsonl | grep -c '"attempt":[2-9]')" = 0
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
