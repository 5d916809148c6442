#!/usr/bin/env bash
# The C interface and the Python client with device=cuda: losses, norms of gradients, what reading and writing tensors does, and
# texts are those of device=cpu (f32, within 1e-4); auto takes the GPU; where none is to be seen the error says what to do.
#
#   tests/cuda/api.sh          DEVICE=cpu compares the CPU with itself (where there is no GPU: the script, not the device)
#                              PYTHON names an interpreter with numpy
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD:-build}") device=${DEVICE:-cuda} passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TENON_LIBRARY=$build/libtenon.so PYTHONPATH=$PWD/python
python=${PYTHON:-python3}
ok() { passed=$((passed + 1)); echo "ok      $1"; }
bad() { failed=$((failed + 1)); echo "FAILED  $1"; }

# What, two lists of lines, the most that losses of steps may differ as a part, norms and what comes after them 20 times that;
# names and texts must be the same.
near() {
    if paste -d '\n' "$2" "$3" | awk -v most="$4" '
        NR % 2 { split($0, a); line = $0; n = NF; next }
        $1 == "model" { next }
        $1 == "text" || n != NF || a[1] != $1 { if (line != $0) { print "  " line " | " $0; bad = 1 } next }
        { for (i = 2; i <= NF; i++) { d = a[i] - $i; if (d < 0) d = -d; m = $i < 0 ? -$i : $i; k = $1 == "step" && i == 2
              if (!(d <= most * m * (k ? 1 : 20))) { bad = 1; print "  " line " | " $0 } if (m > 0 && d / m > w[k]) w[k] = d / m; seen[k]++ } }
        END { printf "  largest difference %.1e of %d losses, %.1e of %d other numbers\n", w[1], seen[1], w[0], seen[0]; exit bad || !seen[1] || !seen[0] }'
    then ok "$1"; else bad "$1"; fi
}

ln -s "$build/libtenon.so" "$work/libtenon.so.0" # the name it is linked under
export LD_LIBRARY_PATH=$work:$LD_LIBRARY_PATH
${CC:-cc} -O1 -Wall -Wextra -Iinclude tests/cuda/api.c -L"$build" -ltenon -lm -o "$work/api" || { echo 'FAILED  api.c does not compile'; exit 1; }
for d in cpu "$device"; do
    "$work/api" $d "$work/c.$d" > "$work/c.$d.out" 2> "$work/err" || bad "C on $d: $(cat "$work/err")"
    "$python" tests/cuda/api.py $d "$work/py.$d" > "$work/py.$d.out" 2> "$work/err" || bad "Python on $d: $(tail -2 "$work/err")"
done
if [ "$(grep -c "^model .* $device\$" "$work/c.$device.out")" = 2 ]; then ok "it was $device that computed"; else bad "it was $device that computed"; fi
near "C: $device as the CPU" "$work/c.$device.out" "$work/c.cpu.out" 1e-4
near "Python: $device as the CPU" "$work/py.$device.out" "$work/py.cpu.out" 1e-4
near 'Python as C' "$work/py.$device.out" "$work/c.$device.out" 1e-6
if "$python" -c 'import sys, tenon; sys.exit(tenon.open("gpt_tiny", vocab=256, device="auto").device != sys.argv[1])' "$device"; then ok 'auto'; else bad 'auto'; fi

CUDA_VISIBLE_DEVICES='' "$work/api" cuda "$work/none" > /dev/null 2> "$work/err"
rc=$?
if [ $rc = 2 ] && grep -q 'device=cuda: .*use device=cpu' "$work/err"; then ok 'without a GPU'; else bad "without a GPU (exit code $rc): $(cat "$work/err")"; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
