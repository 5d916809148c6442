#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# Faults in every call of a short training run that touches a file: strace lets the n-th openat, write, fsync, rename,
# mkdir or close fail (disk full, broken disk, no descriptors left), or kills the process there. Each in an empty place
# and over a finished run that is started over (--fresh). Demanded:
#   - before the first step: exit code 6, or 3 where the data are read, and one line "error: ..." that says what happened; 0 where a
#     failure can hurt nobody (progress on stderr, closing what was only read), and then all files are there and right;
#   - from then on one failed call is a line "warning: ..." that says what happened, and the run ends with 0, all files there and right,
#     as if nothing had been; one that fails from then on every time (with ckpt.wait_s=0) ends it with 6 and one error;
#   - config.yaml is absent or whole, every checkpoint under its name is whole, and over a finished run there is always
#     one, the old or the new; metrics.jsonl has whole lines; no temporary stays after an error;
#   - after a kill, the same command runs through and leaves the right files;
#   - a write to a checkpoint that says it was done and was not (a disk that lies) is found before the checkpoint has its name, warned of
#     and made good by the next try.
# How a run goes on after a kill is resume.sh's.
# Ends with "N passed, N failed"; each fault is one test.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}") passed=0 failed=0
tenon=$build/tenon
command -v strace >/dev/null || { echo "strace is missing: make deps"; exit 2; }
# In memory where there is room: the faults are not the disk's, and syncing to one takes its time.
if [ -w /dev/shm ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 50000 ]; then work=$(mktemp -d /dev/shm/tenon-faults-XXXXXX)
else work=$build/long/faults && rm -rf "$work" && mkdir -p "$work"; fi || exit 2
trap 'rm -rf "$work"' EXIT
head -c 3000 Makefile >"$work/text.txt" || exit 2
settings=(dim=8 layers=1 heads=1 train.context=8 train.batch=1 train.steps=2 train.eval_batches=1 threads=1 ckpt.every=1 ckpt.wait_s=0 log.every=1 run=r --fresh)
calls='/^(open|openat|creat|write|pwrite64|writev|fsync|fdatasync|ftruncate|rename|renameat|renameat2|mkdir|mkdirat|close)$'

train() { "$tenon" train ten data=../text.txt "${settings[@]}" "$@"; } # in a folder beside text.txt

say_failed() {
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    sed 's/^/    /' stderr | tail -n 3
}

# The calls of a run after its start, from strace's output: "name ordinal kind path" with kind read, disk (before the first step, or when all
# is done), again (what the run tries once more) or harmless.
sites() {
    awk '
    {
        sub(/^[0-9]+ +/, "")
        if (!match($0, /^[a-z0-9_]+\(/)) next
        name = substr($0, 1, RLENGTH - 1); rest = substr($0, RLENGTH + 1); count[name]++
        split(rest, part, "\""); path = part[2]; fd = rest + 0; result = $NF + 0
        if (name ~ /^open/) { where[result] = path; writes[result] = rest ~ /O_WRONLY|O_RDWR/ }
        if (path == "../text.txt") started = 1
        if (!started) next
        kind = training ? "again" : "disk"
        if (name ~ /^open/ && path ~ /metrics\.jsonl$/) training = 1
        if (name ~ /^open/) {
            if (path == "../text.txt") kind = "read"
            if (path ~ /^\/dev\// || rest ~ /ENOENT/) kind = "harmless"
            if (path ~ /^\/(proc|sys)\//) kind = "harmless" # what the machine allows: not known is no limit
            if (path ~ /manifest\.json$/ && path !~ /\.tmp-/ && rest !~ /O_CREAT/) kind = "harmless" # then that one is not counted, nor removed
        } else if (name ~ /^mkdir/) {
            if (rest ~ /EEXIST/) kind = "harmless"
        } else if (name !~ /^rename/) {
            if (name == "close" && !writes[fd]) kind = "harmless"
            if (name == "write" && fd == 2) kind = "harmless"
            path = fd <= 2 ? "fd" fd : where[fd]
            if (name == "close" && path ~ /metrics\.jsonl$/) training = 0
            if (name == "ftruncate" && count[name] == 1 && path ~ /metrics\.jsonl$/) kind = "disk" # the rest of opening it
        }
        if (path == "fd1" || !training) if (kind == "again") kind = "disk"
        print name, count[name], kind, path
    }' "$1"
}

whole() { # $1: a file, "$@": what it may be
    local file=$1 like
    shift
    [ -e "$file" ] || return 0
    for like; do cmp -s "$file" "$like" && return 0; done
    return 1
}

files_whole() { # $1: old or empty; sets why
    local dir some=
    whole r/config.yaml "$work/new/r/config.yaml" ${1:+"$work/$1/r/config.yaml"} || { why="config.yaml is neither absent nor whole"; return 1; }
    for dir in r/step-* r/old/step-*; do
        [ -d "$dir" ] || continue
        "$tenon" ckpt verify "$dir" >/dev/null 2>&1 || { why="$dir is not whole"; return 1; }
        some=1
    done
    [ -z "$1" ] || [ -n "$some" ] || { why="the old checkpoint is gone and there is no new one"; return 1; }
    [ ! -e r/metrics.jsonl ] || awk '!/^\{.*\}$/ { bad = 1 } END { exit bad }' r/metrics.jsonl ||
        { why="metrics.jsonl has a torn line"; return 1; }
    [ ! -s r/metrics.jsonl ] || [ -z "$(tail -c 1 r/metrics.jsonl)" ] || { why="metrics.jsonl ends within a line"; return 1; }
}

files_right() {
    cmp -s r/config.yaml "$work/new/r/config.yaml" && cmp -s r/latest/model.safetensors "$work/new/r/latest/model.safetensors" &&
        [ ! -e r/old ]
}

fresh_place() { # $1: old or empty
    rm -rf "$work/place" && mkdir "$work/place" && cd "$work/place" || exit 2
    [ -z "$1" ] || cp -r "$work/$1/r" r
}

reason() { # the words for an errno in messages
    case $1 in ENOSPC) echo "No space left" ;; EIO) echo "Input/output error" ;; EMFILE) echo "Too many open files" ;; esac
}

fail_at() { # $1: old or empty, $2: call, $3: ordinal, $4: kind, $5: path, $6: errno
    local rc want=6 what="$2 no. $3 ($5) fails with $6${1:+, over a finished run}" why=
    fresh_place "$1"
    strace -f -o trace -e trace="$2" -e inject="$2:error=$6:when=$3" "$tenon" train ten data=../text.txt "${settings[@]}" \
        >stdout 2>stderr
    rc=$?
    [ "$4" != read ] || want=3
    [[ $4 != harmless && $4 != again ]] || want=0
    grep -q INJECTED trace || { say_failed "$what" "the call was never made"; return; }
    [ $rc = $want ] || { say_failed "$what" "exit code $rc instead of $want"; return; }
    files_whole "$1" || { say_failed "$what" "$why"; return; }
    if [ $want = 0 ]; then
        files_right || { say_failed "$what" "the files are not those of an undisturbed run"; return; }
        [ "$(wc -l <r/metrics.jsonl)" = 2 ] || { say_failed "$what" "metrics.jsonl has not all its lines"; return; }
        [ "$4" = harmless ] || grep -q "^warning: .*$(reason "$6")" stderr ||
            { say_failed "$what" "no warning says \"$(reason "$6")\""; return; }
    else
        [ "$(grep -c '^error: ' stderr)" = 1 ] && tail -n 1 stderr | grep -q "^error: .*$(reason "$6")" ||
            { say_failed "$what" "the last line is no error that says \"$(reason "$6")\""; return; }
        ! compgen -G 'r/.tmp-*' >/dev/null || { ! compgen -G 'r/.tmp-[!o]*' >/dev/null && grep -q '^error: .*cannot remove' stderr; } || # that removal itself failed; the next start repeats it
            { say_failed "$what" "a temporary file stays"; return; }
    fi
    passed=$((passed + 1))
}

lose_at() { # $1: old or empty, $2: ordinal, $3: path, $4: bytes
    local rc what="write no. $2 ($3) is lost in silence${1:+, over a finished run}" why=
    fresh_place "$1"
    strace -f -o trace -e trace=write -e inject="write:retval=$4:when=$2" "$tenon" train ten data=../text.txt "${settings[@]}" >stdout 2>stderr
    rc=$?
    grep -q INJECTED trace || { say_failed "$what" "the call was never made"; return; }
    [ $rc = 0 ] || { say_failed "$what" "exit code $rc instead of 0"; return; }
    grep -q '^warning: checkpoint step-[12]: what was written cannot be read back: ' stderr ||
        { say_failed "$what" "no line says that it cannot be read back"; return; }
    files_whole "$1" && files_right || { say_failed "$what" "the files are not those of a run without faults"; return; }
    passed=$((passed + 1))
}

# "ordinal path bytes" of every write to a file of a checkpoint.
checkpoint_writes() {
    awk '
    {
        sub(/^[0-9]+ +/, "")
        if ($0 ~ /^openat\(/) { split($0, part, "\""); where[$NF + 0] = part[2] }
        if ($0 !~ /^write\(/) next
        count++
        fd = substr($0, 7) + 0
        if (where[fd] ~ /\.tmp-step-/) print count, where[fd], $NF
    }' "$1"
}

fail_from() { # the same for this call and every later one of its name
    local rc what="$2 no. $3 ($5) and all later ones fail with $6${1:+, over a finished run}" why=
    fresh_place "$1"
    strace -f -o trace -e trace="$2" -e inject="$2:error=$6:when=$3+" "$tenon" train ten data=../text.txt "${settings[@]}" >stdout 2>stderr
    rc=$?
    # A link that was moved, but perhaps not for good: said, and nothing is lost by it.
    if [ $rc = 0 ] && [ "$5" = r ] && grep -q '^warning: cannot sync directory r: ' stderr && files_right; then passed=$((passed + 1)); return; fi
    [ $rc = 6 ] || { say_failed "$what" "exit code $rc instead of 6"; return; }
    files_whole "$1" || { say_failed "$what" "$why"; return; }
    [ "$(grep -c '^error: ' stderr)" = 1 ] && tail -n 1 stderr | grep -q "^error: .*$(reason "$6").*; the run ended " ||
        { say_failed "$what" "the last line is no error that says how the run ended"; return; }
    passed=$((passed + 1))
}

kill_at() { # $1: old or empty, $2: call, $3: ordinal, $4: path
    local rc what="killed at $2 no. $3 ($4)${1:+, over a finished run}" why=
    fresh_place "$1"
    (   # a shell of its own, that says "Killed" to nobody
        strace -f -o trace -e trace="$2" -e inject="$2:signal=KILL:when=$3" "$tenon" train ten data=../text.txt \
            "${settings[@]}" >stdout 2>stderr
        exit $?
    ) 2>/dev/null
    rc=$?
    [ $rc = 137 ] || { say_failed "$what" "exit code $rc instead of 137"; return; }
    files_whole "$1" || { say_failed "$what" "$why"; return; }
    train >stdout 2>stderr && files_right || { say_failed "$what" "the next run did not make the right files"; return; }
    passed=$((passed + 1))
}

# The undisturbed runs: the new one, an old one with another seed, and the calls of both kinds of place.
mkdir "$work/old" "$work/new" && (cd "$work/old" && train seed=9 >/dev/null 2>&1) || { echo "the old run failed"; exit 2; }
cd "$work/new" && strace -f -o "$work/trace.new" -e trace="$calls" "$tenon" train ten data=../text.txt "${settings[@]}" \
    >/dev/null 2>&1 || { echo "strace cannot trace a run here"; exit 2; }
"$tenon" config show r >/dev/null || { echo "the reference has no readable config"; exit 2; }
! cmp -s "$work/old/r/latest/model.safetensors" r/latest/model.safetensors || { echo "two seeds gave the same weights"; exit 2; }
fresh_place old
strace -f -o "$work/trace.old" -e trace="$calls" "$tenon" train ten data=../text.txt "${settings[@]}" >/dev/null 2>&1
files_right || { echo "a run over a finished one did not replace its files"; exit 2; }

for before in '' old; do
    sites "$work/trace.${before:-new}" >"$work/sites"
    [ "$(wc -l <"$work/sites")" -ge 30 ] || { echo "only $(wc -l <"$work/sites") calls found in a run"; exit 2; }
    for name in openat write fsync rename mkdir close; do
        grep -q "^$name" "$work/sites" || { echo "no $name in a run: the list of calls is wrong"; exit 2; }
    done
    while read -r name ordinal kind path <&3; do
        case $name in
        open*) errors='ENOSPC EIO EMFILE' ;;
        *) errors='ENOSPC EIO' ;;
        esac
        for error in $errors; do fail_at "$before" "$name" "$ordinal" "$kind" "$path" "$error"; done
        [ "$kind" != again ] || [[ ! $name =~ ^(fsync|rename|mkdir) ]] ||
            fail_from "$before" "$name" "$ordinal" "$kind" "$path" EIO
        kill_at "$before" "$name" "$ordinal" "$path"
    done 3<"$work/sites"
    checkpoint_writes "$work/trace.${before:-new}" >"$work/sites"
    [ "$(wc -l <"$work/sites")" -ge 4 ] || { echo "only $(wc -l <"$work/sites") writes to a checkpoint found"; exit 2; }
    while read -r ordinal path bytes <&3; do lose_at "$before" "$ordinal" "$path" "$bytes"; done 3<"$work/sites"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
