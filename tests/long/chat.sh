#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# `tenon chat` at a terminal: a prompt is shown; Ctrl-C stops an answer, at the prompt it clears the line, and twice it ends the talk, as Ctrl-D
# and /quit do; none is an error.
# Needs pseudo-terminals (script of util-linux), which a bare machine may lack. Ends with "N passed, N failed".
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
tenon=$(realpath "${BUILD:-build}/tenon") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; cat -v said 2>/dev/null | head -5; fi
}
seq 1 3000 >t.txt
"$tenon" train ten data=t.txt run=ten dim=16 layers=1 heads=2 train.context=16 train.batch=2 train.steps=2 threads=1 >log 2>&1 || { cat log; exit 1; }

printf 'one\n' | script -qec "exec $tenon chat ten template=none max_tokens=3 temperature=0 2>&1" /dev/null | tr -d '\r' >said
check 'how to end it is said' grep -qa '^type a text and Enter; Ctrl-C stops an answer, Ctrl-D ends' said
check 'a prompt before each text' [ "$(grep -ac '^> ' said)" = 2 ]

# Ctrl-C at the prompt, behind letters that were not sent, then a line, then Ctrl-C twice.
interrupted() {
    local first code
    coproc script -qec "exec $tenon chat ten template=none max_tokens=3 temperature=0 --json 2>&1" /dev/null
    local in=${COPROC[1]} out=${COPROC[0]} pid=$COPROC_PID
    read -r -d '>' first <&"$out"
    printf 'never sent\003' >&"$in"
    for text in 'one\n' '\003' '\003'; do
        read -r -d '>' first <&"$out"
        printf '%s\n' "$first" >>heard
        printf '%b' "$text" >&"$in"
    done
    tr -d '\r' <&"$out" >said
    wait "$pid"
    code=$?
    cat heard >>said
    [ $code = 0 ] && ! grep -qa error said
}
check 'Ctrl-C at the prompt' interrupted
check 'how to leave is said once for each' [ "$(grep -ac 'to leave: Ctrl-D, /quit, or Ctrl-C again' said)" = 2 ]
check 'the line was cleared' grep -qa '"prompt":"one"' said

writes() { # $1: script's process. Until the talk waits for room to write: nobody reads the terminal
    local chat state times=0 seen=0
    chat=$(pgrep -P "$1") || return 1
    while [ $seen -lt 5 ] && [ $times -lt 600 ]; do
        read -r _ _ state _ <"/proc/$chat/stat" || return 1
        [ "$state" = S ] && seen=$((seen + 1)) || seen=0
        times=$((times + 1))
        sleep 0.05
    done
    [ $seen = 5 ] || { echo "the answer never filled the terminal's buffer"; return 1; }
}
stopped() { # $1: at_once, or full: with the terminal's buffer full. Ctrl-C in an answer: the next prompt comes, and /quit ends the talk
    local first line code
    coproc script -qec "exec $tenon chat ten template=none max_tokens=100000000 temperature=0 2>&1" /dev/null
    local in=${COPROC[1]} out=${COPROC[0]} pid=$COPROC_PID
    read -r -d '>' first <&"$out"
    read -r -d ' ' first <&"$out" # the prompt's own blank
    printf 'one\n' >&"$in"
    read -r line <&"$out"
    read -r -n 1 line <&"$out" # of the answer: before it Ctrl-C would be at the prompt
    [ "$1" = at_once ] || writes "$pid" || return 1
    printf '\003' >&"$in"
    read -r -d '>' first <&"$out"
    rm -f heard
    for text in /help /exit /clear; do
        printf '%s\n' "$text" >&"$in"
        read -r -d '>' first <&"$out" # each behind its prompt: an echo would fall into what is written
        printf '%s\n' "$first" | tr -d '\r' >>heard
    done
    printf '/quit\n' >&"$in"
    tr -d '\r' <&"$out" >rest
    wait "$pid"
    code=$?
    cat heard rest >said
    [ $code = 0 ] && ! grep -qa error said && grep -qa '^ \?/clear  forget what was said' said
}
check 'Ctrl-C in an answer that waits for the terminal' stopped full
check 'Ctrl-C in an answer, then /help and /quit' stopped at_once
check 'nothing of the answer that was stopped comes later' [ -z "$(tail -n 1 said | tr -d '> ')" ]
check 'a word that is none of them is no message' grep -qa '/exit is unknown: /help' said
terminated() { # SIGTERM ends a talk that waits for a pipe
    local pid code
    mkfifo lines
    sleep 30 >lines &
    local writer=$!
    $tenon chat ten template=none max_tokens=5 <lines >/dev/null 2>terminated.log &
    pid=$!
    sleep 2
    kill -TERM "$pid"
    wait "$pid"
    code=$?
    kill "$writer" 2>/dev/null
    rm -f lines
    [ $code = 130 ] && grep -q interrupted terminated.log
}
check 'SIGTERM ends a talk that waits for a pipe' terminated
echo "$passed passed, $failed failed"
[ $failed = 0 ]
