#!/usr/bin/env bash
# Recall far beyond the trained length: examples/recall/run.sh long [tiny] [key=value ...]
# Each network is trained on sequences of at most 4,096 tokens, then evaluated on test sequences of 4,096, 8,192, 16,384 and 32,768.
#   copy    the first token, at the end of the sequence
#   needle  a pair hidden in noise among four, at any depth, queried at the end
#   mqar    8 to 64 pairs; trained at 256 tokens first, then from those weights at 4,096: from nothing it is learnt too slowly there
#   tiny           seconds instead of minutes: trained at 64, evaluated up to 256; shows that all of it runs, and no more
#   seeds=N        0 to N-1 (3)
#   tasks=A,B      of copy,needle,mqar (all)
#   models=A,B     ten,ten_hybrid,gpt; every preset of a token model will do
#   out=DIR        runs, results and table.txt (runs/recall-long, runs/recall-tiny)
#   copy_steps=N needle_steps=N mqar_steps=N  steps of training (8184, 10230, 20000; then 2000 at 4,096)
#   device=auto tenon=build/tenon
#   --seconds=S    stop after this time
# Rerun the command to resume: results are NAME-LENGTH.json in out, and what has them all is not trained again, on any machine.
# Other key=value are settings of all trainings.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

size=long seeds=3 tasks=copy,needle,mqar models=ten,ten_hybrid,gpt out='' device=auto tenon=$root/build/tenon
copy_steps='' needle_steps='' mqar_steps='' seconds=0 settings=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    tiny) size=tiny ;;
    seeds=* | tasks=* | models=* | out=* | device=* | tenon=* | copy_steps=* | needle_steps=* | mqar_steps=*) declare "${word%%=*}=${word#*=}" ;;
    --seconds=*) seconds=${word#*=} ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/recall/run.sh long --help" ;;
    esac
done
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
[[ $seeds =~ ^[1-9][0-9]*$ ]] || die "seeds=$seeds: give a number of seeds"
[[ $seconds =~ ^[0-9]+$ ]] || die "--seconds=$seconds: give whole seconds"
for name in ${tasks//,/ }; do case $name in copy | needle | mqar) ;; *) die "tasks=$name: the tasks are copy, needle and mqar" ;; esac; done
# upto: training lengths of copy and needle; first: training length of mqar before the last of them; heldout: test sequences of a group
case $size in
long) upto=16,64,256,1024,4096 first=256 lengths='4096 8192 16384 32768' heldout=128 dim=128 layers=4 pairs=8,16,32,64 keys=512
    batch=64 copy_batch=8 many=128 few=8 continue_steps=2000
    : "${copy_steps:=8184}" "${needle_steps:=10230}" "${mqar_steps:=20000}" ;;
tiny) upto=16,64 first=32 lengths='64 128 256' heldout=16 dim=32 layers=4 pairs=2,4 keys=16
    batch=4 copy_batch=4 many=8 few=4 continue_steps=10
    : "${copy_steps:=25}" "${needle_steps:=25}" "${mqar_steps:=20}" ;;
esac
trained=${upto##*,}
mkdir -p "${out:=$root/runs/recall-$size}"

. "$root/examples/limited.sh"
exec 3>&1 # the screen, where a command's own output goes to a file
rest() {
    {
        table
        echo "time limit reached (--seconds=$seconds): rerun this command to resume"
    } >&3
    exit 0
}
failures=0
failed() { # the others can still run
    echo "error: $*" >&2
    failures=$((failures + 1))
    return 1
}
train() { # run, then a preset and settings
    local name=$1
    shift
    echo "tenon train $* run=$name"
    limited "$tenon" train "$@" device="$device" run="$out/$name" "${settings[@]}" --json >"$out/$name.jsonl" 2>"$out/$name.log" && return
    tail -n 1 "$out/$name.log" >&2
    failed "$name could not be trained: see $out/$name.log"
}
evaluate() { # run, length, then settings
    local name=$1 length=$2
    shift 2
    [ ! -e "$out/$name-$length.json" ] || return 0
    limited "$tenon" eval "$out/$name" train.context="$length" "$@" task.heldout=$heldout split=test device="$device" --json >"$out/$name.part" 2>"$out/$name.log" ||
        failed "$name could not be evaluated at $length: see $out/$name.log" || return 1
    mv "$out/$name.part" "$out/$name-$length.json"
}
has_all() { # run
    local length
    for length in $lengths; do [ -e "$out/$1-$length.json" ] || return 1; done
}

# Networks and rates are those of run.sh, whose figures are known; ten_hybrid gets its attention layer in two layers too.
copy() { # run, model, seed
    local extra=() length
    [ "$2" != ten_hybrid ] || extra=(pattern=OW)
    train "$1" "$2" task=tokens_copy task.lengths=$upto task.heldout=$heldout dim=$((dim / 4)) layers=2 train.batch=$copy_batch train.lr=5e-3 \
        train.warmup=20 train.decay=0 train.schedule=constant train.steps="$copy_steps" train.eval_every=$(((copy_steps + 3) / 4)) seed="$3" "${extra[@]}" || return 1
    for length in $lengths; do evaluate "$1" "$length" task.lengths="$length" || return 1; done
}
needle() {
    local length
    train "$1" "$2" task=needle task.lengths=$upto task.pairs=4 task.keys=$keys task.values=$keys task.heldout=$heldout dim=$dim layers=$layers heads=2 \
        train.batch=$batch train.lr=1e-3 train.decay=0.01 train.steps="$needle_steps" train.eval_every=$(((needle_steps + 4) / 5)) seed="$3" || return 1
    for length in $lengths; do evaluate "$1" "$length" task.lengths="$length" || return 1; done
}
mqar() {
    local extra=() length words
    [ "$2" != ten_hybrid ] || extra=(window=$((first / 4))) # less than a sequence, so that attention alone does not do it
    words=(task=mqar task.pairs="$pairs" task.keys="$keys" task.values="$keys" task.heldout="$heldout" dim="$dim" layers="$layers" heads=2
        train.lr_min_frac=0.05 train.decay=0.01 seed="$3" "${extra[@]}")
    train "$1-$first" "$2" "${words[@]}" train.context=$first train.batch=$many train.lr=1e-3 train.steps="$mqar_steps" \
        train.eval_every=$(((mqar_steps + 9) / 10)) || return 1
    train "$1" "$2" "${words[@]}" train.context="$trained" train.batch=$few train.lr=5e-4 train.steps=$continue_steps train.eval_every=$((continue_steps / 4)) \
        train.from="$out/$1-$first" || return 1
    for length in $lengths; do evaluate "$1" "$length" || return 1; done
}

table() { # mean over the seeds that have finished, and the worst of them
    local task model seed length file
    {
        echo "accuracy on test sequences, trained at $trained tokens at most: mean over seeds (the worst of them)"
        for task in ${tasks//,/ }; do
            for model in ${models//,/ }; do
                for length in $lengths; do
                    for ((seed = 0; seed < seeds; seed++)); do
                        file=$out/$task-$model-$seed-$length.json
                        [ ! -e "$file" ] || sed -n "s/.*\"name\":\"accuracy\",.*\"value\":\([-0-9.e]*\).*/$task $model $length \1/p" "$file"
                    done
                done
            done
        done | awk -v lengths="$lengths" '
            BEGIN { n = split(lengths, at, " "); printf "%-8s%-16s%6s", "task", "network", "seeds"; for (i = 1; i <= n; i++) printf "%17d", at[i]; print "" }
            { key = $1 " " $2; if (!(key in seen)) { seen[key] = 1; row[++rows] = key }
              k = key " " $3; count[k]++; sum[k] += $4; if (count[k] == 1 || $4 < least[k]) least[k] = $4 }
            END { for (r = 1; r <= rows; r++) {
                split(row[r], part, " "); printf "%-8s%-16s%6d", part[1], part[2], count[row[r] " " at[n]]
                for (i = 1; i <= n; i++) { k = row[r] " " at[i]; if (count[k]) printf "%8.4f (%.4f)", sum[k] / count[k], least[k]; else printf "%17s", "" }
                print "" } }'
    } | tee "$out/table.txt"
}

# All networks with one seed, then with the next: what a time limit leaves is a table of fewer seeds.
for ((seed = 0; seed < seeds; seed++)); do
    for task in ${tasks//,/ }; do
        for model in ${models//,/ }; do
            has_all "$task-$model-$seed" || "$task" "$task-$model-$seed" "$model" "$seed" || true
        done
    done
done
table
[ $failures = 0 ] || die "$failures trainings or evaluations have failed; rerun this command to try them again"
