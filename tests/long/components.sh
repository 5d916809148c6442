#!/usr/bin/env bash
# Where the time of a step goes, as `tenon report --json` says it, for the three families on the CPU: components add up to the step as training
# runs it, next to nothing is left over, and no row does more than the machine can. A case that a neighbour disturbed is measured again.
# Ends with "N passed, N failed". About 10 seconds.
set -u
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cat "$here"/../../docs/*.md >"$work/text.txt" && cd "$work" || exit 2
passed=0 failed=0

adds_up() { # NAME SETTINGS...: "ok" where all holds, else what does not
    "$tenon" report "$@" --no-advice --seconds=1 --json 2>error.txt | python3 "$here/components.py" || tail -1 error.txt
}

case_of() { # NAME SETTINGS...
    local try said
    for try in 1 2 3 4 5 6 7 8; do
        said=$(adds_up "$@")
        echo "$1: $said (try $try)"
        [[ $said == ok* ]] && { passed=$((passed + 1)); return; }
    done
    failed=$((failed + 1))
    echo "FAILED $1"
}

text='data=text.txt dim=128 layers=2 heads=2 train.context=128 train.batch=8 compute=f32'
# shellcheck disable=SC2086
case_of ten $text
# shellcheck disable=SC2086
case_of gpt $text
case_of tep task=parity dim=64 train.batch=64 iterations=30 rtol=1e-3 compute=f32
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
