#!/usr/bin/env bash
# The energy-flow lattice and the text bridge on a GPU: flow by flow against the CPU, sentences at once against one by one, and the
# unit tests of both on the device (flow.py says what is asked).
#
#   tests/cuda/flow.sh [flows|encode|unit ...]     DEVICE=cpu compares the CPU with itself (where there is no GPU: the script, not the device)
#                                                  PYTHON names an interpreter with numpy
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD:-build}") device=${DEVICE:-cuda} passed=0 failed=0
parts=" $* "
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TENON_LIBRARY=$build/libtenon.so PYTHONPATH=$PWD/python
python=${PYTHON:-python3}
ok() { passed=$((passed + 1)); echo "ok      $1"; }
bad() { failed=$((failed + 1)); echo "FAILED  $1"; }
wanted() { [ "$parts" = '  ' ] || [[ $parts == *" $1 "* ]]; }

# Name, settings: a lattice that has learned a little on the CPU, then its flows on both.
compare() {
    local name=$1
    shift
    if ! "$build/tenon" train flow task=route task.images=strokes task.size=200 dim=32 layers=2 train.batch=8 train.steps=40 train.warmup=0 \
        train.eval_every=0 train.test=off device=cpu "$@" run="$work/run" --fresh > "$work/log" 2>&1
    then bad "flows, $name: $(tail -1 "$work/log")"; return; fi
    if "$python" tests/cuda/flow.py flows "$work/run" "$device"; then ok "flows, $name: $device as the CPU"; else bad "flows, $name: $device as the CPU"; fi
}

if wanted flows; then
    compare plain depth=16
    compare 'as far as they go' depth=40 stop=never
    compare 'spawned, in a field' depth=12 spawn=1 rho=0.1 field=4 field_deposit=smooth
    compare 'samples stop' depth=24 stop=sample s_min=4 patience=3
fi

if wanted encode; then
    if "$python" tests/cuda/flow.py encode "$device"; then ok "encode: 64 sentences at once"; else bad "encode: 64 sentences at once"; fi
fi

if wanted unit; then
    for name in flow: bridge: net: 'rollout: as on the CPU'; do
        TENON_TEST_DEVICE=$device "$build/unit" "$name" > "$work/log" 2>&1 && ok "unit tests $name" || { bad "unit tests $name"; grep -E '^\[  FAILED|ERROR|error' "$work/log" | awk '!seen[$0]++' | head -8; }
    done
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
