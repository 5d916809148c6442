#!/usr/bin/env bash
# The CUDA backend compiles and links where nvcc is, and the program that has it runs where no GPU is: device=cuda says what
# is missing, device=auto takes the CPU. Without nvcc there is nothing to test.
set -uo pipefail
cd "$(dirname "$0")/../.."
if ! PATH="$PATH:/usr/local/cuda/bin" command -v nvcc > /dev/null; then
    echo 'skipped: there is no nvcc here'
    echo '0 passed, 0 failed'
    exit 0
fi
build=${BUILD:-build}-cuda passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok      $1"; }
bad() { failed=$((failed + 1)); echo "FAILED  $1"; }

if make -j"$(nproc)" BUILD="$build" CUDA=1 CUDA_ARCHS=90 WERROR=1 "$build/tenon" "$build/unit"; then ok 'compiles for sm_90'; else bad 'compiles for sm_90'; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
yes 'some text to learn from, line by line' | head -2000 > "$work/text.txt"
run() { "$build/tenon" train gpt data="$work/text.txt" dim=16 layers=1 heads=2 train.context=16 train.batch=2 train.steps=3 run="$work/$1" device="$2" 2> "$work/err"; }
if nvidia-smi > /dev/null 2>&1; then
    if run gpu cuda; then ok 'device=cuda trains'; else bad 'device=cuda trains'; fi
else
    run gpu cuda
    rc=$?
    if [ $rc = 2 ] && grep -q '^error: device=cuda: .*device=cpu' "$work/err"; then ok 'device=cuda without a GPU'; else bad "device=cuda without a GPU (exit code $rc): $(cat "$work/err")"; fi
fi
if run auto auto; then ok 'device=auto trains'; else bad 'device=auto trains'; fi
if BUILD=$build tests/interpose/run.sh > "$work/interpose" 2>&1; then ok 'tests link against a library with kernels'; else bad "tests link against a library with kernels: $(tail -n 2 "$work/interpose")"; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
