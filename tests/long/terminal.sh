#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# What every verb prints, in a terminal of 80 x 24 (tmux), with colours and without, and in a pipe: the terminal never has to break a line, and
# shows every word and number that the pipe shows.
# What other programs read (--json, --yaml, schema, export, complete) is left as it is.
# tests/long/terminal.sh [WORD]: only commands that hold the word; they are shown.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tenon=$(cd "$root" && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
only=${1:-}
work=$(mktemp -d) || exit 2
cd "$work" || exit 2
mux() { tmux -S "$work/socket" -f "$work/conf" "$@"; }
trap 'mux kill-server 2>/dev/null; rm -rf "$work"' EXIT
printf 'set -g history-limit 20000\nset -g status off\nset -g default-terminal screen-256color\n' >conf
mkdir bin && ln -s "$tenon" bin/tenon
export PATH=$work/bin:$PATH LC_ALL=C.UTF-8
unset NO_COLOR TENON COLUMNS
mux new-session -d -s keeper 'exec sleep 3600' || { echo 'no tmux: scripts/install-deps long'; exit 2; }
passed=0 failed=0

# screen COMMAND NO_COLOR: "lines" is what the terminal shows, "joined" the same with lines that it had to break put together.
screen() {
    printf '%s\n' "$1" >command
    mux new-session -d -x 80 -y 24 -s s "NO_COLOR=$2 bash ./command; tmux -S $work/socket wait-for -S ended; exec sleep 600" || return 1
    mux wait-for ended
    mux capture-pane -p -S - -t s | sed 's/ *$//' >lines
    mux capture-pane -p -S - -J -t s | sed 's/ *$//' >joined
    mux kill-session -t s
}

# Without blanks, which folding changes, and without the last line of a progress that is redrawn.
words() { tr -s ' \n' '\n\n' <"$1" | sed '/^$/d'; }

check() { # check KIND COMMAND; KIND: same (as in a pipe), free (times and speeds differ), or bad (the same, and an error)
    local how wrong=
    [[ $2 == *"$only"* ]] || return
    if [ "$1" != free ]; then bash -c "$2" >piped 2>&1 </dev/null; words piped >piped.words; fi
    for how in '' 1; do
        screen "$2" "$how" || { echo "no terminal"; exit 2; }
        [ -z "$only" ] || cat lines
        diff -B lines joined >broken || wrong+="a line is broken by the terminal (NO_COLOR=$how): $(sed -n 's/^> //p' broken | head -2)"$'\n'
        [ -z "$how" ] || ! grep -q $'\033' lines || wrong+="colours in spite of NO_COLOR"$'\n'
        [ "$1" = bad ] || ! grep '^error: ' lines || wrong+="an error"$'\n'
        if [ "$1" != free ]; then
            words lines >lines.words
            cmp -s piped.words lines.words || wrong+="other words than in a pipe (NO_COLOR=$how): $(diff piped.words lines.words | head -5)"$'\n'
        elif grep -E '^(.*  )?step +[0-9]+/' lines | grep -vqE "$whole"; then
            wrong+="a field of the progress is cut: $(grep -E '^(.*  )?step +[0-9]+/' lines | grep -vE "$whole" | head -1)"$'\n'
        fi
    done
    if [ -z "$wrong" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); printf 'FAILED %s\n%s' "$2" "$wrong"; fi
}
# The last field of a progress line: a name with its number, or a number with its unit.
number='-?[0-9][0-9.:]*(e[+-]?[0-9]+)?'
whole="  (eta|loss|lr|\|g\||waits for data|[a-z_]+) ($number|\?|NaN)( %)?\$|  held out $number( \($number b/B\))?(, [a-z_]+ $number)?\$|  $number( [kMG])? (tok|samples)/s\$|  $number (MB|% of peak)\$|  after $number(  best)?\$"

# --- help of every verb and subcommand, and lists
for verb in $(tenon help --json | sed 's/.*"verb":"\([a-z]*\)".*/\1/'); do check same "tenon help $verb"; done
for sub in 'lab run' 'lab compare' 'lab plot' 'config show' 'data prepare' 'ckpt convert'; do check same "tenon $sub --help"; done
check same 'tenon'
check same 'tenon help'
check same 'tenon presets'
check same 'tenon presets ten_a'
check same 'tenon tasks'
check same 'tenon config show'
check same 'tenon config show gpt_tiny train.lr=1e-2 data=a/rather/long/path/to/some/text/file.txt'
check free 'tenon doctor'

# --- errors
check bad 'tenon train learning_rate=1e-3 data=book.txt batch_size=8 context_length=64 device=cuda weight_decay=0.1'
check bad 'tenon train gpt train.batch=abc'
check bad 'tenon train tep'
check bad 'tenon lab'

# --- data, training, evaluation
yes 'the cat sat on the mat and ate a rat' | head -c 40000 >book.txt
small='dim=16 layers=1 heads=2 train.context=32 train.batch=4 threads=1 train.eval_batches=2'
check same 'tenon data prepare book.txt out=set valid_frac=0.1 test_frac=0.1 seed=1 >/dev/null 2>&1; tenon data inspect set; rm -r set'
tenon data prepare book.txt out=set valid_frac=0.1 test_frac=0.1 >/dev/null 2>&1
check free "tenon train gpt_tiny data=set $small train.steps=300 train.eval_every=50 run=runs/a --fresh"
check free "tenon train ten_tiny data=set $small train.steps=60 log.level=profiling run=runs/b --fresh"
check free "tenon train gpt_tiny data=set $small train.steps=300 train.eval_every=50 run=runs/a"
check free "tenon train xor_tep train.epochs=2 threads=1 --fresh run=runs/c"
for flags in '' split=test --positions --contexts=16,32,64 --effective; do check free "tenon eval runs/a $flags"; done
check free 'tenon eval runs/b --spectrum'
check free 'tenon sample runs/a --prompt=the max_tokens=200'
check same 'tenon ckpt inspect runs/a'
check same 'tenon ckpt verify runs/a'
check same 'tenon ckpt prune runs/a --dry-run'
check free "tenon race gpt_tiny ten_tiny data=set $small train.steps=40 train.eval_every=20 --no-keep"
check free "tenon race gpt_tiny ten_tiny data=set $small train.steps=20 --contexts=16,32 --sample=40 --no-keep"
check free "rm -rf runs/rates; tenon race gpt_tiny ten_tiny data=set $small train.steps=10 --lr=1e-3,2e-3,4e-3,8e-3 run=runs/rates"
check free 'tenon runs'
check free 'tenon plot runs/a runs/b'
check same 'tenon data get'
check free "tenon check gpt_tiny $small"
check free "tenon bench gpt_tiny $small --seconds=1 --by-op"
check free "tenon bench gpt_tiny $small --seconds=1 --regions"
check free "tenon ablate gpt_tiny $small --seconds=5"
check same 'rm -rf cell; tenon new model cell'

# --- a study
cat >s.yaml <<'END'
study: s
base: tep
set: { task: xor, dim: 8, train.epochs: 2, threads: 1, task.size: 400 }
sides: { implicit: { set: { grad: implicit } }, bptt: { set: { grad: bptt } } }
search: { train.lr: log 1e-3..1e-1, damping: 0.3..0.9 }
objectives: [ accuracy max 0, loss min 10 ]
trials: 4
END
check free 'tenon lab run s.yaml --plan'
check free 'rm -f s.db; tenon lab run s.yaml --workers=1'
for view in 'ls s.db' 'ls s.db trials' 'best s.db' 'best s.db --front' 'show s.db implicit/0' 'diff s.db implicit/0 bptt/1' 'plot s.db' 'plot s.db pareto --svg=p.svg'; do
    kind=same
    [[ $view == plot* ]] && kind=free # as wide as the terminal
    check $kind "tenon lab $view"
done
check bad 'tenon lab plot s.db nothing'
check free 'tenon lab compare s.db --top=1 --seeds=2 --workers=1'
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
