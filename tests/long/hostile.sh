#!/usr/bin/env bash
# A repository that means harm (tests/hostile/make.py), opened by every command (tests/hostile/commands.txt) and from Python
# (tests/hostile/open.py): what is demanded of each is at the top of tests/hostile/run.py. ARTEFACT[:COMMAND] as arguments, with * and
# ?, runs only those. Ends with "N passed, N failed"; each command on each artefact is one test.
set -euo pipefail
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$root" && realpath "${BUILD:-build}")
tenon=$build/tenon work=$build/long/hostile good=$build/long/hostile/good
for tool in strace "${CC:=gcc}"; do command -v "$tool" >/dev/null || { echo "$tool is missing: make deps"; exit 2; }; done
PYTHON=$(realpath "$(command -v /usr/bin/python3 || command -v python3)") # a path: a wrapper would start programs of its own
"$PYTHON" -c 'import numpy' || { echo "numpy is missing: make deps"; exit 2; }
export CC PYTHON PYTHONPATH=$root/python TENON_LIBRARY=$build/libtenon.so PYTHONDONTWRITEBYTECODE=1
chmod -R u+w "$work" 2>/dev/null || true
rm -rf "$work" && mkdir -p "$good" && cd "$good"
"$CC" -std=gnu11 -O1 -Wall -Wextra "$root/tests/hostile/watch.c" -o "$work/watch"

# Valid things, small: what the artefacts are made of, and what memory is measured against.
printf 'ab\na longer one\n' >p.txt
seq 1 600 | sed 's/$/ the cat sat on the mat/' >t.txt
small=(data=t.txt train.steps=4 train.context=16 train.batch=2 dim=16 layers=1 heads=1 train.eval_every=2 train.eval_batches=2 ckpt.every=2 train.schedule=constant
    threads=1)
"$tenon" train gpt_tiny run=r "${small[@]}" >log 2>&1
"$tenon" data prepare t.txt out=tok tokenizer=train:300 >>log 2>&1
"$tenon" train gpt_tiny run=rt "${small[@]}" data=tok >>log 2>&1
"$tenon" ckpt convert r m.safetensors >>log
"$tenon" data prepare t.txt out=d >>log 2>&1
mkdir p
for split in train dev test; do
    printf 'gold_label\tsentence1\tsentence2\n' >p/snli_$split.tsv
    for who in man woman boy dog girl cat; do printf 'entailment\tA %s is in the %s.\tIn the %s is a %s.\n' $who $split $split $who; done >>p/snli_$split.tsv
done
"$tenon" train flow_text run=b task.data=p train.steps=2 task.vocab=300 task.length=8 width=4 height=4 prefix=4 dim=8 heads=1 ffn=8 layers=1 decoder.dim=8 decoder.heads=1 decoder.layers=1 flow.dim=4 flow.layers=1 flow.depth=4 train.batch=4 threads=1 >>log 2>&1
"$tenon" train wire run=w a.model=r task=recall task.pairs=2 task.keys=20 task.size=8 task.heldout=4 train.steps=2 train.batch=2 slots=2 width=8 dim=8 heads=2 ffn=8 layers=1 hidden=8 threads=1 >>log 2>&1
printf 'baba: bebe\n' | "$tenon" wire encode w bits=8 out=message.wire >>log 2>&1
printf 'model: gpt\ndim: 16\nlayers: 1\nheads: 1\nvocab: 256\nthreads: 1\ntrain: {steps: 2, context: 16, batch: 2, eval_batches: 1, warmup: 1}\n' >c.yaml
cat >s.yaml <<'END'
study: s
base: xor_tep
set: { train.epochs: 2, task.size: 64, train.batch: 16 }
search: { dim: log int 4..8, train.lr: log 1e-3..1e-1 }
sides: { ep: { set: { grad: ep_centred } }, bp: { set: { grad: bptt } } }
objectives: [ accuracy max 0, seconds min 100 ]
sampler: random
trials: 24
END
"$tenon" lab run s.yaml --workers=1 >>log 2>&1
"$PYTHON" - "$root/tests/hostile" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
from formats import llama2c, npy, write
write("./m.bin", llama2c(8, 8, 1, 2, 2, 256, 16, 256 * 8 + 8 + 4 * 64 + 8 + 3 * 64 + 8 + 16 * 4))
write("./x.npy", npy("(4, 2)", data=bytes(32)))
END
cd "$work" && exec "$PYTHON" "$root/tests/hostile/run.py" "$work" "$good" "$tenon" "$@"
