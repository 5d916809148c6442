#!/usr/bin/env bash
# Trials of small models several at once on one GPU: phase 1 with 1, 4, 8 and 16 lanes. Trials per second, how much of the time the GPU was
# busy, and that the table is that of one lane: every objective that is not a time, every point and every curve. Kills a worker of 8
# lanes on the way, once, for the same table. A last number is the whole of phase 1 where FULL=1 (600 trials, its objectives with seconds).
#
#   tests/cuda/lanes.sh DIGITS.csv[.gz]        TRIALS=24 (a side), EPOCHS=30, LANES="1 4 8 16", SECONDS_EACH=150, DEVICE=cuda, FULL=0
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
tenon=$(realpath "${BUILD:-build}/tenon") || exit 2
data=$(realpath "${1:-}") || { echo "name the digits: tests/cuda/lanes.sh DIGITS.csv.gz"; exit 2; }
trials=${TRIALS:-24} epochs=${EPOCHS:-30} most=${SECONDS_EACH:-150} device=${DEVICE:-cuda} passed=0 failed=0
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
check() { local what=$1; shift; if "$@"; then passed=$((passed + 1)); echo "ok      $what"; else failed=$((failed + 1)); echo "FAILED  $what"; fi; }
query() { python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print("|".join(map(str, row)))' "$1" "$2"; }
table() {
    query "$1" "select side, number, state, seed, x, y, parameters, error from trial order by side, number"
    query "$1" "select t.side, t.number, r.rung, r.step, r.epoch, r.score, r.value from report r join trial t on t.id = r.trial order by 1, 2, 3"
}
same() { cmp -s "$1" "$2" || { diff "$1" "$2" | head -4 | cut -c1-300; return 1; }; }
busy() { # mean of what nvidia-smi says, percent
    awk '{ s += $1; n++ } END { if (n) printf "%.0f", s / n; else printf "?" }' "$1"
}

# NAME LANES: runs the study of that name, prints how fast it was.
run() {
    local name=$1 lanes=$2 smi='' begun ended n
    if [ "$device" = cuda ] && command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits -lms 200 >"$work/$name.busy" 2>/dev/null &
        smi=$!
    else : >"$work/$name.busy"; fi
    begun=$(date +%s.%N)
    timeout "$most" "$tenon" lab run "$work/$name.yaml" task.data="$data" device="$device" --db="$work/$name.db" --workers=1 --lanes="$lanes" \
        >"$work/$name.out" 2>"$work/$name.err" || tail -2 "$work/$name.err"
    ended=$(date +%s.%N)
    [ -n "$smi" ] && { kill "$smi"; wait "$smi" 2>/dev/null; }
    n=$(query "$work/$name.db" 'select count(*) from trial where state > 1')
    echo "lanes $lanes: $n trials in $(python3 -c "print('%.1f s, %.2f trials/s' % ($ended - $begun, $n / ($ended - $begun)))"), GPU busy $(busy "$work/$name.busy") %, \
$(query "$work/$name.db" "select printf('%.2f s a trial, %.3f s of it not training', avg(ended - begun), avg(ended - begun - seconds)) from trial where state = 2 and attempt = 1")"
}

# No objective is a time: what NSGA-II draws then depends on nothing that differs between runs. The published figures, the file's last
# part, name that objective and go too.
sed -e '/^published:/,$d' -e "s/^trials:.*/trials: $trials/; s/train.epochs: 30/train.epochs: $epochs/" -e 's/seconds min 1000, //' -e '/^trial_seconds:/d' -e '/^seconds:/d' -e '/^db:/d' studies/phase1.yaml >"$work/base.yaml"
first=''
for lanes in ${LANES:-1 4 8 16}; do
    cp "$work/base.yaml" "$work/l$lanes.yaml"
    run "l$lanes" "$lanes"
    table "$work/l$lanes.db" >"$work/l$lanes.table"
    check "lanes $lanes: all trials ended" [ "$(query "$work/l$lanes.db" 'select count(*) from trial where state < 2')" = 0 ]
    if [ -z "$first" ]; then first=l$lanes; else check "lanes $lanes: the table of ${first#l}" same "$work/$first.table" "$work/l$lanes.table"; fi
done

# --- a worker killed with all its lanes ---
sed 's/^set: {/set: { ckpt.every: 40,/' "$work/base.yaml" >"$work/kill.yaml"
"$tenon" lab run "$work/kill.yaml" task.data="$data" device="$device" --db="$work/kill.db" --workers=1 --lanes=8 >"$work/kill.out" 2>"$work/kill.err" &
lab=$!
for _ in 1 2 3; do
    sleep 4
    victim=$(pgrep -P $lab | head -n 1)
    [ -n "$victim" ] && kill -9 "$victim"
done
wait $lab || tail -2 "$work/kill.err"
query "$work/kill.db" "select side, number, state, seed, x, y, parameters, error from trial order by side, number" >"$work/kill.table"
query "$work/$first.db" "select side, number, state, seed, x, y, parameters, error from trial order by side, number" >"$work/calm.table"
check 'a worker killed: trials were begun again' [ "$(query "$work/kill.db" 'select max(attempt) from trial')" -gt 1 ]
check 'a worker killed: the same table' same "$work/calm.table" "$work/kill.table"

# --- trials of all sizes at once, every kernel queued by itself: what one lane sets for a kernel must not be felt by another's launch ---
cat >"$work/sizes.yaml" <<EOF
study: sizes
base: digits_tep
set: { train.epochs: 1, train.batch: 256, opt.replay: off }
search: { dim: log int 4..512, mode: [ block, energy ], grad: [ ep, ep_centred ], solver: [ picard, anderson ], iterations: int 5..50 }
objectives: [ accuracy ]
sampler: random
trials: 1200
EOF
run sizes 16
check 'trials of all sizes at once: none failed' [ "$(query "$work/sizes.db" 'select count(*), sum(state = 2) from trial')" = '1200|1200' ]
query "$work/sizes.db" 'select error, count(*) from trial where state != 2 group by error' | head -n 3 | cut -c1-200

if [ "${FULL:-0}" = 1 ]; then
    sed -e '/^db:/d' studies/phase1.yaml >"$work/full.yaml"
    most=${SECONDS_FULL:-580} run full "${FULL_LANES:-8}"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
