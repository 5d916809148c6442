#!/usr/bin/env bash
# Tests of tests: each defect of tests/defects/*.txt is put into a copy of the sources, and every test named there must fail on it, as all
# pass without it. By hand: a minute to build, then half a minute for each defect.
#
#     tests/defects/run.sh [NAME ...]     all, or those whose names begin so: D14
#
# A table is blocks of lines: "defect NAME what", one or more "test FILTER" of build/unit or "golden FILE" of tests/golden, "file PATH", then
# "- text" that is in PATH once, and "+ text" for it, as often as it takes. Ends with "N passed, N failed".
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

cp -a "$root"/{Makefile,VERSION,include,scripts,src,tests,examples} "$work" || exit 2
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

# Whether the test "filter FILTER" or "golden FILE" fails as a test does, not as a crash.
noticed() { # noticed KIND WHAT
    if [ "$1" = golden ]; then
        make -j"$(nproc)" build/tenon >log 2>&1 || return 1
        timeout 300 build/tenon check --against="tests/golden/$2" >log 2>&1
        [ $? = 4 ]
    else ! timeout 300 build/unit "$2" >log 2>&1 && grep -q '^\[  FAILED  \]' log; fi
}

try() { # the defect in name, what, tests, file, old, new
    local i
    [ -n "$name" ] && wanted "$name" || return 0
    cp -p "$file" kept
    for i in "${!old[@]}"; do
        OLD=${old[i]} NEW=${new[i]} put "$file" && continue
        bad "$name" "not once in $file: ${old[i]}"
        cat kept >"$file"
        return
    done
    if ! build; then bad "$name" "does not compile" && grep -m3 error log
    else
        for i in "${tests[@]}"; do
            if noticed "${i%% *}" "${i#* }"; then passed=$((passed + 1)) && echo "$name: $what: noticed by \"${i#* }\""
            else bad "$name" "$what: not noticed by \"${i#* }\""; fi
        done
    fi
    cat kept >"$file"
}

names=("$@")
for table in "$here"/*.txt; do
    name=
    while IFS= read -r line; do
        case $line in
        defect\ *) try; line=${line#defect }; name=${line%% *} what=${line#* } tests=() old=() new=() ;;
        test\ *) tests+=("filter ${line#test }") ;;
        golden\ *) tests+=("$line") ;;
        file\ *) file=${line#file } ;;
        -\ *) old+=("${line#- }") ;;
        +\ *) new+=("${line#+ }") ;;
        esac
    done <"$table"
    try
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
