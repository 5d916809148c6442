#!/usr/bin/env bash
# Golden tests of the command: runs every tests/cli/*.case (or those named) against BUILD/tenon (or $TENON), two files at a time: a file
# depends on no other.
#
# A case file is a list of cases, run in order in one empty folder; `#` lines are comments:
#   $ COMMAND        a bash line; tenon is first in PATH, $ROOT is the repository
#   exit N           its exit code (0 where not said)
#   out TEXT         some line of standard output is exactly TEXT     out~ REGEX   some line matches (grep -E)
#   err TEXT         the same for standard error                      err~ REGEX
#   out! / err!      nothing was written there
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- "$here"/*.case
if [ $# -gt 1 ]; then # large files first, so that no long one is left for the end
    export TENON=$tenon
    ls -S "$@" | xargs -P 2 -I{} bash -c '"$0" "$1" >"$2/$(basename "$1")" 2>&1' "$here/run.sh" {} "$work"
    cat "$work"/*.case
    awk -v files=$# '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; n++ }
        END { f += files - n; printf "%d passed, %d failed\n", p, f; exit f > 0 || p == 0 }' "$work"/*.case
    exit
fi
mkdir "$work/bin" && ln -s "$tenon" "$work/bin/tenon"
export PATH=$work/bin:$PATH LC_ALL=C.UTF-8 COLUMNS=80
ROOT=$(realpath "$here/../..")
export ROOT
# A line that is one flat JSON object: `! grep -vE "$JSON_LINE"` finds the ones that are not.
value='("([^"\\]|\\["\\/bfnrtu])*"|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null)'
export JSON_LINE="^\{\"[a-z_]+\":$value(,\"[a-z_]+\":$value)*\}\$"
unset NO_COLOR TENON TENON_INCLUDE CFLAGS MAKEFLAGS MFLAGS MAKELEVEL
passed=0 failed=0 title='' wrong='' got=0 want=0

# Closes the case that is open: its exit code is known to be wanted only now.
finish() {
    [[ -z $title ]] && return
    [[ $got -eq $want ]] || wrong+="  exit code $got instead of $want"$'\n'
    if [[ -z $wrong ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n%s' "$title" "$wrong"
        printf -- '--- stdout\n%s\n--- stderr\n%s\n' "$(head -c 2000 "$work/out")" "$(head -c 2000 "$work/err")"
    fi
    title='' wrong='' want=0
}

check() { # check KIND FILE TEXT
    case $1 in
    '') grep -qxF -e "$3" "$2" || wrong+="  no line is: $3"$'\n' ;;
    '~') grep -qE -e "$3" "$2" || wrong+="  no line matches: $3"$'\n' ;;
    '!') [[ ! -s $2 ]] || wrong+="  ${2##*/} is not empty"$'\n' ;;
    esac
}

case_file=$1
number=0
mkdir -p "$work/$(basename "$case_file")"
while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    case $line in
    '$ '*)
        finish
        title="$(basename "$case_file"):$number: ${line#'$ '}"
        (cd "$work/$(basename "$case_file")" && bash -c "${line#'$ '}") >"$work/out" 2>"$work/err" </dev/null
        got=$?
        ;;
    'exit '*) want=${line#exit } ;;
    'out '*) check '' "$work/out" "${line#out }" ;;
    'err '*) check '' "$work/err" "${line#err }" ;;
    'out~ '*) check '~' "$work/out" "${line#out~ }" ;;
    'err~ '*) check '~' "$work/err" "${line#err~ }" ;;
    'out!') check '!' "$work/out" '' ;;
    'err!') check '!' "$work/err" '' ;;
    '' | '#'*) ;;
    *)
        echo "$case_file:$number: not understood: $line"
        exit 2
        ;;
    esac
done <"$case_file"
finish
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
