#!/bin/sh
# Tests NAME.so: every check of `tenon check` on a small model, then a training in which the loss must fall.
set -eu
cd "$(dirname "$0")"
tenon=${TENON:-tenon}
small='dim=32 layers=1 train.context=32'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$tenon" check ./NAME.so vocab=64 $small

yes 'a cell that reads this line again and again knows it by heart. ' | head -n 400 >"$work/text.txt"
"$tenon" train ./NAME.so $small data="$work/text.txt" run="$work/run" train.batch=8 train.steps=60 train.lr=1e-2 \
    train.warmup=5 train.holdout_frac=0.1 --json >"$work/result"
loss=$(sed -n 's/.*"heldout_loss","value":\([0-9.eE+-]*\).*/\1/p' "$work/result")
awk -v loss="$loss" 'BEGIN { print "held-out loss " loss; exit !(loss != "" && loss < 2.5) }'
text=$("$tenon" sample "$work/run" model=./NAME.so --prompt='a cell that reads' temperature=0 max_tokens=40 2>/dev/null)
case $text in *' again and again'*) echo 'it writes the line' ;; *) echo "it does not write the line: $text" && exit 1 ;; esac
echo "NAME: passed"
