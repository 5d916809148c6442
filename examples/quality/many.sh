#!/usr/bin/env bash
# Compares networks on many texts, from raw text to one table: examples/quality/run.sh many [small|gpu] [key=value ...]
# Twelve studies: five texts, each for less than an epoch and for many, two of them also in long contexts. In each every side has four
# tuning points (two rates, two dropout rates); the best on validation is trained with three seeds and judged on the test split.
#   text=DIR     a folder with wikitext-2/{train,valid,test}.txt[.gz] and tinystories/*.json[.gz] (data). What it lacks is replaced by texts
#                that `tenon data get` fetches: gcide and perldoc; stb (C) and jargon are always fetched
#   out=DIR      output folder (runs/many-SIZE)
#   cells=A,B    only these studies (all: wiki_once, wiki_often, bytes_once, bytes_often, bytes_long, stories_once, stories_often,
#                code_once, code_often, code_long, jargon_once, jargon_often)
#   sides=A,B    only these sides (ten,ten_hybrid,gpt,gpt_conv_gate,mamba2,gated_delta; all: every line of the study file)
#   against=SIDE what the others are compared with (gpt)
#   study=FILE   a study file of your own, for its sides and their sizes
#   seeds=N      of the best point of each side (3)
#   tenon=FILE   the command (build/tenon)
#   --seconds=S  stop after this time
#   --workers=N  passed to `tenon lab`
# Rerun the command to resume. Other key=value are settings of all trainings.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

# name, text, tokenizer, how often it is read, context
all_cells='
wiki_once     wiki    bpe   once  short
wiki_often    wiki    bpe   often short
bytes_once    wiki    bytes once  short
bytes_often   wiki    bytes often short
bytes_long    wiki    bytes once  long
stories_once  stories bytes once  short
stories_often stories bytes often short
code_once     code    bytes once  short
code_often    code    bytes often short
code_long     code    bytes often long
jargon_once   jargon  bytes once  short
jargon_often  jargon  bytes often short'

size=small text=$root/data out='' cells='' sides=ten,ten_hybrid,gpt,gpt_conv_gate,mamba2,gated_delta against=gpt study='' seeds=3
tenon=$root/build/tenon seconds=0 settings=() flags=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    small | gpu) size=$word ;;
    text=* | out=* | cells=* | sides=* | against=* | study=* | seeds=* | tenon=*) declare "${word%%=*}=${word#*=}" ;;
    --seconds=*) seconds=${word#*=} ;;
    --*) flags+=("$word") ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/quality/run.sh many --help" ;;
    esac
done
# most: bytes of text that are read; epochs of them; contexts; step: tokens of a step at most; vocab: of the BPE; held: bytes of WikiText-2's
# own validation and test texts (0: all)
declare -A most epochs contexts
case $size in
small) most=([once]=262144 [often]=32768) epochs=([once]=0.8 [often]=6) contexts=([short]=256 [long]=1024) step=1024 vocab=1024 held=65536 ;;
gpu) most=([once]=36000000 [often]=4000000) epochs=([once]=0.8 [often]=8) contexts=([short]=1024 [long]=8192) step=32768 vocab=8192 held=0 ;;
esac
file=${study:-$root/examples/quality/many_$size.yaml}
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
[ -r "$file" ] || die "cannot read $file"
[[ $seconds =~ ^[0-9]+$ ]] || die "--seconds=$seconds: give whole seconds"
for name in ${cells//,/ }; do grep -q "^$name " <<<"$all_cells" || die "cells=$name: there is no such study; examples/quality/run.sh many --help"; done
mkdir -p "${out:=$root/runs/many-$size}"
out=$(cd "$out" && pwd)
only=()
[ "$sides" = all ] || only=("--sides=$sides")

# --- texts: found or fetched, cut to size ---
either() { # $1: a file; it, or its packed form
    local f
    for f in "$1" "$1.gz"; do [ ! -r "$f" ] || { echo "$f"; return 0; }; done
    return 1
}
fetched() { # $1: a name of `tenon data get`
    [ -d "$root/data/$1" ] || "$tenon" data get "$1" out="$root/data/$1" >&2 || die "cannot fetch $1: tenon data get $1 says why"
    echo "$root/data/$1"
}
unpacked() { # the texts of a folder or file, one after the other
    find "$1" -type f \( -name '*.txt' -o -name '*.txt.gz' -o -name '*.h' -o -name '*.c' -o -name '*.pod' -o -name '*.json' -o -name '*.json.gz' \) | LC_ALL=C sort | while IFS= read -r f; do gzip -cdf "$f"; done
}
cut_to() { # $1: bytes; whole lines of standard input
    { head -c "$1" || true; } | sed '$d'
    cat >/dev/null # who writes is not to die of a closed pipe
}
text_of() { # $1: wiki, stories, code or jargon, $2: the most bytes; the training text
    case $1 in
    wiki) if f=$(either "$text/wikitext-2/train.txt"); then gzip -cdf "$f"; else unpacked "$(fetched gcide)"; fi ;;
    # each string of the list is a story
    stories) if [ -d "$text/tinystories" ]; then unpacked "$text/tinystories" | sed 's/^ *"//; s/",\{0,1\}$//; s/\\n/\n/g; s/\\"/"/g'; else unpacked "$(fetched perldoc)"; fi ;;
    code) unpacked "$(fetched stb)" ;;
    jargon) unpacked "$(fetched jargon)" ;;
    esac | cut_to "$2"
}
data_of() { # $1: text, $2: bpe or bytes, $3: once or often; the folder of the data set
    local to=$out/data/$1-$2-$3 tokenizer=bytes words=(valid_frac=0.05 test_frac=0.05) f split
    if [ ! -e "$to/dataset.json" ]; then
        [ "$2" = bytes ] || tokenizer=train:$vocab
        rm -rf "$to" && mkdir -p "$out/text"
        text_of "$1" "${most[$3]}" >"$out/text/$1-$3.txt"
        if [ "$1" = wiki ] && f=$(either "$text/wikitext-2/valid.txt"); then # its own splits
            words=(doc_bytes=0)
            for split in valid test; do
                f=$(either "$text/wikitext-2/$split.txt") || die "there is no $text/wikitext-2/$split.txt"
                if [ "$held" = 0 ]; then gzip -cdf "$f"; else gzip -cdf "$f" | cut_to "$held"; fi >"$out/text/$split.txt"
                words+=("$split=$out/text/$split.txt")
            done
        fi
        "$tenon" data prepare "$out/text/$1-$3.txt" "${words[@]}" tokenizer="$tokenizer" out="$to" >"$out/text/$1-$2-$3.log" 2>&1 ||
            die "cannot prepare $1: see $out/text/$1-$2-$3.log"
    fi
    echo "$to"
}
tokens_of() { tr -d '\n' <"$1/dataset.json" | sed 's/.*"train": *{[^}]*"tokens": *\([0-9]*\).*/\1/'; }

# --- studies, one after the other ---
left() { # seconds; 0: no limit
    [ "$seconds" = 0 ] && echo 0 || echo $((seconds > SECONDS ? seconds - SECONDS : -1))
}
limited() { # a command that may be stopped: what runs is saved
    local most rc=0
    most=$(left)
    [ "$most" -ge 0 ] || rest
    timeout --foreground -s INT "$most" "$@" || rc=$?
    [ $rc != 124 ] || rest
    return $rc
}
exec 3>&1 # the screen, where a study's own output goes to its log
rest() { echo "time limit reached (--seconds=$seconds): rerun this command to resume" >&3; exit 0; }

study_of() { # name, text, tokenizer, how often, context
    local name=$1 context=${contexts[$5]} data tokens batch steps words
    data=$(data_of "$2" "$3" "$4")
    tokens=$(tokens_of "$data")
    # at least 300 steps where the text has room for them
    read -r batch steps < <(awk -v t="$tokens" -v e="${epochs[$4]}" -v c="$context" -v most="$step" 'BEGIN {
        batch = int(t * e / (300 * c)); if (batch * c > most) batch = int(most / c); if (batch < 1) batch = 1
        steps = int(t * e / (batch * c)); print batch, steps < 1 ? 1 : steps }')
    words=("train.context=$context" "train.batch=$batch" "train.steps=$steps" "train.eval_every=$(((steps + 11) / 12))" "${settings[@]}")
    echo "study   $name: $tokens tokens; ${words[*]}"
    limited "$tenon" lab run "$file" "data=$data" "${words[@]}" "--db=$out/$name.db" "${only[@]}" "${flags[@]}" >"$out/$name.log" 2>&1 || failed "$name"
    limited "$tenon" lab compare "$out/$name.db" "--against=$against" --top=1 "--seeds=$seeds" "${only[@]}" "${flags[@]}" >"$out/$name.txt" 2>>"$out/$name.log" || failed "$name"
}
failed() { tail -n 5 "$out/$1.log" >&2; die "study $1 has failed: see $out/$1.log"; }

done_dbs=()
while read -r name rest_of_line; do
    [ -n "$name" ] || continue
    case ,$cells, in ,, | *,"$name",*) ;; *) continue ;; esac
    # shellcheck disable=SC2086
    study_of "$name" $rest_of_line </dev/null
    done_dbs+=("$out/$name.db")
done <<<"$all_cells"
"$tenon" lab across "${done_dbs[@]}" "--against=$against" | tee "$out/table.txt"
echo "written $out: table.txt, and NAME.txt and NAME.db of every study"
