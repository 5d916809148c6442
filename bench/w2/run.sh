#!/usr/bin/env bash
# The workload of the TEP report beside the report's own figures: bench/w2/run.sh [--only=full|early|faithful] task.data=FILE [dim=N] [key=value ...]
# Needs the digits (8x8) as CSV, packed or not; one thread unless threads=N says otherwise.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
make -C "$root" -j"$(nproc)" BUILD="$build" "$build/libtenon.a" >&2
libs=$(sed -n 's/^libs //p' "$root/$build/options")
(cd "$root" && ${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Iinclude -I"$build/include" -Isrc -o "$build/w2" bench/w2/w2.c "$build/libtenon.a" $libs -lm -lpthread -ldl)
exec "$root/$build/w2" "$@"
