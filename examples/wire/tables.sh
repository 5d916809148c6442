#!/usr/bin/env bash
# What messages hold of real text, as tables: examples/wire/tables.sh a.model=MODEL b.model=MODEL task.data=TEXT [TABLE ...] [key=value ...]
#   tables     free ae cont cls (default: those whose files are named)
#   out=DIR    output folder (runs/wire-tables)
#   snli=DIR   SNLI's train, dev and test, for cls
#   slots=N,N  slots of a message in free and ae (1,2,4,8)
#   tenon=FILE the command (build/tenon)
# Readers are language models of this kind of text: runs, files or folders, with a.tokenizer=FILE where they need one. Other key=value
# are settings of all trainings. Stopped at any moment, it goes on where it was. Tables go to the screen and to out/TABLE.md.
#   free       a message for each of 100 texts of 64 bytes, without an encoder: what M slots can hold at best
#   ae         an encoder, on texts that nobody was trained on: tokens of a text said again, by slots
#   cont       bits per byte of what follows a text, given its message, as many of its last tokens, all of it, nothing;
#              messages as keys and values of every layer, and as vectors among the embeddings
#   cls        SNLI: answers given a premise's message, beside linear probes of it
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

out=$root/runs/wire-tables snli='' slots=1,2,4,8 tenon=$root/build/tenon text=''
tables=() settings=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    free | ae | cont | cls) tables+=("$word") ;;
    out=* | snli=* | slots=* | tenon=*) declare "${word%%=*}=${word#*=}" ;;
    task.data=*) text=${word#*=} ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/wire/tables.sh --help" ;;
    esac
done
[ ${#tables[@]} -gt 0 ] || tables=(${text:+free ae cont} ${snli:+cls})
[ ${#tables[@]} -gt 0 ] || { usage >&2; exit 2; }
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
[ -z "$text" ] || [ -f "$text" ] || die "there is no text $text"
mkdir -p "$out"
out=$(cd "$out" && pwd)
sizes=(width=32 hidden=128 dim=96 ffn=192 heads=4 layers=1 encoder=sender sender_layer=1)
learning=(train.batch=32 train.lr=1e-3 train.warmup=50 train.beta2=0.99 train.steps=1500 train.eval_every=250 loss.nce=0.3)

# The command says by itself what is done: a finished run is left as it is.
train() { # $1: run, then settings; the last one given counts
    local run=$1
    shift
    "$tenon" train wire "${sizes[@]}" "${learning[@]}" task.cache="$out" run="$out/$run" "$@" "${settings[@]}" >&2
}

# One number of a run on its test texts; of training, where all texts are in each step.
metric() { # $1: run, $2: name
    local value
    value=$("$tenon" eval "$out/$1" split=test --json | sed -n "s/.*\"name\":\"$2\".*\"value\":\([-0-9.e]*\).*/\1/p") && [ -n "$value" ] ||
        die "$2 of $out/$1 is not known: tenon eval $out/$1 split=test"
    echo "$value"
}
trained() { # $1: run
    local value
    value=$(sed -n 's/.*"loss":\([-0-9.e]*\).*/\1/p' "$out/$1/metrics.jsonl" | tail -1) && [ -n "$value" ] || die "no loss in $out/$1/metrics.jsonl"
    echo "$value"
}

pieces=(task=ae task.data="$text" task.length=64)

free() {
    local m value whole=(task.size=100 train.batch=100 train.steps=500 task.heldout=8 loss.nce=0 train.lr=5e-3 train.eval_every=0 train.decay=0)
    echo "| slots | nats per token of the text, mean of readers |"
    echo "| ---: | ---: |"
    train free-0 "${pieces[@]}" "${whole[@]}" encoder=constant slots=1
    value=$(trained free-0)
    echo "| one message for all texts | $value |"
    for m in ${slots//,/ }; do
        train "free-$m" "${pieces[@]}" "${whole[@]}" encoder=free slots="$m"
        value=$(trained "free-$m")
        echo "| $m | $value |"
    done
}

ae() {
    local m accuracy loss
    echo "| slots | tokens said again, test | nats per token |"
    echo "| ---: | ---: | ---: |"
    train ae-0 "${pieces[@]}" encoder=constant slots=1 loss.nce=0 train.steps=300
    accuracy=$(metric ae-0 text_accuracy)
    loss=$(metric ae-0 loss)
    echo "| one message for all | $accuracy | $loss |"
    for m in ${slots//,/ }; do
        train "ae-$m" "${pieces[@]}" slots="$m"
        accuracy=$(metric "ae-$m" text_accuracy)
        loss=$(metric "ae-$m" loss)
        echo "| $m | $accuracy | $loss |"
    done
}

cont() {
    local place
    for place in keys embeddings; do
        train "cont-$place" task=cont task.data="$text" task.length=128 slots=8 place="$place" loss.kd=0.5
        echo "### place=$place"
        "$tenon" wire eval "$out/cont-$place" split=test decode=false
    done
}

cls() {
    [ -d "$snli" ] || die "cls needs SNLI: give snli=FOLDER with train, dev and test"
    train cls task=cls task.data="$snli" slots=8
    "$tenon" wire eval "$out/cls" split=test
}

for table in "${tables[@]}"; do
    echo "== $table"
    "$table" > "$out/$table.part"
    mv "$out/$table.part" "$out/$table.md"
    cat "$out/$table.md"
done
