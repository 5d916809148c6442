#!/usr/bin/env bash
# `tenon report --recorded` of a run with a million lines of metrics and a checkpoint of 200 MB: at most 2 s of processor time and 64 MB,
# as text, as a page and as JSON; the curve has its extremes, and the page at most 1 MB. Ends with "N passed, N failed". Ten seconds.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -O1 -Wall -Wextra -Werror -o "$work/peak" "$here/peak.c" || exit 2
cd "$work" || exit 2
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}

yes 'one two three four five six seven' | head -c 4000 >text.txt
"$tenon" train gpt data=text.txt dim=512 layers=5 heads=8 train.context=16 train.batch=1 train.steps=1 train.eval_batches=1 run=r >log 2>&1 || tail -3 log
awk 'BEGIN {
    for (i = 1; i <= 1000000; i++) {
        printf "{\"step\":%d,\"loss\":%.4f", i, 2 + 8 / (1 + i / 1000)
        if (i % 100 == 0) printf ",\"heldout\":%.4f,\"bits_per_byte\":%.4f", i == 777700 ? 1.25 : 2.1 + 8 / (1 + i / 1000), i == 777700 ? 0.625 : 3
        printf ",\"lr\":0.00069314,\"grad_norm\":0.5418727397918701,\"tokens_per_s\":51234.56,\"utilisation\":0.21,\"memory_mb\":231.7,"
        printf "\"stall_s\":%.3f,\"stall_frac\":0.125,\"step_ms\":12.5,\"seconds\":%.2f}\n", i / 800, i / 80
    }
}' >r/metrics.jsonl
cp -rl r hurt && rm hurt/metrics.jsonl hurt/config.yaml && cp r/config.yaml hurt # tensors are links
sed '500000s/.*/NaN/; 900000s/.*/{"step":9/' r/metrics.jsonl >hurt/metrics.jsonl && printf '{"step":1000001,"lo' >>hurt/metrics.jsonl

within() { # WORDS...: of the report; 64 MB, and 2 s of this process and what it waits for
    local rc kib used TIMEFORMAT='%U %S'
    used=$({ time "$work/peak" said "$tenon" report "$@" >out 2>err; } 2>&1)
    read -r rc kib <said
    echo "report $*: $used s, $kib KiB"
    [ "$rc" = 0 ] && [ "$kib" -le $((64 << 10)) ] && awk -v t="$used" 'BEGIN { split(t, x, " "); exit x[1] + x[2] > 2 }'
}
check 'checkpoints that do not fit' [ "$(du -sm r/step-1 | cut -f1)" -gt 128 ]
check 'text' within r --recorded
check 'the number at the end' grep -q '^| time of a step, ms | 12.5 |$' out
check 'the best among all evaluations' grep -q '^| held-out loss, best, bits per byte | 0.625 |$' out
check 'a page' within r --recorded --html=page.html
check 'its size' [ "$(stat -c %s page.html)" -le 1000000 ]
check 'JSON' within r --recorded --json
check 'damaged lines' within hurt --recorded --html=hurt.html
check 'two runs' within r hurt --recorded --html=two.html
rm text.txt
check 'without the data, by itself' within r --html=gone.html
check 'which is said' grep -q 'nothing could be measured: .*text\.txt' out
echo 'quantum: 7' >>hurt/config.yaml
check 'settings of another version' within hurt
check 'which are named' grep -q 'nothing could be measured: .*quantum' out
echo "$passed passed, $failed failed"
[ $failed = 0 ]
