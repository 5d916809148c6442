#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# A run that is killed ends like one that is not. First 200 kill -9 at random moments of small trainings that save every few
# steps, each followed by the same command; then one session (resume, steps, a save, pruning) killed at every system call
# that touches a file, and with every such call failing (disk full, broken disk). Demanded each time:
#   - under a final name there are only whole checkpoints, before anything is repaired (tenon ckpt verify);
#   - the same command again runs through, and metrics.jsonl (without what a clock says), weights, moments and states are
#     bit for bit those of an undisturbed run; no temporary stays;
#   - a failing call ends the session with 6 (3 where something is read), unless it can hurt nobody.
# Ends with "N passed, N failed"; each kill and each fault is one test. TENON_KILLS=N sets the number of random kills.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0 kills=0 want=${TENON_KILLS:-200}
tenon=$build/tenon
command -v strace >/dev/null || { echo "strace is missing: make deps"; exit 2; }
# In memory where there is room: a kill does not care, and syncing hundreds of checkpoints to a disk takes minutes.
if [ -w /dev/shm ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 50000 ]; then work=$(mktemp -d /dev/shm/tenon-resume-XXXXXX)
else work=$build/long/resume && rm -rf "$work" && mkdir -p "$work"; fi || exit 2
trap 'rm -rf "$work"' EXIT
head -c 3000 Makefile >"$work/text.txt" && cd "$work" || exit 2
"$tenon" data prepare text.txt out=docs doc_sep=blank valid_frac=0.2 >/dev/null 2>&1 || { echo "data prepare fails"; exit 2; }
# Pairs of sentences. What somebody does is the split's own, so that no premise is in two of them.
mkdir pairs && for who in man woman boy dog girl cat; do for does in runs sleeps eats plays; do
    split=train && [ $does != eats ] || split=dev; [ $does != plays ] || split=test
    [ -e pairs/snli_$split.tsv ] || printf 'gold_label\tsentence1\tsentence2\n' >pairs/snli_$split.tsv
    for where in park street house; do printf 'entailment\tA %s %s in the %s.\tIn the %s a %s %s.\n' $who $does $where $where $who $does; done >>pairs/snli_$split.tsv
done; done
tiny=(data=text.txt dim=8 layers=1 heads=1 train.context=8 train.batch=1 train.eval_batches=1 threads=1 train.warmup=5)

# One line per training: model and settings; those of `tiny` come before them where a model reads text. Together they take every kind of state
# through a kill: of flows the noise, its schedule, a target that grows, and the order of samples and pairs.
trainings=(
    'ten train.steps=2000 ckpt.every=7 train.eval_every=10 train.dropout=0.1'
    'gpt train.steps=900 ckpt.every=3 train.eval_every=7 train.accumulate=2 ckpt.compress=zstd'
    'ten train.steps=2000 ckpt.every=5 train.eval_every=9 train.optimizer=sgd train.schedule=wsd ckpt.keep_best=3'
    'gpt train.steps=1200 ckpt.every=4 train.eval_every=50 train.nonfinite=rollback train.dropout=0.2 ckpt.keep_latest=1'
    'gpt train.steps=1200 ckpt.every=5 train.eval_every=13 compute=f16 optim.loss_scale_growth=20'
    'ten data=docs train.steps=1500 ckpt.every=6 train.eval_every=11 loader.mode=pack train.batch=3 loader.prefetch=3'
    'gpt data=docs train.steps=1200 ckpt.every=5 train.eval_every=12 loader.mode=bucket train.context=32 train.accumulate=2'
    'flow task=route task.images=strokes task.size=20 task.dx=2 dim=4 layers=1 depth=4 spawn=1 rho=0.2 noise=0.05 train.steps=90 ckpt.every=3 train.eval_every=25 train.batch=1 train.accumulate=2 train.warmup=5 threads=1'
    'flow_text task.data=pairs task.vocab=280 task.length=10 width=4 height=4 prefix=4 dim=8 heads=1 ffn=8 layers=1 decoder.dim=8 decoder.heads=1 decoder.layers=1 flow.dim=4 flow.layers=1 flow.depth=4 flow.field=1 train.steps=600 ckpt.every=7 train.eval_every=45 train.batch=4 train.warmup=5 threads=1'
)

without_times() { sed -E 's/,"(tokens_per_s|samples_per_s|throughput_samples_per_sec|flow_steps_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)":[^,}]*//g' "$1"; }

say_failed() { # $1: what was done, $2: what is wrong
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    tail -n 2 stderr | sed 's/^/    /'
}

# The end of run $1 against that of run $2; sets why.
same_end() {
    local name
    without_times "$1/metrics.jsonl" >one.txt && without_times "$2/metrics.jsonl" >two.txt
    cmp -s one.txt two.txt || { why="metrics.jsonl differs"; return 1; }
    for name in model state; do
        for end in safetensors safetensors.zst; do
            [ ! -e "$2/latest/$name.$end" ] || cmp -s "$1/latest/$name.$end" "$2/latest/$name.$end" ||
                { why="$name.$end differs"; return 1; }
        done
    done
    [ "$(readlink "$1/best")" = "$(readlink "$2/best")" ] || { why="another checkpoint is the best"; return 1; }
    ! compgen -G "$1/.tmp-*" >/dev/null || { why="a temporary stays"; return 1; }
    "$tenon" ckpt verify "$1" >/dev/null 2>stderr || { why="a checkpoint is not whole"; return 1; }
}

# Every checkpoint under a final name; a run may have none yet.
all_whole() {
    local dir
    for dir in "$1"/step-*; do
        [ ! -d "$dir" ] || "$tenon" ckpt verify "$dir" >/dev/null 2>stderr || { why="$dir is not whole"; return 1; }
    done
}

# --- random kills ------------------------------------------------------------------------------------------------------

begin=$(date +%s%N)
random_kills() { # $1: number of the training; kills it until it is through
    local -a command text=("${tiny[@]}")
    local rc ms longest start
    read -ra command <<<"${trainings[$1]}"
    [[ ${command[0]} != flow* ]] || text=()
    command=("$tenon" train "${command[0]}" "${text[@]}" "${command[@]:1}")
    if [ ! -e "ref$1" ]; then
        start=$(date +%s%N)
        "${command[@]}" run="ref$1" >/dev/null 2>stderr || { echo "training $1 fails"; cat stderr; exit 2; }
        took[$1]=$((($(date +%s%N) - start) / 1000000))
    fi
    longest=$((took[$1] / 6 > 60 ? took[$1] / 6 : 60))
    rm -rf r
    for ((round = 0; round < 400; round++)); do
        ms=$((RANDOM % longest))
        "${command[@]}" run=r >/dev/null 2>stderr &
        local pid=$!
        sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
        kill -KILL $pid 2>/dev/null
        wait $pid 2>/dev/null
        rc=$?
        [ $rc = 0 ] && break
        [ $rc = 137 ] || { say_failed "training $1, after $round kills" "exit code $rc"; return; }
        kills=$((kills + 1))
        all_whole r || { say_failed "training $1, killed after $ms ms" "$why"; return; }
        passed=$((passed + 1))
    done
    [ $rc = 0 ] || { say_failed "training $1" "does not get on in spite of 400 sessions"; return; }
    if same_end r "ref$1"; then passed=$((passed + 1)); else say_failed "training $1, $round kills" "$why"; fi
}

took=()
for ((i = 0; kills < want && failed == 0; i++)); do random_kills $((i % ${#trainings[@]})); done
echo "$kills random kills in $((($(date +%s%N) - begin) / 1000000000)) s"

# --- every call of a session -------------------------------------------------------------------------------------------

calls='open openat write pwrite64 fsync fdatasync ftruncate truncate rename renameat renameat2 mkdir mkdirat close unlink
    unlinkat rmdir symlink symlinkat readlink readlinkat getdents64 flock'
trace=/^\($(echo $calls | tr ' ' '|')\)\$
session=(ten "${tiny[@]}" train.steps=9 train.schedule=constant ckpt.every=3 train.eval_every=3 ckpt.keep_latest=1 ckpt.keep_best=0)
train() { "$tenon" train "${session[@]}" run=r >stdout 2>stderr; }

# The state before: two checkpoints whole, and lines of a step that was lost with the killed process.
rm -rf r base whole
"$tenon" train "${session[@]}" run=whole >/dev/null 2>&1 || { echo "the undisturbed run fails"; exit 2; }
"$tenon" train "${session[@]}" train.steps=6 ckpt.keep_latest=2 run=base >/dev/null 2>&1
"$tenon" train "${session[@]}" train.steps=7 ckpt.every=0 ckpt.keep_latest=9 run=base >/dev/null 2>&1
rm -rf base/step-7 && ln -sfn step-6 base/latest && [ "$(wc -l <base/metrics.jsonl)" = 3 ] || { echo "no base to begin with"; exit 2; }
restore() { rm -rf r trace && cp -r base r; }

restore
strace -f -o trace -e trace="$trace" "$tenon" train "${session[@]}" run=r >/dev/null 2>stderr || { echo "strace cannot trace here"; exit 2; }
same_end r whole || { echo "a resumed run differs: $why"; exit 2; }

# "name ordinal kind" of each call once the run's directory is open: kind is disk where a failure must end the session.
awk '
{
    sub(/^[0-9]+ +/, "")
    if (!match($0, /^[a-z0-9_]+\(/)) next
    name = substr($0, 1, RLENGTH - 1); rest = substr($0, RLENGTH + 1); count[name]++
    fd = rest + 0; result = $NF + 0
    if (name ~ /^open/) { writes[result] = rest ~ /O_WRONLY|O_RDWR/; split(rest, part, "\""); path[result] = part[2] }
    if (rest ~ /"r"/) started = 1
    if (!started) next
    kind = "any"
    if (name ~ /^(write|pwrite64)$/ && fd > 2) kind = "disk"
    if (name ~ /^(fsync|rename|symlink|mkdir)/ && rest !~ /EEXIST/) kind = "disk"
    if (name ~ /^open/ && writes[result]) kind = "disk"
    print name, count[name], kind
}' trace >sites
[ "$(wc -l <sites)" -ge 60 ] || { echo "only $(wc -l <sites) calls found in a session"; exit 2; }
for name in openat write fsync rename mkdir symlink unlink unlinkat ftruncate; do
    grep -q "^$name" sites || { echo "no $name in a session: the list of calls is wrong"; exit 2; }
done

end_right() { # $1: what was done; the same command again, and its end
    local why=
    all_whole r || { say_failed "$1" "$why"; return; }
    train || { say_failed "$1" "the same command again ends with $?"; return; }
    if same_end r whole; then passed=$((passed + 1)); else say_failed "$1" "$why"; fi
}

kill_at() { # $1: call, $2: ordinal
    restore
    (   # a shell of its own, that says "Killed" to nobody
        strace -f -o trace -e trace="$1" -e inject="$1:signal=KILL:when=$2" "$tenon" train "${session[@]}" run=r >stdout 2>stderr
        exit $?
    ) 2>/dev/null
    [ $? = 137 ] || { say_failed "killed at $1 no. $2" "it was not"; return; }
    end_right "killed at $1 no. $2"
}

fail_at() { # $1: call, $2: ordinal, $3: kind, $4: errno
    local rc what="$1 no. $2 fails with $4"
    restore
    strace -f -o trace -e trace="$1" -e inject="$1:error=$4:when=$2" "$tenon" train "${session[@]}" run=r >stdout 2>stderr
    rc=$?
    grep -q INJECTED trace || { say_failed "$what" "the call was never made"; return; }
    case $rc in
    0) [ "$3" != disk ] || grep -q '^warning: ' stderr || { say_failed "$what" "nobody noticed"; return; } ;; # and made good later
    3 | 6) [ "$3 $rc" != "disk 3" ] || { say_failed "$what" "exit code 3 instead of 6"; return; }
        [ "$(grep -c '^error: ' stderr)" = 1 ] || { say_failed "$what" "not one line says what happened"; return; } ;;
    *) say_failed "$what" "exit code $rc"; return ;;
    esac
    end_right "$what"
}

begin=$(date +%s%N)
while read -r name ordinal kind <&3; do
    kill_at "$name" "$ordinal"
    for error in ENOSPC EIO; do fail_at "$name" "$ordinal" "$kind" $error; done
done 3<sites
echo "$(wc -l <sites) calls of a session in $((($(date +%s%N) - begin) / 1000000000)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
