#!/usr/bin/env bash
# Compares networks on many texts, from raw text to one table: examples/quality/run.sh many [small|gpu] [key=value ...]
# Twelve studies: five texts, each for less than an epoch and for many, two of them also in long contexts. In each every side has four
# tuning points (four rates; for many epochs two rates, each with two dropout rates); the best on validation is trained with three
# seeds and judged on the test split.
#   text=DIR     a folder (data) with wikitext-2/{train,valid,test}.txt[.gz], tinystories/*.json[.gz], code/ (C), stb/ and jargon/. What
#                is not there is fetched with `tenon data get`: gcide for WikiText-2, perldoc for TinyStories, stb for code
#   out=DIR      output folder (runs/many-SIZE)
#   cells=A,B    only these studies (all, in this order: bytes_often, jargon_often, code_often, bytes_once, wiki_often, bytes_long,
#                code_long, wiki_once, code_once, jargon_once, stories_often, stories_once)
#   sides=A,B    only these sides (ten,ten_hybrid,gpt,gpt_conv_gate,gated_delta,kimi; all: every line of the study file)
#   against=SIDE what the others are compared with (gpt)
#   study=FILE   a study file of your own, for its sides and their sizes
#   seeds=N      of the best point of each side (3)
#   tenon=FILE   the command (build/tenon)
#   pack=FILE    write all results to this .tar.gz, however the command ends
#   unpack=FILE  begin with those of such a file, unless out has results of its own
#   --seconds=S  stop after this time
#   --workers=N  passed to `tenon lab`
# Rerun the command to resume. Other key=value are settings of all trainings.
set -euo pipefail
shopt -s inherit_errexit # a text that cannot be fetched ends the command
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() { echo "error: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

# name, text, tokenizer, how often it is read, context; those that decide most come first
all_cells='
bytes_often   wiki    bytes often short
jargon_often  jargon  bytes often short
code_often    code    bytes often short
bytes_once    wiki    bytes once  short
wiki_often    wiki    bpe   often short
bytes_long    wiki    bytes once  long
code_long     code    bytes often long
wiki_once     wiki    bpe   once  short
code_once     code    bytes once  short
jargon_once   jargon  bytes once  short
stories_often stories bytes often short
stories_once  stories bytes once  short'

size=small text=$root/data out='' cells='' sides=ten,ten_hybrid,gpt,gpt_conv_gate,gated_delta,kimi against=gpt study='' seeds=3
tenon=$root/build/tenon pack='' unpack='' seconds=0 settings=() flags=()
for word in "$@"; do
    case $word in
    -h | --help) usage; exit 0 ;;
    small | gpu) size=$word ;;
    text=* | out=* | cells=* | sides=* | against=* | study=* | seeds=* | tenon=* | pack=* | unpack=*) declare "${word%%=*}=${word#*=}" ;;
    --seconds=*) seconds=${word#*=} ;;
    --*) flags+=("$word") ;;
    *=*) settings+=("$word") ;;
    *) die "$word: not understood; examples/quality/run.sh many --help" ;;
    esac
done
# most: bytes of text that are read; epochs of them; contexts; step: tokens of a step at most; vocab: of the BPE; held: bytes of WikiText-2's
# own validation and test texts (0: all); behind: bytes of each held-out part where text is left behind the cut (0: a twentieth of the text)
declare -A most epochs contexts
case $size in
small) most=([once]=262144 [often]=32768) epochs=([once]=0.8 [often]=6) contexts=([short]=256 [long]=1024) step=1024 vocab=1024 held=65536 behind=20480 ;;
gpu) most=([once]=36000000 [often]=4000000) epochs=([once]=0.8 [often]=8) contexts=([short]=1024 [long]=8192) step=32768 vocab=8192 held=0 behind=0 ;;
esac
file=${study:-$root/examples/quality/many_$size.yaml}
[ -x "$tenon" ] || die "there is no $tenon: run make, or name it with tenon=FILE"
[ -r "$file" ] || die "cannot read $file"
[[ $seconds =~ ^[0-9]+$ ]] || die "--seconds=$seconds: give whole seconds"
for name in ${cells//,/ }; do grep -q "^$name " <<<"$all_cells" || die "cells=$name: there is no such study; examples/quality/run.sh many --help"; done
for word in tenon file text pack unpack; do [ -z "${!word}" ] || declare "$word=$(realpath -m "${!word}")"; done
[ -z "$unpack" ] || [ -r "$unpack" ] || die "unpack=$unpack: cannot read it"
mkdir -p "${out:=$root/runs/many-$size}"
cd "$out" # a study knows its data by a path in here: it can be moved as a whole
only=()
[ "$sides" = all ] || only=("--sides=$sides")

# --- results in one file ---
have_results() { compgen -G '*.db' >/dev/null; }
pack_results() { # databases, tables, logs, measured algorithms; a training that was running starts again elsewhere
    local files
    [ -n "$pack" ] && have_results || return 0
    mapfile -t files < <(for f in '*.db*' '*.yaml' '*.txt' '*.log' '*.done' cache; do compgen -G "$f" || true; done)
    tar -czf "$pack.part" "${files[@]}" && mv "$pack.part" "$pack" && echo "packed  $pack"
}
[ -z "$pack$unpack" ] || export TENON_CACHE="${TENON_CACHE:-$PWD/cache}"
if [ -n "$unpack" ] && have_results; then
    echo "kept    $out has results: $unpack is not unpacked"
elif [ -n "$unpack" ]; then
    tar -xzf "$unpack" || die "unpack=$unpack: it is not a whole .tar.gz"
fi
exec 3>&1 # the screen, where a study's own output goes to its log
trap 'pack_results >&3' EXIT

# --- texts: found or fetched, cut to size ---
either() { # $1: a file; it, or its packed form
    local f
    for f in "$1" "$1.gz"; do [ ! -r "$f" ] || { echo "$f"; return 0; }; done
    return 1
}
fetched() { # $1: a name of `tenon data get`; its folder
    local dir
    for dir in "$text/$1" "$root/data/$1"; do [ ! -d "$dir" ] || { echo "$dir"; return 0; }; done
    "$tenon" data get "$1" out="$root/data/$1" >&2 ||
        die "the text $1 is not here and cannot be fetched: run \`tenon data get $1 out=FOLDER/$1\` where there is a network, and give text=FOLDER"
    echo "$root/data/$1"
}
unpacked() { # the texts of a folder or file, one after the other
    find "$1" -type f \( -name '*.txt' -o -name '*.txt.gz' -o -name '*.h' -o -name '*.c' -o -name '*.pod' -o -name '*.json' -o -name '*.json.gz' \) | LC_ALL=C sort | while IFS= read -r f; do gzip -cdf "$f"; done
}
cut_to() { # $1: bytes; whole lines of standard input
    { head -c "$1" || true; } | sed '$d'
    cat >/dev/null # who writes is not to die of a closed pipe
}
text_of() { # $1: wiki, stories, code or jargon; all of its text
    local from
    case $1 in
    wiki) from=$(either "$text/wikitext-2/train.txt" || fetched gcide) ;;
    stories) if [ -d "$text/tinystories" ]; then from=$text/tinystories; else from=$(fetched perldoc); fi ;;
    code) if [ -d "$text/code" ]; then from=$text/code; else from=$(fetched stb); fi ;;
    jargon) from=$(fetched jargon) ;;
    esac
    case $from in
    # each string of the list is a story
    */tinystories) unpacked "$from" | sed 's/^ *"//; s/",\{0,1\}$//; s/\\n/\n/g; s/\\"/"/g' ;;
    *) unpacked "$from" ;;
    esac
}
own_splits() { # held-out parts of WikiText-2's own, into the folder text; the words for `tenon data prepare`
    local split f
    for split in valid test; do
        f=$(either "$text/wikitext-2/$split.txt") || die "there is no $text/wikitext-2/$split.txt"
        if [ "$held" = 0 ]; then gzip -cdf "$f"; else gzip -cdf "$f" | cut_to "$held"; fi >"text/$split.txt"
        words+=("$split=text/$split.txt")
    done
}
parts_behind() { # $1: text and how often it is read; the same from the text behind the cut, if enough is left there
    local all=text/$1.all at split
    at=$(wc -c <"text/$1.txt")
    [ $(($(wc -c <"$all") - at)) -ge $((2 * behind)) ] || { words=(valid_frac=0.05 test_frac=0.05); return 0; }
    for split in valid test; do
        tail -c +$((at + 1)) "$all" | cut_to "$behind" >"text/$1.$split.txt"
        at=$((at + $(wc -c <"text/$1.$split.txt")))
        words+=("$split=text/$1.$split.txt")
    done
}
data_of() { # $1: text, $2: bpe or bytes, $3: once or often; the folder of the data set
    local to=data/$1-$2-$3 tokenizer=bytes words=(doc_bytes=0) name=$1-$3
    if [ ! -e "$to/dataset.json" ]; then
        [ "$2" = bytes ] || tokenizer=train:$vocab
        rm -rf "$to" && mkdir -p text
        text_of "$1" | { if [ "$behind" = 0 ]; then cat; else tee "text/$name.all"; fi; } | cut_to "${most[$3]}" >"text/$name.txt"
        if [ "$1" = wiki ] && either "$text/wikitext-2/valid.txt" >/dev/null; then own_splits
        elif [ "$behind" != 0 ]; then parts_behind "$name"
        else words=(valid_frac=0.05 test_frac=0.05); fi
        rm -f "text/$name.all"
        "$tenon" data prepare "text/$name.txt" "${words[@]}" tokenizer="$tokenizer" out="$to" >"text/$1-$2-$3.log" 2>&1 ||
            die "cannot prepare $1: see $out/text/$1-$2-$3.log"
    fi
    echo "$to"
}
tokens_of() { tr -d '\n' <"$1/dataset.json" | sed 's/.*"train": *{[^}]*"tokens": *\([0-9]*\).*/\1/'; }

# --- studies, one after the other ---
. "$root/examples/limited.sh"
rest() {
    {
        table
        echo "time limit reached (--seconds=$seconds): rerun this command to resume"
    } >&3
    exit 0
}
fail() { # $1: study; the others can still run
    tail -n 5 "$1.log" >&2
    echo "error: study $1 has failed: see $out/$1.log" >&2
    failures+=("$1")
}

# The lines of the study file that begin with the regime are of this regime alone: its search.
regime_file() { sed "s/^#$1 //" "$file"; } # $1: once or often
mark_of() { # $1: how often its text is read; what a finished study was asked for
    echo "$sides $seeds $against ${settings[*]} $(regime_file "$1" | cksum)"
}
is_done() { # name, how often
    [ -e "$1.done" ] && [ "$(cat "$1.done")" = "$(mark_of "$2")" ]
}
study_of() { # name, text, tokenizer, how often, context
    local name=$1 context=${contexts[$5]} data tokens batch steps words rc=0
    ! is_done "$name" "$4" || return 0
    data=$(data_of "$2" "$3" "$4")
    tokens=$(tokens_of "$data")
    # at least 300 steps where the text has room for them
    read -r batch steps < <(awk -v t="$tokens" -v e="${epochs[$4]}" -v c="$context" -v most="$step" 'BEGIN {
        batch = int(t * e / (300 * c)); if (batch * c > most) batch = int(most / c); if (batch < 1) batch = 1
        steps = int(t * e / (batch * c)); print batch, steps < 1 ? 1 : steps }')
    words=("train.context=$context" "train.batch=$batch" "train.steps=$steps" "train.eval_every=$(((steps + 11) / 12))" "${settings[@]}")
    echo "study   $name: $tokens tokens; ${words[*]}"
    regime_file "$4" >"$name.yaml"
    limited "$tenon" lab run "$name.yaml" "data=$data" "${words[@]}" "--db=$name.db" "${only[@]}" "${flags[@]}" >"$name.log" 2>&1 || rc=$?
    [ $rc != 0 ] || limited "$tenon" lab compare "$name.db" "--against=$against" --top=1 "--seeds=$seeds" "${only[@]}" "${flags[@]}" >"$name.txt" 2>>"$name.log" || rc=$?
    if [ $rc = 0 ]; then mark_of "$4" >"$name.done"; else fail "$name"; fi
}
chosen() { # the lines of the studies that are asked for
    local name line
    while read -r name line; do
        case ,$cells, in ,, | *,"${name:-,}",*) [ -z "$name" ] || echo "$name $line" ;; esac
    done <<<"$all_cells"
}
table() { # of the studies that have finished
    local name how dbs=() n=0
    while read -r name _ _ how _; do
        n=$((n + 1))
        ! is_done "$name" "$how" || dbs+=("$name.db")
    done < <(chosen)
    echo "table   ${#dbs[@]} of $n studies have finished"
    [ ${#dbs[@]} = 0 ] || "$tenon" lab across "${dbs[@]}" "--against=$against" | tee table.txt
}

failures=()
while read -r name more; do
    # shellcheck disable=SC2086
    study_of "$name" $more </dev/null
done < <(chosen)
table
[ ${#failures[@]} = 0 ] || die "failed: ${failures[*]}; rerun this command to try them again"
echo "written $out: table.txt, and NAME.txt and NAME.db of every study"
