#!/usr/bin/env bash
# One message for two frozen readers, learned from nothing by examples/wire/run.sh tiny: two readers learn recall, then free messages must
# answer everything, learned ones must beat as many tokens of the text by 30 points on held-out texts and say many different first tokens,
# and another text's message must be worth what one constant message is, to a point and what the held-out sample may be off by. The script
# is killed at three moments on the way and goes on. Says how many seconds the whole took, and ends with "N passed, N failed".
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
tenon=$(realpath "${BUILD:-build}/tenon") || exit 2
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT
passed=0 failed=0

for seconds in 8 25 40; do # timeout ends all that it has started
    timeout -s KILL "$seconds" examples/wire/run.sh tiny out="$out" tenon="$tenon" >"$out/log" 2>&1
done
examples/wire/run.sh tiny out="$out" tenon="$tenon" >"$out/log" 2>&1 || { tail -5 "$out/log"; echo "0 passed, 1 failed"; exit 1; }
grep -h '^reader\|^latent\|^text ' "$out"/*.txt

"$tenon" wire eval "$out/free" split=train --json 2>/dev/null >"$out/free.json"
"$tenon" wire eval "$out/wire-0" split=test --json 2>/dev/null >"$out/wire.json"
"$tenon" wire eval "$out/constant" split=test --json 2>/dev/null >"$out/constant.json"
# Four times the texts, the first of which are the same, without decoding: a sample of 512 questions alone is off by a point.
for run in wire-0 constant; do
    "$tenon" wire eval "$out/$run" split=test task.heldout=1024 decode=false --json 2>/dev/null >"$out/${run%-0}-more.json"
done
value() { # FILE NAME READER [METHOD]: the number
    python3 - "$out/$1.json" "$2" "$3" "${4:-}" <<'P'
import json, sys
file, name, reader, method = sys.argv[1:]
for line in open(file):
    row = json.loads(line)
    if row["name"] == name and row.get("reader", "") == reader and (not method or row.get("method") == method):
        print(row["value"])
        break
P
}
check() { # WHAT EXPRESSION of python
    if python3 -c "import sys; sys.exit(not ($2))"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $1: $2"; fi
}
for x in a b; do
    latent=$(value wire em $x latent)
    check "reader $x answers from the text" "$(value wire em $x text) >= 0.9"
    check "reader $x: free messages of 32 texts answer everything" "$(value free em $x latent) == 1"
    check "reader $x: messages beat the best budget by 30 points" "$(value wire latent_minus_budget $x) >= 0.3"
    check "reader $x: the interval excludes 0" "$(value wire latent_minus_budget_low $x) > 0"
    for method in text latent int4; do # words made of syllables have no normal form but their own
        check "reader $x, $method: decoding agrees with teacher forcing" "abs($(value wire answer_em $x $method) - $(value wire em $x $method)) <= 0.005"
    done
    check "reader $x: the joint answer is as good as its own" "$(value wire joint_em '') >= $(value wire answer_em $x latent) - 0.01"
    # Of independent parts p and q of n questions the difference has the variance (p (1 - p) + q (1 - q)) / n: 95 % of samples are off by
    # less than 1.96 times its root.
    shuffled=$(value wire-more em $x shuffled) constant=$(value constant-more em $x latent) n=$(value wire-more questions '')
    may_be_off=$(python3 -c "p, q, n = $shuffled, $constant, $n; print(1.96 * ((p * (1 - p) + q * (1 - q)) / n) ** 0.5)")
    echo "reader $x, $n questions: another text's message $shuffled, one constant message $constant, the sample may be off by $may_be_off"
    check "reader $x: another text's message is worth one constant message" "abs($shuffled - $constant) <= 0.01 + $may_be_off"
    check "reader $x: messages have it say many different first tokens" "$(value wire unique_first $x latent) >= 0.6"
    check "reader $x: 8 bits lose at most a point" "$latent - $(value wire em $x int8) <= 0.01"
    check "reader $x: 4 bits lose at most five points" "$latent - $(value wire em $x int4) <= 0.05"
done
check "messages of different texts differ" "$(value wire cosine '') < 0.7"

# Encoder and reader in two processes, over a pipe.
"$tenon" wire text task=recall task.keys=64 task.pairs=2 task.split_seed=9 documents=1 2>/dev/null >"$out/one.jsonl"
python3 - "$out" <<'P'
import json, sys
document = json.loads(open(sys.argv[1] + "/one.jsonl").readline())["text"]
context, asked = document.split("\n\n")
open(sys.argv[1] + "/text", "w").write(context + "\n")
open(sys.argv[1] + "/question", "w").write(asked.split(":")[0] + ":")
P
question=$(cat "$out/question")
"$tenon" wire encode "$out/wire-0" "$out/text" bits=8 out="$out/message" >"$out/log" 2>&1 || tail -1 "$out/log"
piped=$("$tenon" wire encode "$out/wire-0" - bits=8 2>/dev/null <"$out/text" | "$tenon" wire decode "$out/wire-0" --model=b --question="$question" 2>/dev/null)
filed=$("$tenon" wire decode "$out/wire-0" "$out/message" --model=b --question="$question" 2>/dev/null)
if [ -n "$piped" ] && [ "$piped" = "$filed" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED a pipe gives '$piped', a file '$filed'"; fi
echo "seconds $SECONDS"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
