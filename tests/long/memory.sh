#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# The printed memory plan against the peak of the process: GPT-2 of 124 million parameters, and a TEN over 200,000
# tokens, each with all activations kept and with layers recomputed; the TEN also in chunks of time. At most 5 % between
# them, and recomputing must plan less; in chunks the plan may not grow by more than the tokens and states themselves. The check itself allows more (tiny models); here its percentage is read.
# Then what sampling holds, and runs in which an allocation fails. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
tenon=${TENON:-${BUILD:-build}/tenon} passed=0 failed=0

result() { # $1: a test's exit status, then what it tested
    local rc=$1
    shift
    if [ "$rc" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $*"; fi
}

# Sets bytes and percent; "$@": a model and its settings.
measure() {
    local row
    bytes='' percent=''
    row=$("$tenon" check "$@" --only=memory --json 2>&1)
    [[ $row =~ \"value\":([0-9]+) ]] && bytes=${BASH_REMATCH[1]}
    [[ $row =~ measured\ [0-9.]+\ MB\ \(([-+][0-9.]+)\ % ]] && percent=${BASH_REMATCH[1]}
    echo "$* : planned ${bytes:-?} bytes, measured ${percent:-?} %"
    [ -n "$bytes" ] && [ -n "$percent" ] || { echo "$row"; return 1; }
    awk -v p="$percent" 'BEGIN { exit !(p >= -5 && p <= 5) }'
}

both_ways() {
    local kept
    measure "$@"
    result $? "$*: the plan is more than 5 % off"
    kept=$bytes
    measure "$@" plan.recompute=layer
    result $? "$* plan.recompute=layer: the plan is more than 5 % off"
    [ -n "$kept" ] && [ -n "$bytes" ] && [ "$bytes" -lt "$kept" ]
    result $? "$*: recomputing layers plans $bytes bytes instead of $kept"
}

both_ways gpt2_124m train.context=64 train.batch=1
both_ways ten dim=64 layers=2 vocab=256 train.context=200000 train.batch=1

# Chunks: ten times less than layers, and twelve times the length (odd, so that the last chunk is short) for little more.
ten=(ten dim=64 layers=2 vocab=256 train.batch=1)
layers=$bytes
measure "${ten[@]}" train.context=16384 plan.recompute=chunk plan.chunk=8192
result $? "chunks, 16,384 tokens: the plan is more than 5 % off"
short=$bytes
measure "${ten[@]}" train.context=200003 plan.recompute=chunk plan.chunk=8192
result $? "chunks, 200,003 tokens: the plan is more than 5 % off"
[ -n "$bytes" ] && [ "$bytes" -lt $((layers / 10)) ] && [ "$bytes" -lt $((short + short / 10)) ]
result $? "chunks, 200,003 tokens: $bytes bytes; 16,384: $short, layers of 200,000 $layers"

# A run with many batches made ahead: the plan that it prints against the most that its process has had.
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
seq 1 300000 >"$work/text.txt"
ahead() { # $1: loader.prefetch, $2: train.context
    local planned measured
    "$tenon" train ten data="$work/text.txt" dim=8 layers=1 heads=1 train.context="$2" train.batch=1 train.steps=60 train.eval_batches=1 plan.recompute=chunk \
        loader.prefetch="$1" threads=1 run="$work/run-$1" >/dev/null 2>"$work/err" || { tail -n 1 "$work/err"; return 1; }
    planned=$(sed -n 's/^memory .* peak \([0-9.]*\) MB$/\1/p' "$work/err")
    measured=$(sed -n 's/.*"memory_mb":\([0-9.]*\).*/\1/p' "$work/run-$1/metrics.jsonl" | tail -n 1)
    echo "loader.prefetch=$1, $2 tokens: planned ${planned:-?} MB, measured ${measured:-?} MB"
    awk -v p="$planned" -v m="$measured" 'BEGIN { d = m - p; exit !(p > 0 && d > -0.05 * p - 4 && d < 0.05 * p + 12) }' # the program itself comes on top; what no thread needed was not touched
}
ahead 2000 16384
result $? "2,000 batches ahead: the plan is off"
ahead auto 262144
result $? "as many batches ahead as a run makes by itself: the plan is off"

# Sampling: a file of weights is in memory once, in its own type; besides it the cache and 64 MB for everything else.
sampled() { # $1: dtype
    local file="$work/model.$1.safetensors" most peak rc
    "$tenon" ckpt convert "$work/model" "$file" dtype="$1" >/dev/null 2>"$work/err" || { cat "$work/err"; return 1; }
    "$work/peak" "$work/used" "$tenon" sample "$file" tokenizer=bytes --prompt 123 context=512 max_tokens=4 >/dev/null 2>"$work/err"
    read -r rc peak <"$work/used"
    peak=$((peak * 1024))
    most=$(($(stat -c %s "$file") * 13 / 10 + 8 * 2 * 512 * 640 * 4 + 64000000)) # layers, keys and values, tokens, numbers
    echo "sample, $1: peak $peak bytes, at most $most"
    [ "$rc" = 0 ] && [ "$peak" -le "$most" ]
}
"${CC:-cc}" -O1 -Wall -Wextra -Werror -o "$work/peak" tests/long/peak.c || exit 2
"$tenon" train gpt data="$work/text.txt" dim=640 layers=8 heads=8 vocab=20000 train.context=32 train.batch=1 train.steps=1 train.eval_batches=1 \
    run="$work/model" >/dev/null 2>"$work/err" || tail -n 1 "$work/err"
for dtype in f32 bf16 f16; do
    sampled $dtype
    result $? "tenon sample holds more than its $dtype weights"
done

# Layers that look back on a window keep no more of a long context than of a short one: the state as it is printed, and what the process has.
hybrid=ten_hybrid,dim=256,layers=4,heads=4,vocab=256
states=() peaks=()
for context in 1024 131072; do
    "$work/peak" "$work/used" "$tenon" bench decode $hybrid --contexts=$context --batch=1 --seconds=0.1 --rounds=1 --json >"$work/row" 2>"$work/err"
    read -r rc peak <"$work/used"
    [ "$rc" = 0 ] || tail -n 1 "$work/err"
    states+=("$(sed -n 's/.*"state_bytes": *\([0-9]*\).*/\1/p' "$work/row")")
    peaks+=("$peak")
done
echo "decode state of ten_hybrid: ${states[0]:-?} bytes at 1,024 tokens, ${states[1]:-?} at 131,072; peaks ${peaks[0]} and ${peaks[1]} kB"
[ -n "${states[0]}" ] && [ -n "${states[1]}" ] && [ "${states[1]}" -le $((states[0] + states[0] / 10)) ]
result $? "the decode state of ten_hybrid grows with the context"
[ "${peaks[1]}" -le $((peaks[0] + 20000)) ] # keys and values of all positions: 268 MB
result $? "decoding with ten_hybrid holds more of a long context"

# Runs whose n-th allocation fails, for every n (wire: every sixth): they go on with the same losses, or end with code 5 and a whole save.
unit=${UNIT:-${BUILD:-build}/unit}
for test in 'gpt 1' 'wire 6'; do
    TENON_LADDER_EVERY=${test#* } "$unit" "ladder: an allocation fails, ${test% *}" >"$work/out" 2>&1
    rc=$?
    grep -E "^${test% *}: [0-9]+ allocations" "$work/out" || rc=1
    [ $rc = 0 ] || tail -n 5 "$work/out"
    result $rc "an allocation fails, ${test% *}"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
