#!/usr/bin/env bash
# Whole models on the GPU: 20 training steps in f32 against the CPU's, in bf16 and f16 near them; the same bits twice; sequences in chunks
# against whole ones; texts and held-out losses against the CPU's; tenon check; a run that is stopped and goes on has the losses of
# one that was not; memory stays flat over many steps.
#
#   tests/cuda/models.sh [PART ...]          of: steps half surfaces chunks sample check resume soak
#                                            DEVICE=cpu: the script where there is no GPU, but for soak
set -uo pipefail
cd "$(dirname "$0")/../.."
tenon=${BUILD:-build}/tenon unit=${BUILD:-build}/unit device=${DEVICE:-cuda} passed=0 failed=0
parts=" $* "
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat README.md ARCHITECTURE.md CONTRIBUTING.md docs/*.md > "$work/text.txt"
text="data=$work/text.txt train.context=128 train.batch=4 train.eval_every=0 train.eval_batches=2 train.warmup=5 log.every=1 loader.workers=0"
small=$text
lattice="task.size=200 dim=32 layers=2 depth=8 train.batch=8"
images="task=route task.images=strokes task.size=200 train.batch=8"
bridge="task=snli task.data=$work/pairs task.vocab=300 width=8 height=6 prefix=6 dim=32 heads=4 decoder.dim=32 decoder.heads=4 flow.dim=16 flow.depth=6 train.batch=12"

# Sentence pairs in the form of SNLI.
pairs() {
    local part who does where
    mkdir -p "$work/pairs"
    for part in train dev test; do
        printf 'gold_label\tsentence1\tsentence2\n' > "$work/pairs/snli_$part.tsv"
        for who in man woman boy dog girl; do for does in runs sleeps eats plays; do for where in park street house garden; do
            case $part:$where in test:garden | dev:house | train:park | train:street)
                printf 'entailment\tA %s %s in the %s today.\tThe %s is where a %s %s.\n' $who $does $where $where $who $does ;;
            esac
        done; done; done >> "$work/pairs/snli_$part.tsv"
    done
}

# NAME, then settings: trains and leaves the losses in $work/NAME.losses; none where it fails. A name used twice goes on with its run.
losses() {
    local name=$1
    shift
    rm -f "$work/$name.losses"
    # shellcheck disable=SC2086
    "$tenon" train "$@" $small run="$work/$name" > "$work/$name.log" 2>&1 || { tail -3 "$work/$name.log"; return 1; }
    grep -o '"loss":[0-9.e+-]*' "$work/$name/metrics.jsonl" | cut -d: -f2 > "$work/$name.losses"
}

# What, two lists of losses, the most they may differ as a part.
near() {
    if paste "$2" "$3" | awk -v most="$4" 'NF != 2 { bad = 1 } { d = $1 - $2; if (d < 0) d = -d; if (!(d <= most * $2)) bad = 1; if (d / $2 > w) w = d / $2 } END { printf "  largest difference %.1e of %d losses\n", w, NR; exit bad || NR == 0 }'
    then passed=$((passed + 1)); echo "ok      $1"
    else failed=$((failed + 1)); echo "FAILED  $1"; fi
}

ok() { passed=$((passed + 1)); echo "ok      $1"; }
bad() { failed=$((failed + 1)); echo "FAILED  $1"; }
wanted() { [ "$parts" = '  ' ] || [[ $parts == *" $1 "* ]]; }

i=0
# A model, and how far its losses in bf16 may lie from the CPU's.
compare() {
    local model=$1 far=$2
    i=$((i + 1))
    # shellcheck disable=SC2086
    {
        losses cpu$i $model device=cpu compute=f32 train.steps=20
        losses f32$i $model device=$device compute=f32 train.steps=20
        losses bf16$i $model device=$device train.steps=20
        losses again$i $model device=$device train.steps=20
    }
    near "${model%% task*}: f32 as on the CPU" $work/f32$i.losses $work/cpu$i.losses 1e-4
    near "${model%% task*}: bf16 near it" $work/bf16$i.losses $work/cpu$i.losses "$far"
    near "${model%% task*}: the same bits twice" $work/again$i.losses $work/bf16$i.losses 0
}

if wanted steps; then
    for model in "gpt dim=64 layers=2 heads=2" "gpt shape=gpt2 dim=64 layers=2 heads=2" "ten dim=64 layers=2" "ten preset=ten_b dim=64 layers=2 k=16 heads=2 train.dropout=0" "ten dim=64 layers=4 pattern=DOEW heads=2" "gpt_conv_gate dim=64 layers=2 heads=2" "ten dim=64 layers=2 pattern=O heads=2 rotate=token qk_norm=true write=normed" "ten dim=64 layers=2 pattern=DO heads=2 omega=zero rotate=learned gate=sigmoid forget=fixed" "ten dim=64 layers=2 pattern=O heads=2 qk_norm=true write=delta train.context=32"; do
        compare "$model" 1e-2
    done
    small="train.eval_every=0 train.warmup=0 train.lr=2e-3 log.every=1 loader.workers=0"
    for model in "xor_tep dim=32" "xor_tep dim=16 grad=implicit" "xor_tep dim=16 grad=bptt" "xor_tep dim=16 mode=energy" "xor_tep dim=16 mode=hopfield" "xor_tep dim=16 mode=energy solver=anderson"; do
        compare "$model" 5e-2
    done
    small=$text
fi

# f16 with its loss scale, in the log; then texts and a held-out loss.
if wanted half; then
    for model in "gpt dim=64 layers=2 heads=2" "gpt shape=gpt2 dim=64 layers=2 heads=2" "ten dim=64 layers=4 pattern=DOEW heads=2"; do
        i=$((i + 1))
        losses cpu$i $model device=cpu compute=f32 train.steps=20
        losses half$i $model device=$device compute=f16 train.steps=20
        losses again$i $model device=$device compute=f16 train.steps=20
        near "$model: f16 near f32 on the CPU" $work/half$i.losses $work/cpu$i.losses 1e-2
        near "$model: the same bits twice" $work/again$i.losses $work/half$i.losses 0
        if grep -q '"loss_scale":65536' "$work/half$i/metrics.jsonl"; then ok "$model: a loss scale"; else bad "$model: a loss scale"; fi
        "$tenon" sample "$work/half$i" --prompt='The plan' temperature=0 max_tokens=20 device=$device > "$work/half.text" 2> "$work/err" || cat "$work/err"
        if [ -s "$work/half.text" ]; then ok "$model: a text"; else bad "$model: a text"; fi
        for d in cpu "$device"; do
            "$tenon" eval "$work/half$i" device=$d --json 2> "$work/err" | grep '"loss"' | grep -o '"value":[^,]*' | cut -d: -f2 > "$work/half.$d.eval" || cat "$work/err"
        done
        near "$model: held-out loss in f16" "$work/half.$device.eval" "$work/half.cpu.eval" 1e-2
    done
    for name in 'half:' 'products:' 'run: in sessions, half precision'; do
        if TENON_TEST_DEVICE=$device "$unit" "$name" > "$work/unit.log" 2>&1; then ok "unit tests $name"
        else bad "unit tests $name"; grep -E 'FAILED|apart|error|instead' "$work/unit.log" | head -8; fi
    done
fi

if wanted surfaces; then # a small rate: at 2e-3 a rate that differs by 5e-7 gives losses that differ by 1e-2 after ten steps, on one device
    small="train.eval_every=0 train.warmup=0 train.lr=5e-5 log.every=1 loader.workers=0 train.test=off"
    for model in "flow task=route task.images=strokes $lattice" "flow task=strokes $lattice field=4 field_deposit=smooth planes=beside keep=2" \
        "net kind=linear $images" "net kind=mlp dim=32 $images" "net kind=cell_mlp dim=32 $images" "net kind=conv dim=16 $images" "net kind=patches dim=32 $images"; do
        compare "$model" 5e-2
    done
    pairs
    for body in lattice identity mlp transformer; do
        compare "bridge body=$body $bridge" 5e-2
    done
    small=$text
fi

if wanted chunks; then # the last one is shorter than the others
    long="ten dim=64 layers=4 pattern=DOEE k=16 heads=2 train.steps=20"
    # shellcheck disable=SC2086
    {
        losses whole $long device=$device compute=f32
        losses chunks $long device=$device compute=f32 plan.recompute=chunk plan.chunk=48
        losses host $long device=cpu compute=f32 plan.recompute=chunk plan.chunk=48
        losses bf16 $long device=$device plan.recompute=chunk plan.chunk=48
        losses again $long device=$device plan.recompute=chunk plan.chunk=48
        losses added $long device=$device compute=f32 plan.recompute=chunk plan.chunk=48 train.batch=2 train.accumulate=2
        losses apart $long device=$device compute=f32 train.batch=2 train.accumulate=2
    }
    near 'chunks: those of the whole' "$work/chunks.losses" "$work/whole.losses" 1e-5
    near 'chunks: f32 as on the CPU' "$work/chunks.losses" "$work/host.losses" 1e-4
    near 'chunks: bf16 near it' "$work/bf16.losses" "$work/whole.losses" 1e-2
    near 'chunks: the same bits twice' "$work/again.losses" "$work/bf16.losses" 0
    near 'chunks: two batches a step' "$work/added.losses" "$work/apart.losses" 1e-5
    if TENON_TEST_DEVICE=$device "$unit" chunks: > "$work/unit.log" 2>&1; then ok 'chunks: every kind of layer'
    else bad 'chunks: every kind of layer'; grep -E 'FAILED|apart|error|instead' "$work/unit.log" | head -8; fi
fi

# The text and the held-out loss of a run, on both devices. Prompts go in pieces of 32, 4 and 1 tokens, then token by token.
speaks() {
    local name=$1 prompt='The same plan, with other kernels: an op has them by device, and whatever it'
    for d in cpu "$device"; do
        "$tenon" sample "$work/$name" --prompt="$prompt" temperature=0 max_tokens=60 device=$d compute=f32 > "$work/$name.$d.text" 2> "$work/err" || cat "$work/err"
        "$tenon" sample "$work/$name" --prompt="$prompt" temperature=0.7 seed=3 n=3 max_tokens=20 device=$d compute=f32 > "$work/$name.$d.texts" 2> "$work/err" || cat "$work/err"
        "$tenon" eval "$work/$name" device=$d compute=f32 --json 2> "$work/err" | grep '"loss"' | grep -o '"value":[^,]*' | cut -d: -f2 > "$work/$name.$d.eval" || cat "$work/err"
    done
    if [ -s "$work/$name.$device.text" ] && cmp "$work/$name.cpu.text" "$work/$name.$device.text"; then ok "$name: the text at temperature 0"; else bad "$name: the text at temperature 0"; head -c 400 "$work/$name.$device.text"; fi
    if [ -s "$work/$name.$device.texts" ] && cmp "$work/$name.cpu.texts" "$work/$name.$device.texts"; then ok "$name: three drawn side by side"; else bad "$name: three drawn side by side"; fi
    near "$name: held-out loss" "$work/$name.$device.eval" "$work/$name.cpu.eval" 1e-5
    "$tenon" eval "$work/$name" device=$device --json 2> "$work/err" | grep '"loss"' | grep -o '"value":[^,]*' | cut -d: -f2 > "$work/$name.bf16.eval" || cat "$work/err"
    near "$name: held-out loss in bf16" "$work/$name.bf16.eval" "$work/$name.cpu.eval" 1e-2
}

if wanted sample; then
    losses gpt gpt dim=64 layers=2 heads=2 device=$device train.steps=300
    losses ten ten dim=64 layers=4 pattern=DOEW k=16 heads=2 device=$device train.steps=300
    speaks gpt
    speaks ten
fi

if wanted check; then
    for model in "gpt vocab=256 dim=64 layers=2 heads=2" "ten vocab=256 dim=64 layers=4 pattern=DOEW k=16 heads=2" "xor_tep dim=16" \
        "flow inputs=64 tokens=1 dim=32 depth=8 field=2" "net inputs=64 tokens=1 classes=4 kind=conv dim=8" "net inputs=64 tokens=1 classes=4 kind=patches dim=32" "bridge vocab=256 text=16 width=8 height=6 prefix=6 dim=32 heads=2 decoder.dim=32 decoder.heads=2 flow.dim=16"; do
        for compute in f32 bf16; do
            # shellcheck disable=SC2086
            if "$tenon" check $model device=$device compute=$compute > "$work/check.log" 2>&1
            then ok "check ${model%% *} in $compute"; else bad "check ${model%% *} in $compute"; grep -E 'FAIL|error' "$work/check.log"; fi
        done
    done
fi

if wanted resume; then
    losses part ten dim=64 layers=2 device=$device train.steps=10 train.schedule=constant ckpt.every=5
    losses part ten dim=64 layers=2 device=$device train.steps=20 train.schedule=constant ckpt.every=5
    losses unbroken ten dim=64 layers=2 device=$device train.steps=20 train.schedule=constant
    near 'stopped and gone on' "$work/part.losses" "$work/unbroken.losses" 0
    small="train.eval_every=0 train.warmup=0 log.every=1 loader.workers=0"
    # shellcheck disable=SC2086
    { # noise goes to 0, and the target grows, over all steps of the run
        losses flows flow task=route task.images=strokes $lattice device=$device train.steps=20 ckpt.every=5 ckpt.keep_latest=9
        cp -r "$work/flows" "$work/flows_part"
        rm -r "$work"/flows_part/step-1[05] "$work/flows_part/step-20" && ln -sfn step-5 "$work/flows_part/latest" && ln -sfn step-5 "$work/flows_part/best"
        losses flows_part flow task=route task.images=strokes $lattice device=$device train.steps=20 ckpt.every=5 ckpt.keep_latest=9
    }
    near 'flow, stopped and gone on' "$work/flows_part.losses" "$work/flows.losses" 0
    small=$text
fi

if wanted soak; then
    taken() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits; }
    soak() { # steps, model and settings
        local steps=$1 pid early late= now rc
        shift
        "$tenon" train "$@" device=cuda train.steps="$steps" run="$work/soak-$1" > "$work/soak.log" 2>&1 &
        pid=$!
        sleep 2; early=$(taken)
        while kill -0 $pid 2> /dev/null; do now=$(taken); [ "$now" -le "${late:-0}" ] || late=$now; sleep 0.2; done
        wait $pid && rc=0 || rc=1
        if [ $rc = 0 ] && [ -n "$late" ] && [ "$early" -gt 0 ] && [ "$late" -le $((early + 16)) ]; then ok "$1: $steps steps, $early and $late MiB"
        else bad "$1: $steps steps: exit code $rc, $early and ${late:-?} MiB"; tail -2 "$work/soak.log"; fi
    }
    # shellcheck disable=SC2086
    {
        soak 20000 gpt dim=64 layers=2 heads=2 $small
        soak 4000 flow task=strokes $lattice spawn=2 rho=0.2 noise=0.1 noise_z=true train.eval_every=0 log.every=100
    }
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
