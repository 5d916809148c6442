#!/usr/bin/env bash
# Every row of every op on the GPU: against its double-precision oracle, three times with the same bits (queued, recorded,
# replayed), with strided inputs, added gradients and a NaN. One process per op, so that a fault stays with its op.
#
#   tests/cuda/run.sh [OP ...]          SANITIZER="compute-sanitizer ..." checks memory too (sanitize.sh)
#                                       TENON_CUDNN=FILE: attention by that cuDNN wherever it can, else where it is faster
set -uo pipefail
cd "$(dirname "$0")/../.."
unit=${BUILD:-build}/unit
jobs=${JOBS:-8}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export TENON_TEST_DEVICE=cuda
ops=("$@")
[ $# -gt 0 ] || mapfile -t ops < <(sed -n 's/^TN_OP(\([a-z0-9_]*\)).*/\1/p' src/ops/ops.def | grep -vxE 'pack_weight')

one() {
    # shellcheck disable=SC2086
    timeout "${LIMIT:-300}" ${SANITIZER:-} "$unit" "$1:" > "$out/$1" 2>&1
    echo $? > "$out/$1.rc"
}
running=0
for op in "${ops[@]}"; do
    one "$op" &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then wait -n; running=$((running - 1)); fi
done
wait

passed=0 failed=0
for op in "${ops[@]}"; do
    p=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' "$out/$op" | tail -1)
    f=$(sed -n 's/^[0-9]* passed, \([0-9]*\) failed.*/\1/p' "$out/$op" | tail -1)
    rc=$(cat "$out/$op.rc")
    if [ -z "$p" ]; then p=0 f="? (exit code $rc)"; failed=$((failed + 1)); else passed=$((passed + p)) failed=$((failed + f)); fi
    if [ "$f" = 0 ] && [ "$rc" != 0 ]; then f="0, but exit code $rc"; failed=$((failed + 1)); fi
    printf '%-16s %4s passed %4s failed\n' "$op" "$p" "$f"
    if [ "$rc" != 0 ]; then
        grep -E '^\[  FAILED  \]|instead of|CUDA|ERROR|=========|other bits|error' "$out/$op" | grep -v 'test(s)' | awk '!seen[$0]++' | head -"${LINES_EACH:-6}" | cut -c1-220 | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
