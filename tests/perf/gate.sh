#!/usr/bin/env bash
# Counts the instructions of hot kernels and of tiny training steps under callgrind and compares them with counts.txt:
# tests/perf/gate.sh [--record | --compare MEASURED COUNTS]
# More than 3 % above the recorded count fails; less is said and passes; a machine or compiler without a record passes
# and prints the lines to add. --record writes the lines of this machine and compiler into counts.txt. Counts are of a
# default build (BUILD names its folder); they do not depend on the load of the machine. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build} cc=${CC:-gcc} file=tests/perf/counts.txt
runs=2 # of a kernel: the second one shows what a warm-up of one run may hide

# A line of either file: ARCH COMPILER MICRO-KERNEL NAME INSTRUCTIONS
compare() { # $1: measured lines, $2: recorded lines
    awk -v tolerance=3 '
    FNR == NR { if ($0 !~ /^#/ && NF == 5) recorded[$1, $2, $3, $4] = $5; next }
    $5 == "unsupported" { printf "skip   %-12s valgrind does not know an instruction of this machine\n", $4; passed++; next }
    $5 !~ /^[0-9]+$/ { printf "FAILED %-12s could not be counted: %s\n", $4, $5; failed++; next }
    !(($1, $2, $3, $4) in recorded) { printf "new    %-12s no record; the line to add: %s\n", $4, $0; passed++; next }
    {
        was = recorded[$1, $2, $3, $4]; change = 100 * ($5 - was) / was
        verdict = change > tolerance ? "FAILED" : change < -tolerance ? "less" : "ok"
        printf "%-6s %-12s %12d instructions, recorded %12d: %+.2f %%%s\n", verdict, $4, $5, was, change,
            verdict == "ok" ? "" : " (if it is meant: tests/perf/gate.sh --record)"
        if (verdict == "FAILED") failed++; else passed++
    }
    END { printf "%d passed, %d failed\n", passed, failed; exit failed > 0 }' "$2" "$1"
}

record() { # $1: measured lines; replaces those of the same machine and compiler, keeps the rest
    awk 'FNR == NR { mine[$1, $2, $3] = 1; next } /^#/ || !(($1, $2, $3) in mine)' "$1" "$file" >"$file.new" &&
        grep '[0-9]$' "$1" >>"$file.new" && mv "$file.new" "$file"
}

compiler() { # gcc-12.2.0, clang-14.0.6
    local kind=gcc
    ! "$cc" --version | grep -qi clang || kind=clang
    echo "$kind-$("$cc" -dumpfullversion -dumpversion | head -n 1)"
}

measure() { # $1: a case; prints its line
    local log=$build/perf-$1.log kernel n
    kernel=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect=tn_perf_measured \
        "$build/kernels" "$1" "$runs" 2>"$log") || kernel=
    n=$(sed -n 's/.*Collected : *\([0-9][0-9]*\).*/\1/p' "$log")
    if grep -qiE 'SIGILL|unhandled instruction' "$log"; then
        n=unsupported
    elif [ -z "$kernel" ] || [ "${n:-0}" = 0 ]; then
        n=failed
        tail -n 5 "$log" >&2
    fi
    echo "$(uname -m) $id $(tr ' ' _ <<<"${kernel:-none}") $1 $n"
}

case ${1:-} in
--compare) [ $# = 3 ] || { echo "gate.sh --compare MEASURED COUNTS" >&2; exit 2; }
    compare "$2" "$3"; exit ;;
'' | --record) ;;
*) echo "gate.sh: '$1' is neither --record nor --compare" >&2; exit 2 ;;
esac
command -v valgrind >/dev/null || { echo "valgrind is missing: scripts/install-deps test" >&2; exit 2; }
# Without debug information (-Wl,-S): valgrind stops at what newer compilers write there, and needs the symbols alone.
# shellcheck disable=SC2046
"$cc" -std=gnu11 -O1 -Iinclude -I"$build/include" -Isrc -o "$build/kernels" tests/perf/kernels.c -Wl,-S,--whole-archive \
    "$build/libtenon.a" -Wl,--no-whole-archive $(sed -n 's/^libs //p' "$build/options") || exit 2
id=$(compiler)
export build id runs
export -f measure
"$build/kernels" | xargs -P "$(nproc)" -I NAME bash -c 'measure NAME' | LC_ALL=C sort >"$build/perf-counts.txt"
[ -z "${1:-}" ] || record "$build/perf-counts.txt" || exit 2
compare "$build/perf-counts.txt" "$file"
