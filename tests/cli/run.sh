#!/usr/bin/env bash
# Golden tests of the command: runs every tests/cli/*.case (or those named) against BUILD/tenon (or $TENON).
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

for file in "${@:-"$here"/*.case}"; do
    for case_file in $file; do
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
    done
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
