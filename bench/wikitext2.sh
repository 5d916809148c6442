#!/usr/bin/env bash
# A TEN and a transformer of 3 M parameters on WikiText-2: 5 M tokens each (1.7 epochs), one seed, two learning rates each,
# compared on the whole valid split; the better rate of each is then evaluated once on test. Prints a table in Markdown.
#
#   bench/wikitext2.sh DATA OUT [JOBS]     DATA: a folder made by `tenon data prepare`, see below; OUT: folder for the runs;
#                                          JOBS runs at a time share the cores (default 1). Rerun to resume.
#                                          EXTRA="device=cpu": settings for all runs; COMPUTE: bf16 (default) or f32.
#
# DATA comes from the tokenised WikiText-2 (train.txt.gz, valid.txt.gz and test.txt.gz in W):
#   tenon data prepare W/train.txt.gz out=DATA doc_sep=wikitext valid=W/valid.txt.gz test=W/test.txt.gz tokenizer=train:4096
set -euo pipefail
data=${1:?a prepared data set} out=${2:?a folder for the runs} jobs=${3:-1}
tenon=${TENON:-build/tenon}
compute=${COMPUTE:-bf16}
threads=$(( $(nproc) / jobs > 0 ? $(nproc) / jobs : 1 ))
mkdir -p "$out"

common="data=$data train.context=256 train.batch=16 train.steps=1221 train.eval_every=400 train.eval_batches=0 compute=$compute
        threads=$threads seed=1 ckpt.every=100 log.every=50 ${EXTRA:-}"
ten="ten dim=192 layers=6 ffn=352"
gpt="gpt dim=192 layers=5 heads=3"

train() { # NAME LR CONFIG...
    local name=$1 lr=$2; shift 2
    # shellcheck disable=SC2086
    "$tenon" train "$@" $common train.lr="$lr" run="$out/$name-$lr" > "$out/$name-$lr.log" 2>&1
}

running=0
for lr in 1e-3 3e-3; do
    for name in ten gpt; do
        # shellcheck disable=SC2086
        train $name $lr ${!name} &
        running=$((running + 1))
        if [ $((running % jobs)) = 0 ]; then wait; fi
    done
done
wait

# shellcheck disable=SC2086
score() { "$tenon" eval "$out/$1" split="$2" ${EXTRA:-} --json | python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
loss = next(r["value"] for r in rows if r["unit"] == "nats/token")
bits = next((r["value"] for r in rows if r["unit"] == "bits/byte"), float("nan"))
print("%.4f %.4f" % (loss, bits))'; }

echo '| model | learning rate | valid, nats/token | bits/byte | tokens/s |'
echo '| --- | --- | --- | --- | --- |'
for name in ten gpt; do
    best=; least=
    for lr in 1e-3 3e-3; do
        read -r loss bits < <(score "$name-$lr" valid)
        rate=$(grep -o '"tokens_per_s": *[0-9.]*' "$out/$name-$lr/metrics.jsonl" | grep -o '[0-9.]*$' | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
        echo "| $name | $lr | $loss | $bits | $rate |"
        if [ -z "$best" ] || awk "BEGIN { exit !($loss < $least) }"; then best=$lr least=$loss; fi
    done
    read -r loss bits < <(score "$name-$best" test)
    echo "| $name, test | $best | $loss | $bits | |"
done
