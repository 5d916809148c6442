#!/usr/bin/env bash
# Compares TEN with transformers, from raw text to a table: examples/quality/run.sh [small|gpu|STUDY.yaml] [key=value ...]
#   text=DIR   a folder of .txt[.gz] files, of which a twentieth each is held out for validation and test (default: data/jargon, gpu:
#              data/gcide, which `tenon data get` fetches); or wikitext-2/{train,valid,test}.txt[.gz] and books/*.txt[.gz]
#   out=DIR    output folder (runs/quality-NAME)
#   vocab=N    vocabulary of the tokenizer trained on the text (8192; small: 1024)
#   held=N     use the first N bytes of WikiText-2's validation and test text (0: all; small: 98304)
#   tenon=FILE the command (build/tenon)
#   against=SIDE side=SIDE  the question: is the second better than the first (gpt, ten)?
#   seeds=N    for a study without `seeds`: train the best point of each side with N seeds (none)
#   --workers=N  passed to `tenon lab`
#   --seconds=S  stop after this time
#   --sides=NAME,NAME  train only these; the table has those that have finished. Rerun without it to train the others
#   many [small|gpu]  as the first word: many texts instead of one; examples/quality/run.sh many --help
# Rerun the command to resume. Other key=value are settings of all trainings (train.steps=600).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

[ "${1-}" != many ] || exec "$root/examples/quality/many.sh" "${@:2}"
study=small text='' out='' vocab='' held='' tenon=$root/build/tenon against=gpt side=ten seeds='' seconds=0
settings=() flags=() only=() best=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    small | gpu | *.yaml) study=$word ;;
    text=* | out=* | vocab=* | held=* | tenon=* | against=* | side=* | seeds=*) declare "${word%%=*}=${word#*=}" ;;
    --sides=*) only=("$word") ;;
    --seconds=*) seconds=${word#*=} ;;
    --*) flags+=("$word") ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/quality/run.sh --help" ;;
    esac
done
case $study in
small) file=$root/examples/quality/small.yaml vocab=${vocab:-1024} held=${held:-98304} set=jargon ;;
gpu) file=$root/examples/quality/gpu.yaml vocab=${vocab:-8192} held=${held:-0} set=gcide ;;
*) file=$study vocab=${vocab:-8192} held=${held:-0} study=$(basename "$study" .yaml) set=gcide ;;
esac
[[ $seconds =~ ^[0-9]+$ ]] || die "--seconds=$seconds: give whole seconds"
[ -z "$seeds" ] || best=(--top=1 --seeds="$seeds")
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
[ -r "$file" ] || die "cannot read $file"
mkdir -p "${out:=$root/runs/quality-$study}"
out=$(cd "$out" && pwd)

# --- the text: a tokenizer trained on the train split, three splits as shards ---
find_text() { # $1: name without .txt
    for f in "$text/$1.txt" "$text/$1.txt.gz"; do [ -r "$f" ] && { echo "$f"; return; }; done
    die "there is no $text/$1.txt or .txt.gz: name the folder that has wikitext-2 and books with text=DIR"
}
held_out() { # $1: name; the file, or whole lines of its beginning
    local from
    from=$(find_text "wikitext-2/$1")
    [ "$held" = 0 ] && { echo "$from"; return; }
    { gzip -cdf "$from" || true; } 2>/dev/null | head -c "$held" | sed '$d' >"$out/$1.txt"
    echo "$out/$1.txt"
}
text_files() { # $1: a folder
    local f
    for f in "$1"/*.txt "$1"/*.txt.gz; do [ ! -r "$f" ] || echo "$f"; done
}
if [ ! -e "$out/data/dataset.json" ]; then
    if [ -z "$text" ]; then
        text=$root/data/$set
        [ -d "$text" ] || die "there is no $text: run $tenon data get $set out=$text, or name a folder of text with text=DIR"
    fi
    rm -rf "$out/data"
    if [ -d "$text/wikitext-2" ]; then
        echo "text    $text: WikiText-2 and the books, a byte-level BPE of $vocab tokens"
        train=$(find_text wikitext-2/train) valid=$(held_out valid) test=$(held_out test)
        mapfile -t files < <(text_files "$text/books")
        [ ${#files[@]} -gt 0 ] || die "there are no books in $text/books"
        words=("$train" "${files[@]}" valid="$valid" test="$test" doc_bytes=0)
    else
        echo "text    $text: a byte-level BPE of $vocab tokens"
        mapfile -t files < <(text_files "$text")
        [ ${#files[@]} -gt 0 ] || die "there is no .txt or .txt.gz in $text, and no wikitext-2: name a folder of text with text=DIR"
        words=("${files[@]}" valid_frac=0.05 test_frac=0.05)
    fi
    "$tenon" data prepare "${words[@]}" tokenizer="train:$vocab" out="$out/data"
fi

# --- the study: what it will run, the trainings, the verdict ---
db=$out/quality.db
words=("$file" "data=$out/data" "${settings[@]}" "--db=$db")
exec 3>&1
rest() { echo "time limit reached (--seconds=$seconds): rerun this command to resume" >&3; exit 0; }
. "$root/examples/limited.sh"
[ -e "$db" ] || "$tenon" lab run "${words[@]}" "${only[@]}" --plan | tee "$out/plan.txt"
limited "$tenon" lab run "${words[@]}" "${flags[@]}" "${only[@]}"

# The table has the sides that have finished: all of them, or with --sides at least the chosen ones.
ended='' left=''
while IFS= read -r line; do
    name=${line#*'"side":"'} name=${name%%'"'*}
    case $line in *'"waiting":0,"running":0,'*) ended+=,$name ;; *) left+=,$name ;; esac
done < <("$tenon" lab ls "$db" --json)
chosen=${only[0]-} chosen=${chosen#--sides=}
has() { case ,$1, in *,"$2",*) ;; *) return 1 ;; esac; } # $1: a,b,c  $2: a name
for name in ${left//,/ }; do
    if [ ${#only[@]} = 0 ] || has "$chosen" "$name"; then
        echo "not finished: rerun this command to resume"
        exit 0
    fi
done
ended=${ended#,} left=${left#,} question=()
if has "$left" "$against"; then
    echo "$against has not run yet: the table is against ${ended%%,*}"
    against=${ended%%,*}
elif ! has "$left" "$side"; then
    question=(--side="$side")
fi
[ -z "$left" ] || question+=(--sides="$ended")
limited "$tenon" lab compare "$db" --against="$against" "${question[@]}" "${best[@]}" "${flags[@]}" --svg="$out/curves.svg" >"$out/table.part"
mv "$out/table.part" "$out/table.txt"
cat "$out/table.txt"
"$tenon" lab plot "$db" --html="$out/report.html"
"$tenon" lab export "$db" --format=csv --out="$out/trials.csv"
echo "written $out: table.txt, curves.svg, report.html, trials.csv"
[ -z "$left" ] || echo "not run yet: $left; rerun without --sides to train them"
