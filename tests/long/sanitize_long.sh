#!/usr/bin/env bash
# The thread pool, loops and training under ThreadSanitizer: the library built for it in BUILD-tsan, with the tests that share memory with
# other threads themselves, or do less under sanitizers; the others are those of BUILD. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
own='optest.c pool_test.c loop_test.c loader%_test.c prefetch_test.c lanes_test.c shared_test.c prepare%_test.c gemm%_test.c'
plain=${BUILD:-build} build=${BUILD:-build}-tsan
make -j"$(nproc)" CC="${CC:-gcc}" BUILD="$plain" WERROR=1 "$plain/unit" &&
    make -j"$(nproc)" CC="${CC:-gcc}" BUILD="$build" TESTBUILD="$plain" TESTOWN="$own" WERROR=1 CFLAGS="-O1 -g1" SAN=-fsanitize=thread "$build/unit" || exit 2
# Some kernels place memory further apart than ThreadSanitizer can shadow: without that, where it can be had.
apart=()
setarch "$(uname -m)" -R true 2>/dev/null && apart=(setarch "$(uname -m)" -R)
checked() { TSAN_OPTIONS=halt_on_error=0:exitcode=66 "${apart[@]}" "$build/unit" "$@"; }
declare -F in_parts >/dev/null || in_parts() { "$@"; } # by run-tests: as many parts at once as there are cores
in_parts checked pool loop: overfit twins: "1 thread = 2 threads" "families: trials" "lab/lanes" "shared:" decode equilibrium \
    gemm: fill: scatter_rows: loader: "prepare: any number"
