#!/usr/bin/env bash
# The library for GPUs compiles where nvcc is, and the program loads it where no GPU is: device=cuda says what is missing, device=auto
# takes the CPU. Without nvcc there is nothing to test. The program is that of the build folder, the library has a folder of its own.
set -uo pipefail
cd "$(dirname "$0")/../.."
if ! PATH="$PATH:/usr/local/cuda/bin" command -v nvcc > /dev/null; then
    echo 'skipped: there is no nvcc here'
    echo '0 passed, 0 failed'
    exit 0
fi
build=${BUILD:-build} passed=0 failed=0
cuda=$build-cuda
ok() { passed=$((passed + 1)); echo "ok      $1"; }
bad() { failed=$((failed + 1)); echo "FAILED  $1"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if make BUILD="$cuda" CUDA=1 CUDA_ARCHS=90 WERROR=1 "$cuda/libtenon_cuda.so" "$cuda/obj/src/backend/cuda/cudnn_attention_test.o"; then ok 'compiles for sm_90'; else bad 'compiles for sm_90'; fi
mkdir "$work/bin" "$work/lib" && cp "$build/tenon" "$work/bin" && cp "$cuda/libtenon_cuda.so" "$work/lib" || exit 2
# As packages have them. Debug information is two thirds of the command, and differs between processors and compilers.
strip -o "$work/command" "$work/bin/tenon" && strip -o "$work/library" "$work/lib/libtenon_cuda.so" || exit 2
bytes=$(du -cb "$work/command" "$work/library" | awk 'END { print $1 }')
if [ "$bytes" -le 36000000 ]; then ok "command and library have $bytes bytes"; else bad "command and library have $bytes bytes, more than 36 MB"; fi
if readelf -d "$build/tenon" "$build/libtenon.so" | grep -i 'NEEDED.*cu'; then bad 'the program needs nothing of CUDA'; else ok 'the program needs nothing of CUDA'; fi

yes 'some text to learn from, line by line' | head -2000 > "$work/text.txt"
run() { "$work/bin/tenon" train gpt data="$work/text.txt" dim=16 layers=1 heads=2 train.context=16 train.batch=2 train.steps=3 run="$work/$1" device="$2" 2> "$work/err"; }
cuda_row=$("$work/bin/tenon" doctor | grep '^cuda ')
if [[ $cuda_row == *'libtenon_cuda.so is here'* ]]; then ok 'the program loads the library'; else bad "the program loads the library: $cuda_row"; fi
if nvidia-smi > /dev/null 2>&1; then
    if run gpu cuda; then ok 'device=cuda trains'; else bad "device=cuda trains: $(cat "$work/err")"; fi
else
    run gpu cuda
    rc=$?
    if [ $rc = 2 ] && grep -qE '^error: device=cuda: .*(driver|GPU).*device=cpu' "$work/err"; then ok 'device=cuda without a GPU'; else bad "device=cuda without a GPU (exit code $rc): $(cat "$work/err")"; fi
fi
if run auto auto; then ok 'device=auto trains'; else bad "device=auto trains: $(cat "$work/err")"; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
