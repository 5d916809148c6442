#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# What hostile files cost (SECURITY.md, P6): each command of bounds.py may hold, beside what it holds on a tiny file of the same
# format, at most twice the file and 16 MiB. Its exit code, its one line of error and its time (60 s) count too.
# bounds.sh [BYTES]: the size of a large file (24,000,000). Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
tenon=$(realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
here=$PWD/tests/long passed=0 failed=0
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -O1 -Wall -Wextra -Werror -o "$work/peak" "$here/peak.c" || exit 2
python3 "$here/bounds.py" "$work/files" "${1:-24000000}" >"$work/rows" || exit 2
cd "$work/files" || exit 2

"$tenon" train ten dim=8 layers=1 train.context=8 train.batch=1 train.steps=1 threads=1 data=text.txt run=model >"$work/out" 2>&1 || { cat "$work/out"; exit 2; }
for name in tiny zeros; do "$tenon" ckpt convert $name.safetensors $name.safetensors.zst >"$work/out" 2>&1 || { cat "$work/out"; exit 2; }; done

peak() { # $1: the command's words; sets rc and kib
    rm -rf r0 p0 c0 n0 d0 # what a tiny file was made into before
    # shellcheck disable=SC2086
    timeout 60 "$work/peak" "$work/said" "$tenon" $1 >"$work/out" 2>"$work/err" </dev/null || { rc=124 kib=0; return; }
    read -r rc kib <"$work/said"
}

while IFS='|' read -r name code file command tiny; do
    peak "$tiny"
    base=$kib
    peak "$command"
    bytes=$(stat -c %s "$file") over=$((kib - base)) allowed=$((2 * bytes / 1024 + 16384)) wrong=''
    [ "$rc" = "$code" ] || wrong+=" exit code $rc instead of $code;"
    [ "$over" -le "$allowed" ] || wrong+=" $over KiB more than on a tiny file, $allowed allowed;"
    [ "$rc" = 0 ] || [ "$(grep -c '^error: ' "$work/err")" = 1 ] || wrong+=" not one line of error;"
    printf '%-34s %9d KiB file %9d KiB held %9d KiB allowed\n' "$name" $((bytes / 1024)) "$over" "$allowed"
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s:%s\n    tenon %s\n' "$name" "$wrong" "$command"
        tail -n 3 "$work/err" | cut -c1-300 | sed 's/^/    /'
    fi
done <"$work/rows"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
