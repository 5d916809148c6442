#!/usr/bin/env bash
# compute-sanitizer over the kernels: memcheck (addresses) and racecheck (shared memory) on the smallest rows of every op, and memcheck on
# a few steps of small models. All rows would take hours: a kernel's partial tiles, strides and empty parts are in its small
# rows too; those that only exist at length (several levels of a scan) are not looked at here.
#
#   tests/cuda/sanitize.sh [OP ...]          ROWS=2 of each op; TOOLS="memcheck racecheck"
set -uo pipefail
cd "$(dirname "$0")/../.."
tool=$(PATH="$PATH:/usr/local/cuda/bin" command -v compute-sanitizer) || { echo 'compute-sanitizer is not found: install the one of CUDA'; exit 1; }
tenon=${BUILD:-build}/tenon failed=0
export TENON_TEST_SMALLEST=${ROWS:-2}
for check in ${TOOLS:-memcheck racecheck}; do
    echo "$check"
    SANITIZER="$tool --tool $check --error-exitcode 9 --print-limit 3" tests/cuda/run.sh "$@" || failed=1
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat README.md ARCHITECTURE.md > "$work/text.txt"
[ $# = 0 ] || exit $failed
for model in 'gpt heads=2' 'ten heads=2' 'ten heads=2 plan.recompute=chunk plan.chunk=24'; do
    # shellcheck disable=SC2086
    if "$tool" --tool memcheck --error-exitcode 9 --print-limit 5 "$tenon" train $model dim=32 layers=2 data="$work/text.txt" train.context=64 train.batch=2 \
        train.steps=4 train.eval_batches=1 loader.workers=0 device=cuda run="$work/${model//[ =.]/-}" > "$work/log" 2>&1
    then echo "ok      4 steps of $model under memcheck"
    else failed=1; echo "FAILED  4 steps of $model under memcheck"; grep -E '=========|error' "$work/log" | head -12; fi
done
exit $failed
