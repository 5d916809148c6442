#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# A disk that is full during a run: a small filesystem in memory, filled and freed while the run trains. Demanded:
#   - a run warns in one line each, trains on, and saves when there is room again: exit code 0, and parameters, moments and losses are bit
#     for bit those of a run that never met a full disk; all its lines of metrics.jsonl are there;
#   - a disk that stays full: after ckpt.wait_s exit code 6 and one error that says what is lost; the last good checkpoint is whole, nothing
#     temporary stays, and the same command goes on from it to the same numbers once there is room;
#   - SIGTERM on a full disk ends the run at once, with 6;
#   - a disk too small for two checkpoints is warned of at the start.
# Needs to mount a filesystem (as root, or in a namespace of its own). Ends with "N passed, N failed".
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
if ! mount --version >/dev/null 2>&1 || ! unshare -m true 2>/dev/null; then
    [ -z "${TENON_INSIDE:-}" ] && unshare -rm true 2>/dev/null && exec env TENON_INSIDE=1 unshare -rm "$0" "$@"
    [ -n "${TENON_INSIDE:-}" ] || { echo "0 passed, 0 failed (a filesystem cannot be mounted here)"; exit 0; }
elif [ -z "${TENON_INSIDE:-}" ]; then
    exec env TENON_INSIDE=1 unshare -m "$0" "$@" # what is mounted goes with the process
fi
build=${BUILD:-build} passed=0 failed=0
case $build in /*) tenon=$build/tenon ;; *) tenon=$PWD/$build/tenon ;; esac
work=$(mktemp -d) || exit 2
disk=$work/disk
trap 'umount "$disk" 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$disk" && seq 1 20000 >"$work/text.txt" && cd "$work" || exit 2
settings=(dim=32 layers=2 heads=1 train.context=16 train.batch=2 train.accumulate=2 train.eval_batches=1 train.eval_every=100 threads=1 ckpt.every=50 log.every=5)

result() { # $1: a test's exit status, then what it tested
    local rc=$1
    shift
    if [ "$rc" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $*"; tail -n 4 err | cut -c 1-300; fi
}
small_disk() { umount "$disk" 2>/dev/null; mount -t tmpfs -o size=2m tmpfs "$disk" || exit 2; }
fill() { head -c "${1:-4000000}" /dev/zero >"$disk/$2" 2>/dev/null; } # all of it unless said
numbers() { sed -E 's/,"(tokens_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)":[^,}]*//g' "$1/metrics.jsonl"; }
same_as() { # $1: a run that was not disturbed, $2: one that was
    cmp "$1/latest/model.safetensors" "$2/latest/model.safetensors" && cmp "$1/latest/state.safetensors" "$2/latest/state.safetensors" &&
        cmp <(numbers "$1") <(numbers "$2")
}
train() { "$tenon" train ten data=text.txt "${settings[@]}" "$@" >out 2>err; }
until_line() { until grep -q "$1" err || ! kill -0 "$pid" 2>/dev/null; do :; done; } # of the run in the background

train train.steps=4000 run=whole || { echo "the undisturbed run failed"; cat err; exit 2; }
train train.steps=200 run=short || exit 2

# Filled from the start but for one checkpoint; then to the last byte, so that lines wait too; then freed.
small_disk
fill 1300000 part
: >err
train train.steps=4000 run="$disk/r" &
pid=$!
until_line '^warning: checkpoint'
fill '' rest
until_line '^warning: cannot append to .*metrics.jsonl'
rm "$disk/part" "$disk/rest"
wait "$pid"
result $? "the disk was freed: exit code"
grep -q '^warning: .* of free space, and two checkpoints of ' err
result $? "too little room is not said at the start"
grep -qE '^warning: checkpoint step-[0-9]+: .*No space left on device; .*; training continues, step-[0-9]+ is kept, next try (after step [0-9]+|at the end)$' err
result $? "no warning says what failed, what is kept and when the next try is"
grep -q '^warning: the [0-9]* buffered lines of metrics.jsonl are now written$' err
result $? "lines that waited are not said to be written"
! grep -q '^error' err
result $? "an error is printed though the run ended well"
same_as whole "$disk/r"
result $? "the numbers are not those of an undisturbed run"
! compgen -G "$disk/r/.tmp-*" >/dev/null && "$tenon" ckpt verify "$disk/r" >/dev/null
result $? "a temporary stays, or a checkpoint is not whole"

# It stays full: the run ends unsaved, and goes on later.
small_disk
fill 1300000 part
train train.steps=200 ckpt.wait_s=1 run="$disk/r"
[ $? = 6 ]
result $? "the disk stays full: exit code"
[ "$(grep -c '^error: ' err)" = 1 ] && grep -q '^error: .*No space left on device; .*; the run ended unsaved at step 200: rerun this command to resume from step 50$' err
result $? "the error does not say what is kept"
[ "$(readlink "$disk/r/latest")" = step-50 ] && "$tenon" ckpt verify "$disk/r" >/dev/null && ! compgen -G "$disk/r/.tmp-*" >/dev/null
result $? "the last good checkpoint is not there, or a temporary is"
rm "$disk/part"
train train.steps=200 run="$disk/r" && same_as short "$disk/r"
result $? "a run that ended unsaved does not go on to the same numbers"

# Asked to stop while it is full.
small_disk
fill 1300000 part
: >err
train train.steps=100000000 run="$disk/r" &
pid=$!
until_line '^warning: checkpoint'
pkill -TERM -P "$pid" # the command under the shell's job
wait "$pid"
[ $? = 6 ] && grep -q '^error: .*ended unsaved at step' err && "$tenon" ckpt verify "$disk/r" >/dev/null
result $? "SIGTERM on a full disk: exit code 6 and what is kept"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
