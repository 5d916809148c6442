#!/usr/bin/env bash
# Tenon against PyTorch: bench/peers/run.sh PYTHON [gpt2|ten|gru|tep ...]
# PYTHON is an interpreter with torch (README.md). Builds the command, then run.py times both sides alternately and prints one page of
# Markdown on stdout and progress on stderr. All cases take an hour or two. PEERS_SMALL=1 runs tiny shapes to test the script itself;
# PEERS_ROUNDS (5), PEERS_THREADS ("1 2"), PEERS_SECONDS (20), PEERS_TYPES ("bfloat16 float32") and PEERS_COMPILE (1; 0: no
# torch.compile, which takes half a minute a setting) change the rest.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
python=$(command -v "$1") || { echo "run.sh: there is no $1" >&2; exit 2; }
shift
"$python" -c 'import torch' 2>/dev/null || { echo "run.sh: $python has no torch: see bench/peers/README.md" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
make -C "$root" -j"$(nproc)" BUILD="$build" all >&2
exec "$python" "$root/bench/peers/run.py" --tenon "$root/$build/tenon" "$@"
