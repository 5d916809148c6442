#!/usr/bin/env bash
# One message for two frozen language models, from text to verdict: examples/wire/run.sh [tiny|gpu] [STAGE ...] [key=value ...]
#   stages     readers free wire constant join verdict (default: all; tiny without join)
#   out=DIR    output folder (runs/wire-tiny, runs/wire-gpu)
#   text=FILE  real text, for words and for the readers to learn from too (gpu)
#   seeds=N    runs of the encoder (tiny 1, gpu 3)
#   tenon=FILE the command (build/tenon)
# tiny: readers of two layers, 2 pairs, 4 slots, some minutes on two cores. gpu: readers of 4 M and 9 M parameters, 16 pairs, 16 slots.
# Stopped at any moment, it goes on where it was. Other key=value are settings of all trainings of the wire.
#   readers    two language models of different shape and vocabulary learn recall from documents as text, and are frozen
#   free       a message for each of 32 texts without any encoder: all answers must be right, or gradients do not arrive
#   wire       the encoder and one adapter per reader, held-out texts. tiny: texts of 1 pair first; gpu: 1, 2, 4, 8, then 16
#   constant   the best message that knows no text
#   join       reader c, of bytes (and an end of text), learns its adapter alone: the encoder of seed 0 stays as it is
#   verdict    answers given the message, as many tokens of the text, another text's message, and more
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

size=tiny out='' text='' seeds='' tenon=$root/build/tenon
stages=() settings=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    tiny | gpu) size=$word ;;
    readers | free | wire | constant | join | verdict) stages+=("$word") ;;
    out=* | text=* | seeds=* | tenon=*) declare "${word%%=*}=${word#*=}" ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/wire/run.sh --help" ;;
    esac
done
[ ${#stages[@]} -gt 0 ] || case $size in
tiny) stages=(readers free wire constant verdict) ;;
gpu) stages=(readers free wire constant join verdict) ;;
esac
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
[ -z "$text" ] || [ -f "$text" ] || die "there is no text $text"
mkdir -p "${out:=$root/runs/wire-$size}"
out=$(cd "$out" && pwd)

# Words of the texts; pairs of a text, and of the documents that readers learn from. brief: documents with few questions, so that a reader
# learns that an answer may come, and a document end, right behind the text.
case $size in
tiny)
    task=(task=recall task.keys=64 ${text:+task.data="$text"})
    documents=(documents=20000 task.pairs=8 task.fewer=on repeats=16)
    brief=()
    vocab_a=480 vocab_b=440
    common=(device=cpu train.lr=2e-3 train.decay=0.01 train.warmup=50 train.eval_every=500 loader.mode=pack conv=4 layers=2 heads=4)
    shape_a=(dim=64 train.context=144 train.batch=8 train.steps=2500)
    shape_b=(dim=96 qkv_bias=true tied=false rope_base=100000 train.context=176 train.batch=8 train.steps=1500)
    shape_c=(dim=64 train.context=320 train.batch=4 train.steps=1500)
    asked=(task.pairs=2 task.questions=2 task.size=100000 task.heldout=256 task.split_seed=7) # sizes were chosen on other texts
    wire=(device=cpu slots=4 width=32 hidden=128 dim=96 ffn=192 heads=4 layers=1 train.batch=64 train.lr=1e-3 train.warmup=50
        train.beta2=0.99 train.steps=2000 train.eval_every=500 train.eval_batches=2 loss.nce=0.3)
    free=(train.steps=500 train.lr=5e-3)
    constant=(train.steps=300)
    first=(1) together=128
    before=(train.steps=400 train.schedule=constant train.eval_every=0)
    : "${seeds:=1}"
    ;;
gpu)
    task=(task=recall task.keys=1024 ${text:+task.data="$text"})
    documents=(documents=70000 task.pairs=32 task.fewer=on repeats=48)
    brief=(documents=60000 task.pairs=32 task.fewer=on repeats=2 task.split_seed=2)
    vocab_a=4096 vocab_b=8192
    common=(device=cuda train.lr=1e-3 train.decay=0.01 train.warmup=300 train.eval_every=1000 loader.mode=pack conv=4
        train.context=512 train.batch=32)
    shape_a=(dim=256 layers=4 heads=4 kv_heads=2 train.steps=10000)
    shape_b=(dim=320 layers=5 heads=5 qkv_bias=true rope_base=1000000 train.steps=10000)
    shape_c=(dim=224 layers=5 heads=4 train.context=1024 train.batch=16 train.steps=10000)
    # All questions and no teacher: a teacher reads the text for each question, which costs more than it taught with 4 pairs.
    asked=(task.pairs=16 task.questions=16 task.size=400000 task.heldout=512)
    # loss.nce: without it all messages become equal before they say anything, unless there are few words.
    wire=(device=cuda slots=16 width=32 hidden=512 dim=256 ffn=1024 heads=8 layers=2 train.batch=256 train.lr=1e-3 train.warmup=20
        train.beta2=0.99 train.steps=8000 train.eval_every=1000 loss.nce=0.3)
    first=(1 2 4 8) together=4096
    before=(train.steps=500 train.schedule=constant)
    free=(train.steps=1000 train.lr=5e-3)
    constant=(train.steps=1000)
    : "${seeds:=3}"
    ;;
esac
wire+=(encoder=sender sender_layer=1 a.model="$out/a" b.model="$out/b")

# Documents are written once, under another name until they are whole; data sets and runs know themselves what is done. doc_bytes: a file
# of text is many documents, so that readers, their tokenizers and the held-out part all have some of it.
reader() { # $1: letter, $2: tokenizer, then settings
    local x=$1 tokenizer=$2
    shift 2
    "$tenon" data prepare "$out/recall.jsonl" ${brief:+"$out/brief.jsonl"} ${text:+"$text"} out="$out/data_$x" \
        tokenizer="$tokenizer" doc_bytes=2048 >&2
    "$tenon" train gpt shape=llama data="$out/data_$x" run="$out/$x" "${common[@]}" "$@" >&2
}

readers() {
    [ -f "$out/recall.jsonl" ] ||
        "$tenon" wire text "${task[@]}" task.split_seed=1 "${documents[@]}" out="$out/recall.jsonl" >&2
    [ ${#brief[@]} = 0 ] || [ -f "$out/brief.jsonl" ] || "$tenon" wire text "${task[@]}" "${brief[@]}" out="$out/brief.jsonl" >&2
    reader a train:"$vocab_a" "${shape_a[@]}"
    reader b train:"$vocab_b" "${shape_b[@]}"
}

train() { # $1: run, then settings
    local run=$1
    shift
    "$tenon" train wire "${task[@]}" "${asked[@]}" "${wire[@]}" run="$out/$run" "$@" "${settings[@]}" >&2
}

# One seed: texts of few pairs first, `together` questions in a batch, each training from where the last ended.
learn() { # $1: seed
    local pairs from=()
    for pairs in "${first[@]}"; do
        train "wire-$1-of-$pairs" seed="$1" task.pairs="$pairs" task.questions="$pairs" train.batch=$((together / pairs)) "${before[@]}" "${from[@]}"
        from=(train.from="$out/wire-$1-of-$pairs/latest")
    done
    train "wire-$1" seed="$1" "${from[@]}"
}

join() {
    reader c train:257 "${shape_c[@]}"
    train join readers=c c.model="$out/c" encoder_from="$out/wire-0"
}

verdict() {
    local seed
    echo "== free: a message for each of 32 texts, without an encoder"
    "$tenon" wire eval "$out/free" split=train | tee "$out/free.txt"
    for ((seed = 0; seed < seeds; seed++)); do
        echo "== seed $seed"
        "$tenon" wire eval "$out/wire-$seed" split=test --svg="$out/wire-$seed.svg" | tee "$out/wire-$seed.txt"
    done
    [ ! -d "$out/join" ] || {
        echo "== join: reader c by its adapter alone"
        "$tenon" wire eval "$out/join" split=test | tee "$out/join.txt"
    }
    echo "== constant: one message for all texts"
    "$tenon" wire eval "$out/constant" split=test | tee "$out/constant.txt"
}

for stage in "${stages[@]}"; do
    case $stage in
    readers) readers ;;
    free) train free encoder=free loss.state=0 loss.nce=0 task.size=32 task.heldout=8 task.questions=0 task.fewer=off train.batch=32 train.eval_every=0 train.decay=0 "${free[@]}" ;;
    wire) for ((seed = 0; seed < seeds; seed++)); do learn "$seed"; done ;;
    constant) train constant encoder=constant loss.state=0 loss.nce=0 train.eval_every=0 "${constant[@]}" ;;
    join) join ;;
    verdict) verdict ;;
    esac
done
