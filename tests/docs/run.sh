#!/usr/bin/env bash
# Runs README and the pages of docs/ and examples/ that say so (they name this script), or those given: tests/docs/run.sh [PAGE ...]
#
# A page is followed from top to bottom, in a folder that has only book.txt (our own sources, cut short) and examples/, with
# build/tenon (or $TENON) first in PATH:
#   ```sh        runs with `bash -e`; the current folder is kept from block to block
#   ```c FILE    holds one function, which replaces the one of that name in FILE, with the comment above it
#   ```c new FILE is all of FILE
#   ```diff FILE changes FILE: lines with + are added, lines with - go, others (behind a space) stand around them; blank lines part the
#                places, each of which is in FILE once
# A block that python3 runs finds the package of this checkout, with the library beside the command (PYTHON names another interpreter).
# A page ends at its first failure. The last line is "N passed, N failed" (blocks).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
tenon=$(cd "$root" && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" && ln -s "$tenon" "$work/bin/tenon"
python=${PYTHON:-/usr/bin/python3} # as tests/python takes it: the one that has numpy
[[ ! -x $python ]] || ln -s "$python" "$work/bin/python3"
export PATH=$work/bin:$PATH LC_ALL=C.UTF-8 COLUMNS=100
export PYTHONPATH=$root/python TENON_LIBRARY=$(dirname "$tenon")/libtenon.so PYTHONDONTWRITEBYTECODE=1
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS TENON TENON_INCLUDE
passed=0 failed=0

run_block() { # $1: a file of commands
    (cd "$(cat "$work/cwd")" && bash -e -c "$(cat "$1")"$'\n''pwd >"$0"' "$work/cwd") >"$work/log" 2>&1 </dev/null
}

replace_function() { # $1: the new text, $2: the file it goes into
    local file
    file=$(cat "$work/cwd")/$2
    awk '
    NR == FNR { new = new $0 "\n"; if ($0 ~ /^[a-z].*\(/ && !name) { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }; next }
    { line[++n] = $0; if (index($0, name "(") && $0 ~ /^[a-z].*\)$/) at = n }
    END {
        if (!name || !at) { print "there is no function " name "() to replace" > "/dev/stderr"; exit 1 }
        from = at; while (from > 1 && line[from - 1] != "") from--
        to = at; while (to < n && line[to] != "}") to++
        for (i = 1; i < from; i++) print line[i]
        printf "%s", new
        for (i = to + 1; i <= n; i++) print line[i]
    }' "$1" "$file" >"$work/edited" 2>"$work/log" && cp "$work/edited" "$file"
}

change_file() { # $1: the changes, $2: the file
    local file
    file=$(cat "$work/cwd")/$2
    awk '
    BEGIN { places = 0 }
    NR == FNR {
        if ($0 == "") { if (old[places] != "") places++; next }
        if (!/^[-+ ]/) { print "neither added, removed nor standing: " $0 > "/dev/stderr"; exit bad = 1 }
        text = substr($0, 2) "\n"
        if (!/^[+]/) old[places] = old[places] text
        if (!/^-/) new[places] = new[places] text
        next
    }
    { all = all $0 "\n" }
    END {
        if (bad) exit 1
        for (i = 0; i <= places; i++) {
            if (new[i] == old[i]) { print "nothing is changed" > "/dev/stderr"; exit 1 }
            at = index("\n" all, "\n" old[i])
            if (!at || index(substr(all, at), "\n" old[i])) { printf "not in the file, or twice:\n%s", old[i] > "/dev/stderr"; exit 1 }
            all = substr(all, 1, at - 1) new[i] substr(all, at + length(old[i]))
        }
        printf "%s", all
    }' "$1" "$file" >"$work/edited" 2>"$work/log" && cp "$work/edited" "$file"
}

follow() { # $1: a page
    local number=0 kind='' start=0 line
    rm -rf "$work/page" && mkdir "$work/page" && echo "$work/page" >"$work/cwd"
    ln -s "$(realpath "$root")/examples" "$work/page/examples"
    find "$root/src" -name '*.[ch]' -print0 | LC_ALL=C sort -z | xargs -0 cat 2>/dev/null | head -c 400000 >"$work/page/book.txt"
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        if [[ -z $kind ]]; then
            [[ $line == '```'* ]] || continue
            kind=${line#'```'} start=$number
            kind=${kind:-text}
            : >"$work/block"
        elif [[ $line == '```' ]]; then
            case $kind in
            sh) run_block "$work/block" ;;
            'c new '*) cp "$work/block" "$(cat "$work/cwd")/${kind#c new }" ;;
            'c '*) replace_function "$work/block" "${kind#c }" ;;
            'diff '*) change_file "$work/block" "${kind#diff }" ;;
            *) kind='' && continue ;;
            esac
            if [[ $? -ne 0 ]]; then
                failed=$((failed + 1))
                echo "FAILED $1:$start"
                sed 's/^/    /' "$work/block"
                echo '--- said' && tail -n 30 "$work/log"
                return
            fi
            passed=$((passed + 1)) kind=''
        else
            printf '%s\n' "$line" >>"$work/block"
        fi
    done <"$1"
}

[[ $# -gt 0 ]] || mapfile -t pages < <(grep -l '^<!-- tests/docs/run.sh' "$root"/README.md "$root"/docs/*.md "$root"/examples/*.md)
for page in "${@:-${pages[@]}}"; do follow "$page"; done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
