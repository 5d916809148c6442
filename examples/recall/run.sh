#!/usr/bin/env bash
# Recall tasks: examples/recall/run.sh [mqar] [copy] [needle]     (default: all three)
#           or: examples/recall/run.sh long [tiny] [key=value ...]    copy, needle and mqar up to 32,768 tokens; long --help
#
#   mqar    associative recall of 8, 16, 32 and 64 pairs over 256 tokens: ten, recall, ten_hybrid, gpt and gpt_conv_gate with 2 and with
#           4 layers at three learning rates each; accuracy on test sequences
#   copy    the first token over 4,096 and over 32,768 tokens
#   needle  a pair hidden in noise of up to 4,096 tokens, queried at the end; accuracy by depth, then the same network at 8,192
#
# Every training is a run in $OUT (runs/recall) and prints its command; stopped runs are resumed, finished ones are only read. The
# table is written to table.txt there. STEPS=3000 BATCH=128 LRS="7e-4 1e-3 2e-3" LAYERS="2 4" MODELS="ten ..." SEED=0 choose
# what is trained, DEVICE=auto the device, TENON the command; arguments after -- are passed to every training.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ "${1-}" != long ] || exec "$root/examples/recall/long.sh" "${@:2}"
tenon=${TENON:-$root/build/tenon} out=${OUT:-runs/recall} device=${DEVICE:-auto} seed=${SEED:-0}
steps=${STEPS:-3000} batch=${BATCH:-128} dim=${DIM:-128}
read -ra rates <<<"${LRS:-7e-4 1e-3 2e-3}"
read -ra depths <<<"${LAYERS:-2 4}"
read -ra models <<<"${MODELS:-ten recall ten_hybrid gpt gpt_conv_gate}"
parts=() more=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do parts+=("$1"); shift; done
[ $# = 0 ] || { shift; more=("$@"); }
[ ${#parts[@]} -gt 0 ] || parts=(mqar copy needle)
mkdir -p "$out" || exit 2

say() { echo "$@" | tee -a "$out/table.txt"; }

# NAME, then a preset and settings: trains the run $out/NAME; its results are then in $out/NAME.jsonl.
train() {
    local name=$1
    shift
    echo "tenon train $* device=$device seed=$seed run=$out/$name ${more[*]}" >&2
    "$tenon" train "$@" device="$device" seed="$seed" run="$out/$name" "${more[@]}" --json >"$out/$name.jsonl" 2>"$out/$name.log" && return
    say "$name: $(grep -a -m1 '^error' "$out/$name.log" || tail -n 1 "$out/$name.log")"
    return 1
}

# NAME KEY: a number of the run's results.
number() { sed -n "s/.*\"name\": *\"$2\", .*\"value\": *\([-0-9.e]*\).*/\1/p; s/.*\"name\":\"$2\",\"value\":\([-0-9.e]*\).*/\1/p" "$out/$1.jsonl" | head -n 1; }
parameters() { sed -n 's/^model .*, \([0-9.]* *[kMG]\{0,1\}\) parameters.*/\1/p' "$out/$1.log" | head -n 1; }

# NAME HEAD, then names of groups: a line of the table.
line() {
    local name=$1 head=$2 text group
    shift 2
    text=$(printf '%-34s %8s' "$head" "$(parameters "$name")")
    for group; do text+=$(printf ' %8.4f' "$(number "$name" "test_accuracy_$group")"); done
    say "$text"
}

mqar() {
    local model layers lr name extra
    say "$(printf '%-34s %8s %8s %8s %8s %8s' 'mqar, accuracy by pairs' parameters 8 16 32 64)"
    for layers in "${depths[@]}"; do
        for model in "${models[@]}"; do
            extra=()
            case $model$dim in # about as many parameters as the others: 0.535 M with 2 layers, 0.93 M with 4
            recall128) extra=(ffn=296) ;;
            gpt_conv_gate128) extra=(ffn=297) ;;
            esac
            [ "$model" != ten_hybrid ] || extra+=(window=64)
            [ "$model$layers" != ten_hybrid2 ] || extra+=(pattern=OW) # a fourth of two layers is none
            for lr in "${rates[@]}"; do
                name=mqar-$model-$layers-$lr
                train "$name" "$model" task=mqar train.context=256 dim="$dim" layers="$layers" heads=2 train.batch="$batch" train.steps="$steps" \
                    train.lr="$lr" train.lr_min_frac=0.05 train.decay=0.01 train.eval_every=250 "${extra[@]}" || continue
                line "$name" "$model, $layers layers, lr $lr" 8 16 32 64
            done
        done
    done
}

copy() {
    local model length name lengths all # steps; a round of all lengths has 341, or 2,731
    for length in 4096 32768; do
        lengths=16,64,256,1024,4096 all=${COPY_STEPS:-2728}
        [ $length = 4096 ] || lengths+=,16384,32768 all=${COPY_STEPS:-8193}
        # shellcheck disable=SC2086
        say "$(printf '%-34s %8s' "copy over $length, accuracy by length" parameters; printf ' %8s' ${lengths//,/ })"
        for model in "${models[@]}"; do
            name=copy-$model-$length
            train "$name" "$model" task=tokens_copy task.lengths=$lengths dim=32 layers=2 train.batch=8 train.lr=5e-3 train.warmup=20 \
                train.decay=0 train.schedule=constant train.steps="$all" train.eval_every=682 task.heldout=256 || continue
            # shellcheck disable=SC2086
            line "$name" "$model" ${lengths//,/ }
        done
    done
}

needle() {
    local model name longer
    say "$(printf '%-34s %8s %8s %8s %8s %8s %8s' 'needle in 4096, accuracy by depth' parameters 0% 20% 40% 60% 80%)"
    for model in "${models[@]}"; do
        name=needle-$model
        train "$name" "$model" task=needle task.lengths=16,64,256,1024,4096 task.pairs=4 dim="$dim" layers=4 heads=2 train.batch=64 train.lr=1e-3 \
            train.decay=0.01 train.steps="${NEEDLE_STEPS:-10230}" train.eval_every=2046 || continue
        line "$name" "$model" 4096_d0 4096_d20 4096_d40 4096_d60 4096_d80
        longer=$("$tenon" eval "$out/$name" train.context=8192 task.lengths=8192 split=test device="$device" 2>/dev/null) && say "    $longer"
    done
}

for part in "${parts[@]}"; do
    case $part in
    mqar | copy | needle) "$part" ;;
    *) echo "$part: the parts are mqar, copy and needle" >&2; exit 2 ;;
    esac
done
