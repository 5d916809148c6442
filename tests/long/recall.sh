#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Do the networks remember? Small probes (docs/recall.md) that must be learnt, each by the network that is to learn it, with gpt run
# beside, whose figure is shown and decides nothing. Ends with "N passed, N failed".
#
#   mqar         four pairs of 16 keys and 16 values with two outer-product layers: 95 % right (a network that knows only which values
#                were there: 25 %)
#   tokens_copy  the first of 4,096 symbols after the last one with the default's layers: 99 % right (guessing: 10 %)
#
# Measured in November 2026, seed 1, one thread on two shared cores: mqar 100 % in 18 s (after 400 of 900 steps 91 %, after 800 99 %),
# tokens_copy 100 % in 21 s, gpt 100 %. With one outer-product layer (pattern=DO) mqar is at 32 % after 600 steps, and gpt at the rate of
# `recall` at 34 % after 900: which rate leads out of the plateau differs, which is why gpt has its own here.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon work=$build/long/recall
rm -rf "$work" && mkdir -p "$work" || exit 2

gate() { # $1: run, $2: group, $3: its least accuracy on the test part (0: shown only), then a preset and settings
    local run=$1 group=$2 least=$3 got
    shift 3
    got=$("$tenon" train "$@" seed=1 threads=1 train.eval_every=0 run="$work/$run" --json 2>"$work/$run.log" |
        sed -n "s/.*\"test_accuracy_$group\",\"value\":\([0-9.]*\).*/\1/p")
    echo "$run: ${got:-none} right, at least $least"
    [ -n "$got" ] || tail -n 5 "$work/$run.log"
    if awk -v got="${got:--1}" -v least="$least" 'BEGIN { exit !(got >= least) }'; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

mqar="task=mqar task.pairs=4 task.keys=16 task.values=16 task.noise=4 train.context=14 dim=64 heads=4 layers=2 train.batch=32
    train.steps=900 train.lr=5e-3 train.warmup=50 train.schedule=wsd train.decay=0.01"
copy="task=tokens_copy task.lengths=16,64,256,1024,4096 dim=32 layers=2 train.batch=8 train.steps=2728 train.lr=5e-3 train.warmup=20
    train.decay=0 train.schedule=constant"
# shellcheck disable=SC2086
{
    gate mqar-recall 4 0.95 recall $mqar
    gate mqar-gpt 4 0 gpt $mqar train.batch=64 train.steps=600 train.lr=3e-3
    gate copy-ten 4096 0.99 ten pattern=DO $copy
}
# The script for long sequences, at sizes of seconds: trained in two parts, evaluated at three lengths, and a table.
long() { examples/recall/run.sh long tiny tasks=copy,mqar models=ten seeds=1 device=cpu threads=1 tenon="$tenon" out="$work/tiny" "$@" >"$work/tiny.out" 2>&1; }
rows() { [ "$(grep -cE "^(copy|mqar) +ten +1( +[01][.0-9]+ \([01][.0-9]+\)){3}$" "$work/tiny/table.txt")" = 2 ]; }
again() { long --seconds=20 && ! grep -q '^tenon train' "$work/tiny.out"; } # nothing is left to train
for step in long rows again; do
    if $step; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: long sequences, $step"; tail -n 5 "$work/tiny.out"; fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
