#!/usr/bin/env bash
# Writes small reference files of our models, computed by PyTorch:  tests/peers/make_refs.sh PYTHON FOLDER [SIZE]
# PYTHON is an interpreter with torch and safetensors (bench/peers/README.md). SIZE small (default): below 2 MB a file,
# several chunks long; golden: the tiny files of tests/golden. `tenon check MODEL --against FILE` reads them.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
peers=$(dirname "$0")/../../bench/peers
python=$1 folder=$2 size=${3:-small}
mkdir -p "$folder"

case $size in
small) net="vocab=128 dim=48 layers=3" heads=6 kv=2 shape="--batch 3 --length 80" clip=0.8 ;;
golden) net="vocab=64 dim=16 layers=2" heads=4 kv=2 shape="--batch 2 --length 12" clip=1.2 ;;
*) echo "error: the size $size is neither small nor golden" >&2 && exit 2 ;;
esac
# A rate at which 20 steps move the loss, a norm that is cut in some steps, and an eps above the rounding of the smallest
# gradients: AdamW would turn that into whole steps.
train="train.lr=0.01 train.decay=0.1 train.clip=$clip train.eps=1e-6"

write() { # $1: model, $2: file, $3: settings of its own
    # shellcheck disable=SC2086
    "$python" "$peers/$1_twin.py" --settings "$3 $net $train" $shape --steps 20 --logits --out "$folder/$2.safetensors"
}

write gpt gpt2 "shape=gpt2 heads=$heads"
write gpt llama "shape=llama heads=$heads kv_heads=$kv"
write gpt qwen "heads=$heads kv_heads=$kv qkv_bias=true tied=false norm_eps=1e-5 rope_pairs=interleaved rope_base=500"
write ten ten_do "pattern=DO heads=2"
write ten ten_o "pattern=O heads=2 chunk=8"
write ten ten_ew "pattern=EW heads=2 k=8 window=5 resonance=blockdiag"
write ten ten_e "pattern=E heads=2 k=8 select=bounded xmem=true resonance=blockdiag"
write ten ten_free "pattern=E heads=2 k=8 gamma_norm=free"
write ten ten_rg "pattern=EO heads=2 k=8 select=rg rotate=true chunk=5"
write gpt gpt_conv "heads=$heads kv_heads=$kv conv=4 gate=silu"
write ten ten_turn "pattern=O heads=2 chunk=5 rotate=token qk_norm=true write=normed"
write ten ten_still "pattern=O heads=2 chunk=5 skip=false rotate=learned rotate_pairs=half forget=fixed gate=none conv_act=none"
write ten ten_real "pattern=DO heads=2 omega=zero conv=2 gate=sigmoid write=decay"
write ten ten_delta "pattern=O heads=2 qk_norm=true write=delta"
write ten_b ten_a "preset=ten_a k=8"
write ten_b ten_b "preset=ten_b k=8 heads=2"

# Equilibrium networks: every map, every gradient. Their solves amplify rounding, so few steps and a small rate; sigma of energy and
# toroidal follows the weights from step to step, which a reference does not, so those do not train.
samples() { # $1: file, $2: steps, $3: settings
    "$python" "$peers/tep_twin.py" --settings "dim=12 inputs=7 classes=5 train.lr=0.002 train.eps=1e-6 $3" --batch 6 --steps "$2" \
        --logits --out "$folder/$1.safetensors"
}

samples tep_ep 5 ""
samples tep_moved 5 "grad=ep_centred anchor=rest nudge_rtol=0.1"
samples tep_implicit 5 "grad=implicit rtol=1e-4 iterations=100"
samples tep_one_step 5 "grad=one_step"
samples tep_bptt 5 "grad=bptt"
samples tep_faithful 5 "variant=faithful"
samples tep_energy 0 "mode=energy grad=ep_centred"
samples tep_toroidal 0 "mode=toroidal grad=implicit rtol=1e-4 iterations=100"
samples tep_tokens 5 "tokens=3"

# Messages to frozen readers: all terms of the loss, steps of all three kinds.
message() { # $1: file, $2: settings
    "$python" "$peers/wire_twin.py" --settings "train.lr=0.01 train.eps=1e-6 dim=8 heads=2 ffn=12 layers=1 hidden=8 loss.first=0.7 \
        loss.kd=0.6 loss.state=0.4 loss.states=2 loss.ae=0.5 loss.nce=0.3 ae.until=8 a.length=6 a.text=8 a.told=17 b.length=8 b.text=10 \
        b.told=23 b.ids=31 $2" --batch 4 --steps 12 --out "$folder/$1.safetensors"
}

message wire_embeddings "place=embeddings slots=3 private=1"
message wire_keys "place=keys slots=4 refiner=1 loss.kd_temperature=1.5"
