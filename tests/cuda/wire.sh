#!/usr/bin/env bash
# The first prototype's workload (preset wire_seed) on a GPU: one pass against a pass for each term and token (opt.one_pass), with a live teacher,
# a cached one and none, bf16 against tf32; losses of the first step, and how often the host waits.
#
#   tests/cuda/wire.sh [cpu] [ARM ...]     cpu: the same script at a tiny shape on the processor, in seconds. An ARM is PASSES-TEACHER-COMPUTE,
#                                          as one-live-bf16; without any, all that fit. TRACE=0 leaves out the trace (100 steps), SECONDS_EACH=15
#
# Memory at this shape, in GB, by the planner (build/unit "wire seed", which needs no GPU; workspaces of kernels, about 0.5, come on top):
#   weights of the reader, 8.03 G in bf16                                16.1
#   kept of 32 layers x 64 x 58 places for the gradient                  12.9   (gate and up 6.8, residuals 1.9, queries, keys, values 2.7,
#                                                                                attention 1.0, and what one layer's gradient needs)
#   the encoder's layers, computed again but for attention                 0.7   (4.2 kept whole; plan.recompute=trained)
#   the teacher's pass over 64 x 254 places, none of it kept              1.2
#   parameters of encoder and adapter, gradients and moments              0.2
#   in all 31.0, without a teacher 29.8; a pass for each term and token about 103 and 70
# Wanted: a step of 0.65 s with a live teacher and 0.21 s without its pass, 32 GB; one pass 2.5 and 5 times as fast as each.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD:-build}") python=${PYTHON:-python3} device=cuda
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
small=() arms=()
for word in "$@"; do if [ "$word" = cpu ]; then device=cpu; else arms+=("$word"); fi; done
trace=${TRACE:-1} seconds=${SECONDS_EACH:-15}
if [ "$device" = cpu ]; then
    small=("a.shape=dim=64 layers=3 heads=4 kv_heads=2 ffn=160 vocab=512 tied=false train.context=512" a.ids=512 bytes=64 a.text=40 a.told=64
        slots=8 width=16 dim=32 layers=1 heads=2 ffn=64 hidden=32 train.batch=4)
    trace=0 seconds=0.3
    [ ${#arms[@]} -gt 0 ] || arms=(one-live-f32 each-live-f32 one-cached-f32 each-cached-f32 one-none-f32 each-none-f32 one-live-bf16 each-live-bf16)
fi
[ ${#arms[@]} -gt 0 ] || arms=(one-live-bf16 each-live-bf16 one-cached-bf16 each-cached-bf16 one-none-bf16 one-live-tf32 one-cached-tf32)

# A name as one-live-bf16 to settings. cached: what is kept of a teacher is an input; here it is one that knows nothing.
settings_of() {
    local passes=${1%%-*} teacher=${1#*-}
    teacher=${teacher%-*}
    case $passes in one) echo opt.one_pass=on ;; each) echo opt.one_pass=off ;; *) return 1 ;; esac
    case $teacher in live) ;; cached) echo loss.teacher=cached ;; none) echo loss.kd=0 ;; *) return 1 ;; esac
    echo "compute=${1##*-}"
}

failed=0
for arm in "${arms[@]}"; do
    mapfile -t words < <(settings_of "$arm") && [ ${#words[@]} -gt 1 ] || { echo "error: $arm is no arm: one|each-live|cached|none-COMPUTE" >&2; exit 2; }
    flags=()
    [ "$trace" = 1 ] && [[ $arm == one-*-bf16 ]] && flags=(--trace)
    if ! "$build/tenon" bench wire_seed "${small[@]}" "${words[@]}" device=$device --seconds=$seconds --json "${flags[@]}" > "$work/$arm" 2> "$work/err"
    then echo "FAILED  $arm: $(tail -1 "$work/err")"; failed=1; fi
done
"$python" - "$work" "${arms[@]}" << 'END' || failed=1
import json, pathlib, sys
folder, arms = pathlib.Path(sys.argv[1]), sys.argv[2:]
rows = {}
for arm in arms:
    lines = [json.loads(x) for x in (folder / arm).read_text().splitlines() if x.startswith("{")]
    got = {x.get("group"): x for x in lines if x.get("group") in ("model", "rate", "memory", "loss", "trace")}
    if {"model", "rate", "memory", "loss"} <= set(got):
        rows[arm] = got
print(f"{'passes-teacher-compute':24} {'step ms':>10} {'samples/s':>10} {'TFLOP/s':>9} {'memory GB':>10} {'loss':>10} {'|g|':>10}  host waits a step")
for arm, x in rows.items():
    memory = x["memory"].get("measured") or x["memory"]["value"]
    waits = f"{x['trace']['host_waits'] / x['trace']['steps']:.2f}" if "trace" in x else "-"
    print(f"{arm:24} {x['model']['value']:10.2f} {x['rate']['value']:10.1f} {x['model']['gflops'] / 1e3:9.3f} {memory / 1e9:10.3f} "
          f"{x['loss']['value']:10.5f} {x['loss']['grad_norm']:10.4g}  {waits}")
good = True


def compare(what, x, y, most):
    """Readers with random weights say nearly the same to everything: the gradient's norm shows more than the loss."""
    global good
    gaps = [abs(x["loss"][k] / y["loss"][k] - 1) for k in ("value", "grad_norm")]
    fine = gaps[0] <= most and gaps[1] <= most
    good &= fine
    print(f"{'ok    ' if fine else 'FAILED'}  {what.format(y['model']['value'] / x['model']['value'])}; losses apart by {gaps[0]:.1e}, norms of "
          f"gradients by {gaps[1]:.1e} (at most {most:.0e})")


for arm, x in rows.items():
    passes, teacher, compute = arm.split("-")
    each, full = rows.get(f"each-{teacher}-{compute}"), rows.get(f"{passes}-{teacher}-tf32")
    if passes == "one" and each:
        compare(f"{teacher}-{compute}: one pass {{:.2f}} times as fast as each", x, each, 1e-4 if compute == "f32" else 2e-2)
    if compute == "bf16" and full:
        compare(f"{passes}-{teacher}: bf16 {{:.2f}} times as fast as tf32", x, full, 2e-2)
sys.exit(not (good and len(rows) == len(arms)))
END
exit $failed
