#!/usr/bin/env bash
# Training speed of TEN against GPT on a GPU, by sequence length: bench/gpu_lengths.sh [key=value ...]
# Equal parameters (111.9 and 112.0 M; the GPT is Llama shaped, so no position table grows with the length), equal tokens per step,
# equal recompute policy (plan.recompute from the command line; default none). For each length, one line per model: median step time,
# tokens per second, planned and measured GPU memory; then the ratio. A model that does not fit is reported and skipped. Takes about
# a minute. Environment: LENGTHS="1024 65536", TOKENS=65536 per step, SECONDS_EACH=1.5 per measurement (at least 4 steps),
# DEVICE=cuda, TENON (the command).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tenon=${TENON:-$root/build/tenon}
tokens=${TOKENS:-65536} device=${DEVICE:-cuda} seconds=${SECONDS_EACH:-1.5}
lengths=${LENGTHS:-1024 2048 4096 8192 16384 32768 65536}
ten="ten_tiny dim=768 layers=12 heads=12 k=64 vocab=50257" # a preset, because \`bench ten\` has its own default row
gpt="gpt shape=llama dim=768 layers=12 heads=12 ffn=1632 vocab=50257"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# NAME LENGTH, then settings: prints the line and sets $ms to the milliseconds (empty if it failed).
measure() {
    local name=$1 length=$2 batch=$((tokens / $2))
    shift 2
    ms=
    if ! "$tenon" bench "$@" train.batch=$batch train.context="$length" device="$device" --seconds="$seconds" --json > "$work/rows" 2> "$work/errors"; then
        printf '%-4s %6d x %-6d  %s\n' "$name" $batch "$length" "$(grep -m1 error "$work/errors" | cut -c1-150)"
        return
    fi
    ms=$(grep '"group": *"model"' "$work/rows" | field value)
    printf '%-4s %6d x %-6d %10.2f ms %9.1f K tokens/s' "$name" $batch "$length" "$ms" "$(awk "BEGIN { print $tokens / $ms }")"
    grep '"group": *"memory"' "$work/rows" | awk -F'[:,}]' '{ for (i = 1; i < NF; i++) { if ($i ~ /"value"/) p = $(i + 1); if ($i ~ /"measured"/) m = $(i + 1) } }
        p > 0 { printf "   planned %6.2f GB, measured %6.2f (%+.1f %%)", p / 1e9, m / 1e9, 100 * (m / p - 1) }'
    echo
}

for length in $lengths; do
    # shellcheck disable=SC2086
    { measure ten "$length" $ten "$@"; ten_ms=$ms; measure gpt "$length" $gpt "$@"; }
    [ -n "$ten_ms" ] && [ -n "$ms" ] && awk "BEGIN { printf \"     TEN is %.2f times as fast\\n\", $ms / $ten_ms }"
done
exit 0
