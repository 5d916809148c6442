#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Faults in every file call of `tenon data prepare`: strace lets the n-th open, write, fsync, rename, mkdir or close fail, or
# kills the process there; each with no data set in its place and over an older one. Demanded:
#   - an error ends with exit code 6 (3 where inputs are read) and one line "error: ..."; 0 where a failure can hurt nobody;
#   - the data set is absent, the old one, or the new one, whole: byte for byte; after an error no temporary stays;
#   - after a kill, the same command runs through, leaves the new data set and removes what was left over.
# Ends with "N passed, N failed"; each fault is one test.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon work=$build/long/data_faults
command -v strace >/dev/null || { echo "strace is missing: make deps"; exit 2; }
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 2
for i in $(seq 1 60); do printf '{"text":"story %d of a cat and a mat and a hat"}\n' "$i"; done >in.jsonl
prepare() { "$tenon" data prepare ../in.jsonl out=d threads=1 "$@"; }
command_line=("$tenon" data prepare ../in.jsonl out=d threads=1 tokenizer=train:300)
calls='openat|write|pwrite64|fsync|rename|renameat2|mkdir|mkdirat|close'

sum_of() { (cd "$1" 2>/dev/null && cat ./* | cksum) || echo none; }

fresh_place() { # $1: old or empty
    cd "$work" && rm -rf place && mkdir place && cd place || exit 2
    [ -z "$1" ] || cp -r "$work/old" d
}

say_failed() {
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    tail -n 2 stderr | sed 's/^/    /'
}

state_ok() { # $1: old or empty
    local now
    now=$(sum_of d)
    [ "$now" = "$new" ] || { [ -n "$1" ] && [ "$now" = "$old" ]; } || { [ -z "$1" ] && [ ! -e d ]; }
}

fault() { # $1: old or empty, $2: call, $3: ordinal, $4: errno or KILL
    local rc what="$2 no. $3, $4${1:+, over an old data set}" inject=error=$4
    fresh_place "$1"
    [ "$4" != KILL ] || inject=signal=KILL
    (strace -f -o trace -e trace="$2" -e inject="$2:$inject:when=$3" "${command_line[@]}" >stdout 2>stderr; exit $?) 2>/dev/null
    rc=$?
    [ "$4" = KILL ] || grep -q INJECTED trace || return 0 # fewer calls than expected
    state_ok "$1" || { say_failed "$what" "the data set is neither absent nor whole"; return; }
    if [ "$4" = KILL ]; then
        "${command_line[@]}" >stdout 2>stderr || { say_failed "$what" "the next run fails"; return; }
        [ "$(sum_of d)" = "$new" ] || { say_failed "$what" "the next run makes another data set"; return; }
    else
        case $rc in
        0) [ "$(sum_of d)" = "$new" ] || { say_failed "$what" "exit code 0 without the new data set"; return; }
            "${command_line[@]}" >stdout 2>stderr || { say_failed "$what" "the next run fails"; return; } ;; # may have the old one to remove
        3 | 6) [ "$(grep -c '^error: ' stderr)" = 1 ] || { say_failed "$what" "no error line"; return; } ;;
        *) say_failed "$what" "exit code $rc"; return ;;
        esac
    fi
    ! compgen -G '.tmp-*' >/dev/null || { say_failed "$what" "a temporary stays"; return; }
    passed=$((passed + 1))
}

fresh_place '' && prepare seed=9 >stdout 2>stderr && cp -r d "$work/old" && old=$(sum_of d) || exit 2
fresh_place '' && strace -f -o "$work/trace" -e trace="/^($calls)\$" "${command_line[@]}" >stdout 2>stderr || exit 2
new=$(sum_of d)
[ "$new" != "$old" ] && [ "$new" != none ] || exit 2

# Calls from the opening of the input on: "name ordinal".
awk '{ sub(/^[0-9]+ +/, ""); if (!match($0, /^[a-z0-9_]+\(/)) next; name = substr($0, 1, RLENGTH - 1); n[name]++
       if ($0 ~ /in\.jsonl/) on = 1; if (on) print name, n[name] }' "$work/trace" >"$work/sites"
while read -r name ordinal; do
    for place in '' old; do
        fault "$place" "$name" "$ordinal" "$([ "$name" = openat ] && echo EMFILE || echo ENOSPC)"
        fault "$place" "$name" "$ordinal" KILL
    done
done <"$work/sites"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 50 ]
