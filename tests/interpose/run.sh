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
try() { # steps, model and settings
  if LD_PRELOAD="$build/count.so" "$build/steps" "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $*"; fi
}

for model in "gpt shape=gpt2" "gpt shape=llama kv_heads=1" "ten pattern=DO" "ten pattern=O plan.recompute=layer" \
    "ten pattern=DO plan.recompute=chunk plan.chunk=20"; do
  # shellcheck disable=SC2086
  try 10 ${model%% *} ${model#* } vocab=64 dim=32 layers=2 heads=2 train.dropout=0.1
done
# Flows that are spawned, refused, and leave at other steps each time.
lattice="dim=16 layers=1 depth=12 noise=0.1 noise_z=true noise_over=0 drift=0.8 spawn=2 rho=0.25 s_min=2 patience=2"
# shellcheck disable=SC2086
{
  try 1000 flow inputs=36 tokens=1 $lattice field=2 keep=2 train.steps=1000
  try 10 flow inputs=36 tokens=1 $lattice mapper_in=trained mapper_out=trained
  try 10 bridge vocab=64 text=8 width=8 height=6 prefix=6 dim=16 heads=2 ffn=16 decoder.dim=16 decoder.heads=2 flow.dim=16 flow.field=2 train.dropout=0.1
}
# A trace has its memory before the first step.
TRACED=1 try 10 gpt vocab=64 dim=32 layers=2 heads=2
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
