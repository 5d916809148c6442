#!/usr/bin/env bash
# TEN against GPT on a GPU, by the length of the sequences: bench/gpu_lengths.sh [key=value ...]
# Equal parameters (112 M; the GPT is Llama shaped, so that no table of positions grows with the length), equal tokens a step,
# equal recompute policy (plan.recompute of the command line; none by default). For each length a line of either: milliseconds and
# tokens a second of the median step, planned and measured memory of the GPU; then the ratio. What does not fit is said and skipped.
# LENGTHS="1024 65536" chooses lengths, TOKENS=65536 the tokens of a step, DEVICE=cuda, TENON the command.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tenon=${TENON:-$root/build/tenon}
tokens=${TOKENS:-65536} device=${DEVICE:-cuda}
lengths=${LENGTHS:-1024 2048 4096 8192 16384 32768 65536}
ten="ten dim=768 layers=12 k=64 vocab=50257"
gpt="gpt shape=llama dim=768 layers=12 heads=12 ffn=1632 vocab=50257"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# NAME LENGTH, then settings: prints the line and leaves the milliseconds in $ms, or nothing there.
measure() {
    local name=$1 length=$2 batch=$((tokens / $2)) plan
    shift 2
    ms=
    if ! "$tenon" bench "$@" train.batch=$batch train.context="$length" device="$device" --json > "$work/bench" 2> "$work/errors"; then
        printf '%-4s %6d x %-6d  %s\n' "$name" $batch "$length" "$(tail -1 "$work/errors" | cut -c1-150)"
        return
    fi
    ms=$(grep '"group": *"model"' "$work/bench" | head -1 | field value)
    plan=$("$tenon" check "$@" train.batch=$batch train.context="$length" device="$device" --only=memory --json 2> /dev/null)
    printf '%-4s %6d x %-6d %10.2f ms %9.1f K tokens/s   planned %7.2f GB, %s\n' "$name" $batch "$length" "$ms" \
        "$(awk "BEGIN { print $tokens / $ms }")" "$(awk "BEGIN { print $(echo "$plan" | field value | tail -1) / 1e9 }")" \
        "$(echo "$plan" | sed -n 's/.*; \(measured [^"]*\)".*/\1/p')"
}

for model in "$ten" "$gpt"; do
    # shellcheck disable=SC2086
    echo "$model: $("$tenon" check $model device=cpu train.context=8 train.batch=1 --only=parameters --json | field detail)"
done
for length in $lengths; do
    # shellcheck disable=SC2086
    { measure ten "$length" $ten "$@"; ten_ms=$ms; measure gpt "$length" $gpt "$@"; }
    [ -n "$ten_ms" ] && [ -n "$ms" ] && awk "BEGIN { printf \"     TEN is %.2f times as fast\\n\", $ms / $ten_ms }"
done
exit 0
