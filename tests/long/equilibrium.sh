#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Do equilibrium networks learn? Digits by centred equilibrium propagation and through the iterations (real data: skipped without them,
# which fails under TENON_REQUIRE_DATA), the pole on a cart by both, and a run killed halfway that ends with the numbers of one that was not.
# Ends with "N passed, N failed".
#
# Measured in November 2026 (seed 30; digits: test accuracy chosen on validation; the pole: mean reward of the last 100 of 400
# episodes): gates leave room for other processors, whose last bits make other episodes.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon work=$build/long/equilibrium digits=../shared/data/images/digits/digits.csv.gz
mkdir -p "$build/long" && rm -rf "$work" && mkdir "$work" || exit 2

gate() { # $1: name of the number, $2: the least, $3: what it is, then train's arguments
    local name=$1 least=$2 what=$3 got
    shift 3
    got=$("$tenon" train "$@" run="$work/run" --fresh --json 2>"$work/log" | sed -n "s/.*\"$name\", *\"value\": *\([-0-9.]*\).*/\1/p")
    echo "$what: ${got:-none}, at least $least"
    if awk -v got="$got" -v least="$least" 'BEGIN { exit !(got != "" && got >= least) }'; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 3 "$work/log"
    fi
}

if [ -f "$digits" ]; then
    for grad in ep_centred bptt; do
        gate test_accuracy 0.93 "digits, $grad" digits_tep grad=$grad task.data="$digits" seed=30 task.split_seed=30
    done
elif [ "${TENON_REQUIRE_DATA:-0}" = 1 ]; then
    failed=$((failed + 1))
    echo "FAILED: $digits is not there"
else
    echo "skipped: $digits is not there"
fi
for grad in ep_centred bptt; do gate reward_100 150 "the pole, $grad" cartpole_tep grad=$grad train.steps=400 seed=30 threads=1; done

# Killed at a third, then continued: what a run ends with is in its last line of metrics, without the times.
long() { exec "$tenon" train cartpole_tep train.steps=150 ckpt.every=10 seed=3 threads=1 run="$work/$1" >/dev/null 2>&1; }
without_times() { tail -1 "$1/metrics.jsonl" | sed -E 's/,"(samples_per_s|tokens_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)":[^,}]*//g'; }
(long whole)
long killed & pid=$! # the command itself: exec
while [ ! -d "$work/killed/step-50" ] && kill -0 $pid 2>/dev/null; do sleep 0.05; done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
(long killed)
if [ -s "$work/whole/metrics.jsonl" ] && [ "$(without_times "$work/whole")" = "$(without_times "$work/killed")" ] &&
    cmp -s "$work/whole/latest/model.safetensors" "$work/killed/latest/model.safetensors"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: a run of episodes that was killed and continued ended otherwise"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
