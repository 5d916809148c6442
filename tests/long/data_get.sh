#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Data sets through the real clients: one from Debian and one from PyPI are fetched and trained on. Without a network they are skipped, which
# fails under TENON_REQUIRE_DATA=1. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon work=$build/long/data_get
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 2

fetched() { # $1: a data set
    if timeout 300 "$tenon" data get "$1" >"$1.log" 2>&1; then
        passed=$((passed + 1))
        return 0
    fi
    tail -n 2 "$1.log"
    if [ "${TENON_REQUIRE_DATA:-0}" = 1 ]; then failed=$((failed + 1)); else echo "skipped: $1 could not be fetched"; fi
    return 1
}
check() { # $1: what it tests, then a command
    local what=$1
    shift
    if "$@" >check.log 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $what"; tail -n 5 check.log; fi
}

if fetched digits; then
    check 'digits are those of scikit-learn' bash -c '[ "$(wc -l <data/digits/digits.csv)" = 1797 ] && [ "$(ls -A data)" = digits ]'
    check 'digits train' "$tenon" train digits_tep task.data=data/digits train.epochs=2 run=digits
fi
if fetched cmudict; then
    check 'words train' "$tenon" train ten_tiny data=data/cmudict/cmudict.txt train.steps=20 run=words
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
