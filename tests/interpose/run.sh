#!/usr/bin/env bash
# Zero allocations, mappings and file opens per step after the first, for each model: counted for the whole process by
# preloading wrappers of malloc, mmap and open. BUILD names the build folder. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}; passed=0; failed=0
cc=${CC:-gcc}; libs=$(sed -n 's/^libs //p' "$build/options")
$cc -O1 -shared -fPIC -o "$build/count.so" tests/interpose/count.c -ldl || exit 2
$cc -std=gnu11 -O1 -Iinclude -I"$build/include" -Isrc -o "$build/steps" tests/interpose/steps.c -rdynamic \
    -Wl,--whole-archive "$build/libtenon.a" -Wl,--no-whole-archive $libs || exit 2
for model in "gpt shape=gpt2" "gpt shape=llama kv_heads=1" "ten pattern=DO" "ten pattern=O plan.recompute=layer" \
    "ten pattern=DO plan.recompute=chunk plan.chunk=20"; do
  # shellcheck disable=SC2086
  if LD_PRELOAD="$build/count.so" "$build/steps" ${model%% *} ${model#* } vocab=64 dim=32 layers=2 heads=2 train.dropout=0.1; then
    passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $model"; fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
