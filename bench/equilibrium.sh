#!/usr/bin/env bash
# Accuracy of equilibrium networks, as tables in Markdown: digits (ten paired seeds), digits by the report's protocol, reduced
# precision, MNIST, and the two control tasks. Every run is a `tenon train` that can be repeated by hand; both sides of a pair use the
# same seed, and results are on the test split, for the checkpoint selected on the validation split.
#
#     bench/equilibrium.sh [digits] [optimistic] [half] [mnist] [control]      (default: all)
#
# IMAGES names the folder with digits/ and mnist/, SEEDS the seeds, TENON the command, THREADS its threads.
set -u
cd "$(dirname "$0")/.." || exit 2
tenon=${TENON:-build/tenon} images=${IMAGES:-../shared/data/images} seeds=${SEEDS:-30 31 32 33 34 35 36 37 38 39} threads=${THREADS:-1}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# One number from the result of a run: $1 its name, then the arguments of train.
result() {
    local name=$1
    shift
    "$tenon" train "$@" run="$work/run" --fresh --json threads="$threads" log.level=info 2>"$work/err" |
        sed -n "s/.*\"name\": *\"$name\", *\"value\": *\([-0-9.e+]*\).*/\1/p" | tail -1
}

# Mean and standard deviation of the numbers on stdin.
spread() { awk '{ n++; s += $1; q += $1 * $1 } END { m = s / n; printf "%.4f +-%.4f", m, (n > 1 ? sqrt((q - n * m * m) / (n - 1)) : 0) }'; }

# 95 % interval of the mean difference of two columns (Student's t for 9 degrees of freedom at ten pairs; 2.776 at five).
paired() {
    awk '{ d = $1 - $2; n++; s += d; q += d * d } END { m = s / n; sd = sqrt((q - n * m * m) / (n - 1))
        t = n >= 10 ? 2.262 : n >= 5 ? 2.776 : 4.303; printf "%+.4f, 95 %% interval %+.4f to %+.4f (%d pairs)", m, m - t * sd / sqrt(n), m + t * sd / sqrt(n), n }'
}

each_seed() { # $1: name of the number, $2: file for the column, then train's arguments; SEED stands for the seed
    local name=$1 to=$2 s
    shift 2
    : >"$to"
    for s in $seeds; do result "$name" "${@//SEED/$s}" >>"$to"; done
}

digits() {
    local g data="task.data=$images/digits/digits.csv.gz"
    echo "### Digits, d=13, 60/20/20, chosen on validation (test accuracy)"
    echo
    echo "| gradient | mean and deviation | minus BPTT |"
    echo "| --- | --- | --- |"
    for g in bptt ep_centred implicit one_step; do
        each_seed test_accuracy "$work/$g" digits_tep "$data" grad=$g seed=SEED task.split_seed=SEED
        echo "| $g | $(spread <"$work/$g") | $([ $g = bptt ] || paste "$work/$g" "$work/bptt" | paired) |"
    done
    each_seed test_accuracy "$work/hopfield" digits_tep "$data" mode=hopfield dim=32 damping=1 seed=SEED task.split_seed=SEED
    echo "| ep_centred, hopfield d=32 | $(spread <"$work/hopfield") | $(paste "$work/hopfield" "$work/bptt" | paired) |"
    echo
}

optimistic() {
    local data="task.data=$images/digits/digits.csv.gz"
    echo "### Digits as the report measured them: the best epoch on the test split (optimistic), 80/20, d=13"
    echo
    echo "| | mean and deviation |"
    echo "| --- | --- |"
    for preset in digits_tep_faithful digits_tep digits_bptt; do # the test split is used for validation, so best_accuracy is on it
        each_seed best_accuracy "$work/x" $preset "$data" task.valid_frac=0.2 task.test_frac=0 train.schedule=constant train.lr=0.0255 \
            train.epochs=30 iterations=26 seed=SEED task.split_seed=SEED
        echo "| $preset | $(spread <"$work/x") |"
    done
    echo
}

half() {
    local data="task.data=$images/digits/digits.csv.gz" c
    echo "### Operands of matrix products in half precision: digits, d=13, rtol 1e-3 (test accuracy)"
    echo
    echo "| compute | mean and deviation | minus f32 | unconverged, last line of metrics |"
    echo "| --- | --- | --- | --- |"
    for c in f32 bf16; do
        : >"$work/$c"
        : >"$work/$c.un"
        for s in $seeds; do
            "$tenon" train digits_tep "$data" compute=$c seed=$s task.split_seed=$s run="$work/run" --fresh --json threads="$threads" \
                2>/dev/null | sed -n 's/.*"test_accuracy", *"value": *\([0-9.]*\).*/\1/p' >>"$work/$c"
            sed -n 's/.*"unconverged":\([0-9.e-]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -1 >>"$work/$c.un"
        done
        echo "| $c | $(spread <"$work/$c") | $([ $c = f32 ] || paste "$work/$c" "$work/f32" | paired) | $(spread <"$work/$c.un") |"
    done
    echo
}

mnist() {
    local g
    echo "### MNIST, 54,000 / 6,000 / 10,000, chosen on validation, mnist_tep (one seed)"
    echo
    echo "| gradient | best validation accuracy | test accuracy | samples/s |"
    echo "| --- | --- | --- | --- |"
    for g in ep_centred bptt one_step; do
        "$tenon" train mnist_tep task.data="$images/mnist" grad=$g seed=1 run="$work/run" --fresh --json threads="$threads" 2>/dev/null >"$work/out"
        get() { sed -n "s/.*\"$1\", *\"value\": *\([0-9.]*\).*/\1/p" "$work/out"; }
        echo "| $g | $(get best_accuracy) | $(get test_accuracy) | $(get samples_per_s) |"
    done
    echo
}

control() {
    local task g
    echo "### Control: mean reward of the last 100 of 1,000 episodes, five seeds"
    echo
    echo "| task | gradient | seeds 1 to 5 | mean and deviation |"
    echo "| --- | --- | --- | --- |"
    for task in cartpole acrobot; do
        for g in ep_centred bptt; do
            seeds="1 2 3 4 5" each_seed reward_100 "$work/x" ${task}_tep grad=$g seed=SEED
            echo "| $task | $g | $(awk '{ printf "%s%.1f", (NR > 1 ? ", " : ""), $1 }' "$work/x") | $(spread <"$work/x") |"
        done
    done
    echo
}

[ -x "$tenon" ] || { echo "build the command first: make" >&2; exit 2; }
[ -d "$images" ] || { echo "$images is not there: set IMAGES to the folder with digits/ and mnist/" >&2; exit 2; }
for part in ${*:-digits optimistic half mnist control}; do "$part" || exit 1; done
