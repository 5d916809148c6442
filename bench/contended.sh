#!/usr/bin/env bash
# Times a training step on two threads while another process uses one of the two cores: bench/contended.sh [ROUNDS] [MODEL key=value ...]
# Alternates between steps alone and steps with a busy loop. Exits with 1 if the median slowdown exceeds 2.5 (with barriers between
# the threads, 2 is the best possible).
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
    echo "alone $alone ms, with a busy loop $beside ms: $ratio"
    ratios+="$ratio"$'\n'
done
median=$(printf %s "$ratios" | sort -n | sed -n "$(((rounds + 1) / 2))p")
echo "median of $rounds rounds: $median times (at most 2.5 is right)"
awk "BEGIN { exit $median > 2.5 }"
