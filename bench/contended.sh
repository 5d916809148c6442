#!/usr/bin/env bash
# A training step on two threads while another process takes one of the two cores: bench/contended.sh [ROUNDS] [MODEL key=value ...]
# Steps are timed alone and beside a busy loop in turn. Ends with 1 where the median slows by more than 2.5 times (a
# step that waits for its other half at barriers cannot do better than 2).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tenon=${TENON:-$root/build/tenon}
rounds=${1:-5}
shift || true
[ $# -gt 0 ] || set -- gpt dim=256 layers=4 heads=4 vocab=8192 train.batch=4 train.context=64
cores=$(taskset -cp $$ | sed 's/.*: //')
first=$(echo "$cores" | sed -E 's/^([0-9]+).*/\1/')
second=$((first + 1))
hog=
stop() { [ -z "$hog" ] || { kill "$hog" 2>/dev/null; wait "$hog" 2>/dev/null || true; hog=; }; }
trap stop EXIT
step() { taskset -c "$first,$second" "$tenon" bench "$@" threads=2 --threads=2 --json | sed -n 's/.*"group": *"model", *"value": *\([0-9.]*\).*/\1/p'; }
ratios=
for ((i = 0; i < rounds; i++)); do
    alone=$(step "$@")
    taskset -c "$second" bash -c 'while :; do :; done' & hog=$!
    beside=$(step "$@")
    stop
    ratio=$(awk "BEGIN { printf \"%.2f\", $beside / $alone }")
    echo "alone $alone ms, beside a busy loop $beside ms: $ratio"
    ratios+="$ratio"$'\n'
done
median=$(printf %s "$ratios" | sort -n | sed -n "$(((rounds + 1) / 2))p")
echo "median of $rounds rounds: $median times (at most 2.5 is right)"
awk "BEGIN { exit $median > 2.5 }"
