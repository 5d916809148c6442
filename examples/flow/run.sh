#!/usr/bin/env bash
# What the energy-flow lattice learns, and what it adds: examples/flow/run.sh [small|gpu] [TABLE ...] [key=value ...]
#   tables     route far mirror transpose classify parts restore hole, and text where it has sentences (default: all)
#   images=DIR the folder of MNIST (gpu; small draws its own images)
#   sentences=DIR the folder of SNLI (table text)
#   out=DIR    output folder (runs/flow-small, runs/flow-gpu)
#   tenon=FILE the command (build/tenon)
#   --plan       only print what would run
#   --seconds=S  stop each table after S seconds; rerun the command to resume
# small: strokes of 14x14, few steps, some minutes on two cores: shows that everything runs, not what the lattice can do.
# gpu: MNIST. Both have three seeds. Other key=value are settings of all trainings. Each table is a study: a database, table.txt, report.html.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

size=small images='' sentences='' out='' tenon=$root/build/tenon
tables=() settings=() flags=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    small | gpu) size=$word ;;
    route | far | mirror | transpose | classify | parts | restore | hole | text) tables+=("$word") ;;
    images=* | sentences=* | out=* | tenon=*) declare "${word%%=*}=${word#*=}" ;;
    --*) flags+=("$word") ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/flow/run.sh --help" ;;
    esac
done
[ ${#tables[@]} -gt 0 ] || tables=(route far mirror transpose classify parts restore hole ${sentences:+text})
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
mkdir -p "${out:=$root/runs/flow-$size}"
out=$(cd "$out" && pwd)

surfaces=() classes=() pairs=(task.data="$sentences") smaller=()
case $size in
small)
    small=(task.pool=2 task.size=300 train.batch=16 train.warmup=10 train.eval_batches=4)
    surfaces=(task.images=strokes train.steps=30 train.eval_every=15 "${small[@]}")
    classes=(task=strokes train.epochs=2 "${small[@]}")
    pairs+=(task.vocab=500 task.length=24 train.epochs=0 train.steps=20 train.batch=16 train.warmup=5 train.eval_batches=4)
    smaller=(-e 's/dim: [0-9]*/dim: 16/; s/layers: 2/layers: 1/; s/depth: [0-9]*/depth: 8/; s/kind: patches/&, patch: 2/'
        -e 's/heads: [0-9]*/heads: 4/; s/width: [0-9]*/width: 8/; s/height: [0-9]*/height: 6/; s/prefix: [0-9]*/prefix: 6/')
    ;;
gpu)
    [ -n "$images" ] || die "name the folder of MNIST with images=DIR (https://yann.lecun.com/exdb/mnist has the four files)"
    surfaces=(task.images=mnist task.data="$images" device=cuda)
    classes=(task=mnist task.data="$images" task.valid_frac=0.1 device=cuda)
    pairs+=(device=cuda)
    ;;
esac

# NAME STUDY, then settings: trains what has not finished, and prints the table.
table() {
    local name=$1 study=$out/$1.yaml db=$out/$1.db
    sed -e "s/^study: .*/study: $name/" "${smaller[@]}" "$root/examples/flow/$2.yaml" >"$study"
    shift 2
    echo "== $name"
    "$tenon" lab run "$study" "$@" "${settings[@]}" --db="$db" "${flags[@]}" >&2
    case " ${flags[*]} " in *" --plan "*) return ;; esac
    "$tenon" lab compare "$db" --against=flow | tee "$out/$name.txt"
    "$tenon" lab plot "$db" --html="$out/$name.html" >&2
}

for name in "${tables[@]}"; do
    case $name in
    route) table route route task.move=shift task.dx=1 task.dy=0 "${surfaces[@]}" ;;
    far) table far route task.move=shift task.dx=3 task.dy=-2 "${surfaces[@]}" ;;
    mirror | transpose) table "$name" route task.move="$name" "${surfaces[@]}" ;;
    classify | parts) table "$name" "$name" "${classes[@]}" ;;
    restore) table restore restore task.damage=noise task.noise=0.3 "${surfaces[@]}" ;;
    hole) table hole restore task.damage=hole "${surfaces[@]}" ;;
    text)
        [ -n "$sentences" ] || die "name the folder of SNLI with sentences=DIR"
        table text text "${pairs[@]}"
        ;;
    esac
done
