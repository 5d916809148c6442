#!/usr/bin/env bash
# The laboratory under kill -9: 8 workers x 200 trials with a worker killed every 200 ms, and a study all of whose processes are killed again
# and again, both with checkpoints on the way. Every trial is claimed once at a time, none is lost, the database is whole, and the table is that
# of a study nobody disturbed. Takes about a minute. SQLite's command is not needed: python3 reads the database.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
# In memory where there is room: a kill does not care, and a thousand checkpoints take a disk minutes.
if [ -w /dev/shm ] && [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 50000 ]; then work=$(mktemp -d /dev/shm/tenon-lab-XXXXXX); else work=$(mktemp -d); fi || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}
query() { python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print("|".join(map(str, row)))' "$1" "$2"; }
# All that does not depend on the clock.
table() { query "$1" "select side, number, state, seed, x, y, parameters, error from trial order by side, number"; }
curves() { query "$1" "select t.side, t.number, r.rung, r.step, r.epoch, r.score, r.value from report r join trial t on t.id = r.trial order by 1, 2, 3"; }
same() { cmp -s "$1" "$2" || { diff "$1" "$2" | head -5; return 1; }; }

study() { # study NAME TRIALS EPOCHS EXTRA [STEPS BETWEEN CHECKPOINTS]
    cat >"$1.yaml" <<END
study: $1
base: xor_tep
set: { task.size: 256, task.valid_frac: 0.5, train.epochs: $3, train.batch: 16, ckpt.every: ${5:-30} }
search: { dim: log int 4..12, train.lr: log 1e-4..1e-1, beta: log 0.01..0.5 }
objectives: [ accuracy max 0, parameters min 1e6, epochs_to_90 min 100, block_evals min 1e9 ]
trials: $2
$4
END
}

# --- workers killed ---
# A fast machine may finish before 20 workers were killed: the study then runs again with twice the epochs.
kills=0
for epochs in 40 80 160 320; do
    [ "$kills" -lt 20 ] || break
    rm -rf calm.db* kill.db* calm kill
    study calm 200 $epochs ''
    cp calm.yaml kill.yaml
    "$tenon" lab run calm.yaml --workers=2 >calm.out 2>calm.err || cat calm.err
    "$tenon" lab run kill.yaml --workers=8 >kill.out 2>kill.err &
    run=$! kills=0
    while kill -0 $run 2>/dev/null; do
        sleep 0.2
        victim=$(pgrep -P $run | shuf -n 1)
        [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null && kills=$((kills + 1))
    done
    wait $run
    ended=$?
done
check 'the study with killed workers ends well' [ $ended = 0 ]
check 'all trials ended' [ "$(query kill.db 'select count(*) from trial where state = 2 and y is not null')" = 200 ]
tried=$(query kill.db 'select sum(attempt) from trial')
check "claimed once at a time: $tried claims of 200 trials, $kills kills" [ "$tried" -le $((200 + kills)) ]
check 'something was killed' [ "$kills" -ge 20 ]
check 'a trial was claimed again' [ "$tried" -gt 200 ]
check 'the database is whole' [ "$(query kill.db 'pragma integrity_check')" = ok ]
table calm.db >calm.table; table kill.db >kill.table
curves calm.db >calm.curves; curves kill.db >kill.curves
check 'the same table as undisturbed' same calm.table kill.table
check 'the same curves' same calm.curves kill.curves
check 'no run directory is left' [ ! -e kill ]
echo "killed workers: $kills, claims: $tried"

# --- everything killed ---
study all 60 160 'pruner: { name: median, warmup: 5, min: 2 }
lag: 4
rules: [ "residual > 0.9 for 40 steps" ]
sides: { one: { set: { grad: ep_centred } }, two: { set: { grad: bptt } } }' 5 # often, so that a kill finds one on a busy machine too
cp all.yaml again.yaml
"$tenon" lab run all.yaml --workers=2 >all.out 2>all.err || cat all.err
rounds=0 kept=0
while [ $rounds -lt 100 ]; do
    rounds=$((rounds + 1))
    setsid "$tenon" lab run again.yaml --workers=2 --lanes=$((rounds % 3 + 1)) >again.out 2>again.err & # lanes end with their worker
    run=$!
    sleep 0.$((RANDOM % 9))$((RANDOM % 10))
    [ $rounds -lt 12 ] || { wait $run; break; }
    workers=$(pgrep -P $run)
    kill -9 $run $workers 2>/dev/null
    wait $run 2>/dev/null
    kept=$((kept + $(ls again/all 2>/dev/null | wc -l)))
done
check 'checkpoints were there to go on from' [ $kept -gt 0 ]
check 'the study killed wholly ends' [ "$(query again.db 'select count(*) from trial where state < 2')" = 0 ]
check 'its database is whole' [ "$(query again.db 'pragma integrity_check')" = ok ]
table all.db >all.table; table again.db >again.table
curves all.db >all.curves; curves again.db >again.curves
check 'its table is that of an undisturbed one' same all.table again.table
check 'and so are its curves' same all.curves again.curves
check 'trials were pruned' grep -q '|3|' all.table
echo "whole studies killed: $((rounds - 1)), checkpoints found: $kept"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
