#!/usr/bin/env bash
# One core: runs beside another script of this folder (scripts/run-tests).
# What the laboratory adds to a trial of 25 epochs: instructions of a worker with one trial against `tenon train` with the same settings.
# Below 1 %. Counted at 3 and at 6 epochs and continued along the line: an epoch costs what it costs, and callgrind takes a minute for three.
# Heartbeats and saves every 20 seconds are left out: they go by the clock, and callgrind makes a second of training a minute.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
command -v valgrind >/dev/null || { echo "valgrind is missing: make deps"; exit 2; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
count() {
    local all by_clock
    all=$(valgrind --tool=callgrind --callgrind-out-file=counted "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
    by_clock=$(callgrind_annotate --inclusive=yes --threshold=100 counted |
        awk '!/=>/ && /:(beat|save_timed)( |$)/ { gsub(",", "", $1); sum += $1 } END { printf "%d", sum }')
    echo $((all - by_clock))
}
python() { python3 -c 'import sqlite3, sys
d = sqlite3.connect(sys.argv[1])
for row in d.execute(sys.argv[2]): print(*row)
d.commit()' "$1" "$2"; }

# Instructions of a trial of so many epochs: the laboratory's, and without it.
both() {
    local epochs=$1 beta
    cat >"cost$epochs.yaml" <<END
study: cost$epochs
base: xor_tep
set: { dim: 24, train.epochs: $epochs, train.batch: 64, rtol: 1e-3, train.lr: 0.01 }
search: { beta: 0.1..0.2 }
objectives: [ accuracy max 0, seconds min 1000, parameters min 1e8, epochs_to_90 min 1000 ]
rules: [ "loss > 100" ]
trials: 1
END
    "$tenon" lab run "cost$epochs.yaml" --workers=1 >/dev/null 2>&1 || { echo "the study fails" >&2; return 1; }
    beta=$(python "cost$epochs.db" "select x ->> '\$[0]' from trial")
    python "cost$epochs.db" "update trial set state = 0, attempt = 0" && python "cost$epochs.db" "delete from report"
    count "$tenon" lab work "cost$epochs.db" "cost$epochs"
    count "$tenon" train xor_tep dim=24 "train.epochs=$epochs" train.batch=64 rtol=1e-3 train.lr=0.01 beta="$beta" seed=42 threads=1 log.level=info ckpt.every=0 \
        ckpt.keep_best=0 train.test=off train.eval_every=32 run="bare$epochs"
}
three=$(both 3) && six=$(both 6) || exit 1
python3 - $three $six <<'END'
import sys
lab3, bare3, lab6, bare6 = map(int, sys.argv[1:])
along = lambda three, six: six + (six - three) * 19 / 3  # at 25 epochs
lab, bare = along(lab3, lab6), along(bare3, bare6)
cost = 100 * (lab / bare - 1)
print(f"at 3 epochs train {bare3}, lab {lab3}; at 6 train {bare6}, lab {lab6}; at 25 {cost:+.2f} %")
good = cost < 1 and bare6 > bare3 > 0
print(f"{int(good)} passed, {int(not good)} failed")
sys.exit(not good)
END
