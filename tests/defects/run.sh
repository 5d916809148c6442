#!/usr/bin/env bash
# Tests of tests: each defect of tests/defects/*.txt is put into a copy of the sources, and every test named there must fail on it, as all
# pass without it. By hand: a minute to build, then half a minute for each defect.
#
#     tests/defects/run.sh [NAME ...]     all, or those whose names begin so: D14
#
# A table is blocks of lines: "defect NAME what", one or more "test FILTER" of build/unit, "file PATH", then "- text" that is in PATH once,
# and "+ text" for it. Ends with "N passed, N failed".
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

cp -a "$root"/{Makefile,VERSION,include,scripts,src,tests,examples} "$work" || exit 2
[ ! -d "$root/../shared" ] || export TENON_DATA=${TENON_DATA:-$root/../shared/data}
cd "$work" || exit 2
build() { make -j"$(nproc)" build/unit >log 2>&1; }
build || { tail -20 log; exit 2; }

# put FILE OLD NEW: 1 where OLD is not in it once
put() {
    awk -v file="$1" 'BEGIN {
        old = ENVIRON["OLD"]; new = ENVIRON["NEW"]; RS = "\001"
        getline text < file
        at = index(text, old)
        if (!at || index(substr(text, at + 1), old)) exit 1
        printf "%s", substr(text, 1, at - 1) new substr(text, at + length(old))
    }' >changed && cat changed >"$1"
}

wanted() { # wanted NAME
    local x
    [ ${#names[@]} -gt 0 ] || return 0
    for x in "${names[@]}"; do [[ $1 != "$x"* ]] || return 0; done
    return 1
}

bad() { failed=$((failed + 1)); echo "FAILED $1: $2"; }

try() { # the defect in name, what, tests, file, old, new
    local t
    wanted "$name" || return
    cp -p "$file" kept
    if ! OLD=$old NEW=$new put "$file"; then bad "$name" "its text is not in $file once"
    elif ! build; then bad "$name" "does not compile"; grep -m3 error log
    else
        for t in "${tests[@]}"; do
            if timeout 300 build/unit "$t" >log 2>&1; then bad "$name ($what)" "passes \"$t\""
            elif ! grep -q '^\[  FAILED  \]' log; then bad "$name" "\"$t\" ended without a failed test"
            else passed=$((passed + 1)); echo "$name: $what: \"$t\" fails, $(grep -c '^\[  FAILED  \] [^0-9]' log) lines"; fi
        done
    fi
    cat kept >"$file"
}

names=("$@")
for table in "$here"/*.txt; do
    name='' tests=()
    while IFS= read -r line; do
        case $line in
        defect\ *) line=${line#defect }; name=${line%% *} what=${line#* } tests=() ;;
        test\ *) tests+=("${line#test }") ;;
        file\ *) file=${line#file } ;;
        -\ *) old=${line#- } ;;
        +\ *) new=${line#+ }; try ;;
        esac
    done <"$table"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
