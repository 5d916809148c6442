#!/usr/bin/env bash
# Tenon's matrix product against BLIS, alternating: bench/peers/gemm_blis.sh [THREADS ...]   (default: 1 2)
# Needs Debian's libblis-dev. Prints Markdown tables; exits with 1 if the two products differ.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
include=$(dirname "$(find /usr/include -path '*blis*/cblas.h' | head -1)")
[ -f "$include/cblas.h" ] || { echo "gemm_blis.sh: BLIS is missing: apt-get install libblis-dev" >&2; exit 2; }
make -C "$root" -j"$(nproc)" BUILD="$build" "$build/libtenon.a" >&2
cd "$root"
${CC:-gcc} -std=gnu11 -O2 -I"$include" -Iinclude -I"$build/include" -Isrc -o "$build/gemm_blis" bench/peers/gemm_blis.c "$build/libtenon.a" \
    -lblis $(pkg-config --libs yaml-0.1 jansson libxxhash) -lm -lpthread -ldl
for threads in ${*:-1 2}; do "$build/gemm_blis" "$threads"; done
