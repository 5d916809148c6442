#!/usr/bin/env bash
# What the laboratory adds to a trial: instructions of a worker with one trial against `tenon train` with the same settings. Below 1 %.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tenon=$(cd "$here/../.." && realpath "${TENON:-${BUILD:-build}/tenon}") || exit 2
command -v valgrind >/dev/null || { echo "valgrind is missing: make deps"; exit 2; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
cat >cost.yaml <<END
study: cost
base: xor_tep
set: { dim: 24, train.epochs: 25, train.batch: 64, rtol: 1e-3, train.lr: 0.01 }
search: { beta: 0.1..0.2 }
objectives: [ accuracy max 0, seconds min 1000, parameters min 1e8, epochs_to_90 min 1000 ]
rules: [ "loss > 100" ]
trials: 1
END
count() { valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'; }
python() { python3 -c 'import sqlite3, sys
d = sqlite3.connect("cost.db")
for row in d.execute(sys.argv[1]): print(*row)
d.commit()' "$1"; }
"$tenon" lab run cost.yaml --workers=1 >/dev/null 2>&1 || { echo "the study fails"; exit 1; }
beta=$(python "select x ->> '\$[0]' from trial")
python "update trial set state = 0, attempt = 0" && python "delete from report"
lab=$(count "$tenon" lab work cost.db cost)
bare=$(count "$tenon" train xor_tep dim=24 train.epochs=25 train.batch=64 rtol=1e-3 train.lr=0.01 beta="$beta" seed=42 threads=1 log.level=info ckpt.every=0 \
    ckpt.keep_best=0 train.test=off train.eval_every=32 run=bare)
more=$(((lab - bare) * 10000 / bare)) # hundredths of a percent
echo "train $bare, lab $lab instructions: $(python3 -c "print('%+.2f %%' % ($more / 100))")"
if [ -n "$lab" ] && [ "$more" -lt 100 ]; then echo "1 passed, 0 failed"; else echo "0 passed, 1 failed"; exit 1; fi
