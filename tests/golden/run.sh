#!/usr/bin/env bash
# The models against files that their PyTorch twins wrote in float64 (bench/peers): outputs, every gradient, and the
# losses of 20 training steps (wire: 12); ten_study by the study's own program in float32, 50 steps. Each in plain f32, with every switch off, and
# with recomputation (of layers; of chunks where there is no attention). Then a file made wrong
# on purpose, which must be noticed. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
tenon=${TENON:-${BUILD:-build}/tenon}; passed=0; failed=0
off_of() { "$tenon" config show "$1" --json | sed -n 's/.*"name": *"\(opt\.[a-z_]*\)".*/\1=off/p' | sort -u; }
ok() { if "$@" >/tmp/golden.$$ 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $*"; cat /tmp/golden.$$; fi; }
for f in tests/golden/*.safetensors; do
  model=$(head -c 4096 "$f" | grep -a -o '"model": *"[a-z]*"' | head -1 | cut -d'"' -f4)
  off=$(off_of "$model")
  [ -n "$off" ] || { echo "no opt.* switches of \"$model\" found ($f)"; exit 2; }
  ok "$tenon" check --against="$f"
  # shellcheck disable=SC2086
  ok "$tenon" check --against="$f" $off
  ok "$tenon" check --against="$f" plan.recompute=layer threads=2
  case $f in */ten_ew.*|*/gpt2.*|*/llama.*|*/qwen.*|*/gpt_conv.*|*/wire_*) ;; *) ok "$tenon" check --against="$f" plan.recompute=chunk plan.chunk=5 ;; esac
  if "$tenon" check --against="$f" train.lr=2e-3 >/tmp/golden.$$ 2>&1; then
    failed=$((failed + 1)); echo "FAILED: another learning rate went unnoticed in $f"; else passed=$((passed + 1)); fi
done
steps=$("$tenon" check --against=tests/golden/ten_study.safetensors --json | grep -c '"name":"output.losses","step":')
if [ "$steps" = 50 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: --json has the losses of $steps steps, not of 50"; fi
rm -f /tmp/golden.$$
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
