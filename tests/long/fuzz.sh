#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Every fuzz target (tests/fuzz/fuzz_NAME.c) under libFuzzer with the address and undefined-behaviour sanitizers: a minute in all, or
# RUNS=1000000 inputs each. Seeds are made by tests/fuzz/seeds.py; what is found stays in BUILD-fuzz/corpus/NAME for the next time, and an input that
# ends a target in BUILD-fuzz/found/NAME-*. One allocation may take 32 MiB (inputs have a few KiB, P6 allows 16 MiB beside them),
# one input 25 s (a packed one may unpack to 64 MiB). `fuzz.sh NAME ...` runs only those. Ends with "N passed, N failed"; each target is one test.
set -u
cd "$(dirname "$0")/../.." || exit 2
plain=${BUILD:-build} build=${BUILD:-build}-fuzz runs=${RUNS:-} passed=0 failed=0
san=fuzzer-no-link,address,undefined
command -v clang >/dev/null || { echo "clang is missing: make deps"; exit 2; }
mkdir -p "$build/corpus" "$build/found" || exit 2
# What reads files is compiled for it; the rest (kernels are most of the library, three times over) is taken from the library as it is.
[ -e "$plain/libtenon.a" ] || make -j"$(nproc)" BUILD="$plain" "$plain/libtenon.a" >"$build/found/make.log" 2>&1
readers=$(find src/base src/tensor src/io src/token src/data src/tasks src/train src/lab -name '*.c' ! -name '*_test.c' ! -name '*_cuda.c' -exec grep -L TN_LEVELED {} + |
    sed "s|\(.*\)\.c$|$build/obj/\1.o|")
# shellcheck disable=SC2086
make -j"$(nproc)" CC=clang CUDA=0 BUILD="$build" CFLAGS="-O1 -g1" SAN="-fsanitize=$san -fno-sanitize-recover=undefined" $readers >"$build/found/make.log" 2>&1 ||
    { tail -n 20 "$build/found/make.log"; exit 1; }
# shellcheck disable=SC2086
rm -f "$build/readers.a" && ar rcs "$build/readers.a" $readers || exit 1
read -ra libs <<<"$(pkg-config --cflags --libs yaml-0.1 jansson libxxhash zlib libzstd libpcre2-8 sqlite3)"
python3 tests/fuzz/seeds.py "$build/corpus" || exit 1
names=("$@")
[ $# -gt 0 ] || for f in tests/fuzz/fuzz_*.c; do f=${f##*/fuzz_} names+=("${f%.c}"); done
seconds=$((60 / ${#names[@]}))
export UBSAN_OPTIONS=print_stacktrace=1
for name in "${names[@]}"; do
    most=32 # MiB of one allocation; windows of packed files may take 128
    [[ " arrays jsonl tsv " != *" $name "* ]] || most=160
    limit=(-max_total_time="$seconds" -malloc_limit_mb="$most")
    [ -z "$runs" ] || limit=(-runs="$runs" -malloc_limit_mb="$most")
    [ ! -f "tests/fuzz/$name.dict" ] || limit+=(-dict="tests/fuzz/$name.dict")
    log=$build/found/$name.log
    if clang -std=gnu11 -g1 -O1 -Wall -Wextra -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Iinclude -I"$build/include" -Isrc \
        "tests/fuzz/fuzz_$name.c" "$build/readers.a" "$plain/libtenon.a" "${libs[@]}" -lm -lpthread -ldl -o "$build/fuzz_$name" >"$log" 2>&1 &&
        "$build/fuzz_$name" "${limit[@]}" -timeout=25 -rss_limit_mb=1024 -print_final_stats=1 -verbosity=1 \
            -artifact_prefix="$build/found/$name-" "$build/corpus/$name" >>"$log" 2>&1; then
        passed=$((passed + 1))
        printf '%-16s %s inputs\n' "$name" "$(sed -n 's/stat::number_of_executed_units: *//p' "$log")"
    else
        failed=$((failed + 1))
        echo "FAILED: $name: $log"
        grep -aE 'ERROR|error:|SUMMARY|Test unit written|#[0-9]+ 0x.*(src|tests)/' "$log" | head -n 12 | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
