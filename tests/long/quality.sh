#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# examples/quality from raw text to its table, at a size of seconds: the text is made here, the sides are those of the shipped study.
# Killed in the middle, the same command goes on, and its table is that of a run nobody disturbed. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon work=$build/long/quality
rm -rf "$work" && mkdir -p "$work/text/wikitext-2" "$work/text/books" || exit 2

check() { # $1: what it tests, then a command
    local what=$1
    shift
    if "$@" >"$work/check.out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $what"; head -n 5 "$work/check.out"; fi
}

words() { # $1: seed, $2: lines
    awk -v seed="$1" -v lines="$2" 'BEGIN {
        n = split("the cat sat on a mat and saw what was there before it went home", word, " ")
        srand(seed)
        for (i = 0; i < lines; i++) {
            line = ""
            for (k = 0; k < 12; k++) line = line (k ? " " : "") word[1 + int(n * rand())]
            print line " ."
        }
    }'
}
words 1 2000 >"$work/text/wikitext-2/train.txt"
words 2 60 >"$work/text/wikitext-2/valid.txt"
words 3 60 | gzip >"$work/text/wikitext-2/test.txt.gz"
words 4 500 | gzip >"$work/text/books/one.txt.gz"

# The shipped study with its sides, made small.
sed -e 's/dim: 96/dim: 16/; s/steps: 200/steps: 8/; s/warmup: 20/warmup: 2/; s/eval_every: 50/eval_every: 4/; s/context: 256/context: 32/' \
    -e 's/parameters: 0.45e6/parameters: 22e3/; s/k: 12/k: 4/; s/study: quality_small/study: tiny/' examples/quality/small.yaml >"$work/tiny.yaml"
quality() { # $1: out
    examples/quality/run.sh "$work/tiny.yaml" text="$work/text" out="$1" vocab=300 held=3000 tenon="$tenon" >"$1.log" 2>&1
}
whole() { # what is there when it has ended
    local sides
    sides=$(grep -c '^  [a-z_0-9]*: { base' "$work/tiny.yaml")
    [ "$sides" -ge 9 ] && [ "$(grep -cE '^[a-z_0-9]+ +3 +[0-9.]+ ' "$1/table.txt")" = "$sides" ] &&
        grep -qE '^verdict: test loss of ten [0-9.]+, of gpt [0-9.]+: difference [-+0-9.]+, 95 % interval [-+0-9.]+ to [-+0-9.]+, p [0-9.e-]+ \(3 common seeds' "$1/table.txt" &&
        grep -q '<svg' "$1/curves.svg" && grep -q '<svg' "$1/report.html" && [ "$(wc -l <"$1/trials.csv")" -gt "$sides" ]
}
equal_sizes() { # within 3 % of what was asked for, by the plan
    awk '$2 == 9 { n++; v = $3 * ($4 == "k" ? 1000 : 1); if (v < 0.97 * 22000 || v > 1.03 * 22000) bad = 1 } END { exit bad || n < 9 }' "$1/plan.txt"
}
without_times() { # side, seeds, losses, differences; not tokens/s
    awk '{ $(NF - 2) = ""; print }' "$1/table.txt"
}

check 'it runs to its end' quality "$work/calm"
check 'table, verdict, curves, report and trials are there' whole "$work/calm"
check 'sides are of equal size' equal_sizes "$work/calm"
check 'the same command again changes nothing' quality "$work/calm"
some() { # two sides first, then what is left
    examples/quality/run.sh "$work/tiny.yaml" text="$work/text" out="$1" vocab=300 held=3000 tenon="$tenon" --sides=recall,ten >"$1.log" 2>&1
}
only_two() { # the table has them, and says against which
    [ "$(grep -cE '^[a-z_0-9]+ +3 +[0-9.]+ ' "$1/table.txt")" = 2 ] && grep -q 'gpt has not run yet: the table is against ten' "$1.log" && [ "$(grep -c ' 9 ' "$1/plan.txt")" = 2 ]
}
check 'two sides run by themselves' some "$work/some"
check 'their table is there' only_two "$work/some"
check 'the others follow' quality "$work/some"
check 'and all of it is there' whole "$work/some"
mkdir "$work/hurt"
for i in 1 2 3; do
    setsid examples/quality/run.sh "$work/tiny.yaml" text="$work/text" out="$work/hurt" vocab=300 held=3000 tenon="$tenon" >"$work/hurt.log" 2>&1 &
    run=$!
    sleep $((i + 1))
    kill -9 -- -$run 2>/dev/null
    wait $run 2>/dev/null
done
check 'killed three times, it goes on to its end' quality "$work/hurt"
check 'all of it is there too' whole "$work/hurt"
without_times "$work/calm" >"$work/calm.table"
without_times "$work/hurt" >"$work/hurt.table"
without_times "$work/some" >"$work/some.table"
check 'some sides first, the table is the same' diff "$work/calm.table" "$work/some.table"
check 'its table is that of the undisturbed run' diff "$work/calm.table" "$work/hurt.table"
check 'a folder without the text is refused' bash -c "! examples/quality/run.sh small text=$work out=$work/none tenon=$tenon 2>$work/no.err && grep -q 'there is no .txt or .txt.gz in ' $work/no.err"
mkdir -p "$work/plain" && cp "$work/text/wikitext-2/train.txt" "$work/plain"
# The study of five rates, whose best points are trained with more seeds afterwards, made small.
sed -e 's/dim: 512/dim: 16/; s/layers: 8/layers: 4/; s/heads: 8/heads: 4/; s/device: cuda/device: cpu/; s/29.4e6/22e3/; s/context: 1024, batch: 32/context: 32, batch: 4/' \
    -e 's/steps: 1200, warmup: 100/steps: 8, warmup: 2/; s/eval_every: 200/eval_every: 4/' examples/quality/gpu_five.yaml >"$work/five.yaml"
slow() { # $1: a verb of the lab that does not begin before a limit of seconds is over, on a fast machine too
    printf '#!/bin/sh\n[ "$1 $2" != "lab %s" ] || sleep 4\nexec "%s" "$@"\n' "$1" "$tenon" >"$work/slow_$1"
    chmod +x "$work/slow_$1"
    echo "$work/slow_$1"
}
plain() { # a folder of text: its splits are made here
    examples/quality/run.sh "$work/five.yaml" text="$work/plain" out="$1" vocab=300 tenon="$tenon" against=gpt_conv_gate seeds=4 "${@:2}" >"$1.log" 2>&1
}
five_rates() {
    grep -q '^verdict: test loss of ten .*(4 common seeds' "$1/table.txt" &&
        [ "$(grep -cE '^(ten|gpt_conv_gate) +4 +[0-9.]+ ' "$1/table.txt")" = 2 ] &&
        [ "$(awk '$1 == "ten" || $1 == "gpt_conv_gate" { n += $2 } END { print n }' "$1/plan.txt")" = 10 ]
}
check 'a folder of text files will do' plain "$work/from_plain" --seconds=2 tenon="$(slow compare)"
check '... stopped at a limit' grep -q 'time limit reached (--seconds=2): rerun this command to resume' "$work/from_plain.log"
check '... and goes on' plain "$work/from_plain"
check 'the best of five rates, with four seeds' five_rates "$work/from_plain"
# Many texts: three of the twelve studies, whose text is here.
sed -e 's/dim: 64/dim: 16/; s/parameters: 0.2e6/parameters: 12e3/; s/warmup: 20/warmup: 2/' examples/quality/many_small.yaml >"$work/many.yaml"
many() { # $1: out, then more words
    examples/quality/run.sh many small text="$work/text" out="$1" study="$work/many.yaml" cells=wiki_once,bytes_often,bytes_long \
        sides=ten,gpt,gated_delta tenon="$tenon" train.steps=8 train.batch=2 train.context=32 train.eval_every=4 train.eval_batches=4 "${@:2}" >"$1.log" 2>&1
}
one_table() { # mean ranks that add up, a line for each study, seeds
    grep -q '^bits_per_byte on the test split of 3 studies (less is better)' "$1/table.txt" &&
        awk '$1 == "ten" || $1 == "gpt" || $1 == "gated_delta" { n++; ranks += $2 } END { exit !(n == 3 && ranks > 5.98 && ranks < 6.02) }' "$1/table.txt" &&
        [ "$(grep -cE '^(wiki_once|bytes_often|bytes_long) +3 +[0-9.]+' "$1/table.txt")" = 3 ]
}
check 'many texts, one of them, packed' many "$work/first" cells=bytes_often pack="$work/first.tar.gz"
check '... go on elsewhere' many "$work/moved" unpack="$work/first.tar.gz" --seconds=1 tenon="$(slow run)" pack="$work/second.tar.gz"
check '... stop at a limit with the table so far' grep -q '^bits_per_byte on the test split of 1 study' "$work/moved.log"
check '... which is said' grep -q 'time limit reached (--seconds=1): rerun this command to resume' "$work/moved.log"
check '... and packed again' grep -q "^packed  $work/second.tar.gz" "$work/moved.log"
check '... and go on to their end' many "$work/moved" unpack="$work/first.tar.gz"
check '... without what had finished' bash -c "! grep '^study   bytes_often' $work/moved.log && [ ! -e $work/moved/data/wiki-bytes-often ] && grep -q '^kept ' $work/moved.log"
check 'one table of all studies' one_table "$work/moved"
mkdir -p "$work/tree" && cp -r examples "$work/tree" && printf '#!/bin/sh\necho "error: no network" >&2\nexit 1\n' >"$work/offline" && chmod +x "$work/offline"
no_text() { # the error names what is missing, and what to do
    ! "$work/tree/examples/quality/run.sh" many text="$work/text" cells=code_once tenon="$work/offline" 2>"$work/no.err" &&
        grep -q '^error: the text stb is not here and cannot be fetched: .*text=FOLDER' "$work/no.err" && [ "$(wc -l <"$work/no.err")" = 2 ]
}
check 'a text that cannot be fetched' no_text
# Ctrl-C reaches all processes of the terminal, and `timeout` passes it on once more: what runs saves, and nothing else is begun.
cat >"$work/saving" <<'END'
#!/bin/bash
echo "$*" >>"${0%/*}/begun"
trap 'sleep 0.3; echo saved >>"${0%/*}/begun"; exit 130' INT
for ((i = 0; i < 100; i++)); do sleep 0.1; done
END
chmod +x "$work/saving"
stopped() { # a command, which begins with the stand-in for tenon
    local rc=0 i
    rm -f "$work/begun"
    env --default-signal=INT setsid "$@" tenon="$work/saving" out="$work/stopped" >"$work/stopped.log" 2>&1 &
    for ((i = 0; i < 100; i++)); do [ ! -e "$work/begun" ] || break; sleep 0.1; done
    kill -INT -- -$!
    wait $! || rc=$?
    [ $rc = 130 ] && [ "$(wc -l <"$work/begun")" = 2 ] && [ "$(tail -n 1 "$work/begun")" = saved ]
}
check 'Ctrl-C ends all of it' stopped examples/recall/run.sh long tiny
check '... under a limit too' stopped examples/recall/run.sh long tiny --seconds=60
check 'a study that there is not' bash -c "! examples/quality/run.sh many cells=verse tenon=$tenon 2>$work/no.err && grep -q 'cells=verse: there is no such study' $work/no.err"
cat "$work/calm/table.txt" "$work/from_plain/table.txt" "$work/moved/table.txt"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
