"""Runs the model `wire` against its twin (wire_twin.py) in many settings: loss, -log p of every answer token, Z and all gradients, and
the losses of a few training steps, in float32 against float64. Prints the worst difference of each. Ends with "N passed, N failed".

    python wire_check.py [NAME ...]        TENON=build/tenon
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import wire_twin

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENON = os.environ.get("TENON", str(ROOT / "build" / "tenon"))
TERMS = "loss.first=0.7 loss.kd=0.6 loss.kd_temperature=1.5 loss.state=0.4 loss.states=2 loss.ae=0.5 loss.nce=0.3"
LLAMA = "dim=16 layers=2 heads=4 kv_heads=2 ffn=24 vocab=31"
QWEN3 = "dim=12 layers=2 heads=2 kv_heads=1 head_dim=8 vocab=27 qk_norm=true rope_pairs=interleaved norm_eps=1e-5"
SIZES = "a.length=6 a.text=8 a.told=17 b.length=8 b.text=10 b.told=23 b.ids=31"

# name: settings, steps of training, and words of the command alone
CASES = {
    "embeddings": ("place=embeddings", 0),
    "keys": ("place=keys", 0),
    "embeddings, all terms": (f"place=embeddings {TERMS} {SIZES}", 0),
    "keys, all terms": (f"place=keys {TERMS} {SIZES}", 0),
    "sender a": (f"encoder=sender place=embeddings {SIZES}", 0),
    "sender b, its layer 1, keys": (f"encoder=sender sender=b sender_layer=1 {TERMS} {SIZES}", 0),
    "free": ("encoder=free place=embeddings slots=4 loss.nce=0.5 loss.nce_temperature=0.5", 0),
    "constant, keys": ("encoder=constant slots=3 loss.first=1", 0),
    "private slots": (f"place=embeddings slots=3 private=2 loss.nce=0.2 {SIZES}", 0),
    "private slots alone, keys, refiner": ("slots=0 private=3 refiner=2", 0),
    "refiner, free": ("encoder=free refiner=1 place=embeddings", 0),
    "distillation, T = 4": (f"place=embeddings loss.kd=1 loss.kd_temperature=4 {SIZES}", 0),
    "distillation, T = 0.7, keys": (f"loss.kd=2 loss.kd_temperature=0.7 {SIZES}", 0),
    "states of every layer": ("place=embeddings loss.state=1 loss.states=9", 0),
    "autoencoding alone at first": (f"place=embeddings loss.ae=0.5 ae.alone=2 ae.until=4 train.lr=0.003 train.eps=1e-6 {SIZES}", 6),
    "training, all terms, keys": (f"{TERMS} train.lr=0.003 train.eps=1e-6 train.clip=0.8 train.decay=0.1 {SIZES}", 6),
    "first tokens": (f"place=embeddings loss.k=3 loss.k_ce=0.8 {SIZES}", 0),
    "all terms of first tokens, keys": (f"{TERMS} loss.k=2 loss.k_ce=0.8 {SIZES}", 0),
    "all terms of first tokens, each from its pass": (f"place=embeddings {TERMS} loss.k=2 loss.k_ce=0.8 {SIZES}", 0, "opt.one_pass=off"),
    "each from its pass, keys, more tokens than answers have": (f"{TERMS} loss.k=9 loss.k_ce=0.8 {SIZES}", 0, "opt.one_pass=off"),
    "training on first tokens": (f"place=embeddings {TERMS} loss.k=3 loss.k_ce=0.5 train.lr=0.003 train.eps=1e-6 {SIZES}", 6),
    "one reader": (f"a.shape='{LLAMA}' place=embeddings {TERMS}", 0),
    "qwen 3 beside llama, keys": (f"a.shape='{QWEN3}' b.shape='{LLAMA}' {TERMS}", 0),
    "entropy of the first token": (f"place=embeddings loss.entropy=0.7 {SIZES}", 0),
    "entropy, keys, each from its pass": (f"loss.entropy=0.7 {SIZES}", 0, "opt.one_pass=off"),
    "means and deviations of slots": (f"place=embeddings loss.manifold=20 {SIZES}", 0),
    "means and deviations of large tables": ("place=embeddings loss.manifold=20 a.shape='dim=8 layers=1 heads=2 vocab=9000' "
                                            "b.shape='dim=8 layers=1 heads=2 vocab=4096'", 0),
    "sizes of slots, gain": (f"place=embeddings loss.rms=3 loss.scale=2 slots=3 private=2 {SIZES}", 0),
    "sizes of slots, keys, sender": (f"encoder=sender loss.rms=3 {SIZES}", 0),
    "one slot aligned": (f"place=embeddings loss.align=20 {SIZES}", 0),
    "two slots aligned by cosine": (f"place=embeddings loss.cosine=2 loss.align_k=2 {SIZES}", 0),
    "slots aligned with the whole answer": (f"place=embeddings slots=2 loss.align=9 loss.cosine=2 loss.align_k=0 {SIZES}", 0),
    "training, terms that are off": (f"place=embeddings loss.entropy=0.3 loss.manifold=5 loss.rms=0.5 loss.scale=1 loss.align=5 "
                                     f"loss.cosine=0.5 loss.align_k=3 {TERMS} train.lr=0.003 train.eps=1e-6 {SIZES}", 6),
    "no layers, one slot, one question": ("layers=0 slots=1 questions=1 place=embeddings loss.nce=1", 0),
}


def run(name, path):
    text, steps, *words = CASES[name]
    _, tensors = wire_twin.write(path, text, batch=4, steps=steps, seed=1 + list(CASES).index(name))
    told = subprocess.run([TENON, "check", f"--against={path}", "--json", *words], capture_output=True, text=True)
    rows = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    rows = [r for r in rows if "verdict" in r]
    wanted = [n for n in tensors if n.startswith(("grad.", "output."))]
    missing = sorted(set(wanted) - {r["name"] for r in rows})
    good = told.returncode == 0 and rows and not missing and all(r["verdict"] == "pass" for r in rows)
    if not rows:
        print(f"FAILED {name}: {told.stderr.strip() or told.stdout.strip()}")
        return False
    worst = max(rows, key=lambda r: r.get("value", float("inf")))
    print(f"{'ok    ' if good else 'FAILED'} {name}: {len(rows)} tensors, worst {worst.get('value', float('nan')):.1e} at {worst['name']}"
          + (f", not compared: {' '.join(missing)}" if missing else ""))
    return good


def main():
    names = sys.argv[1:] or list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        results = [run(name, f"{folder}/ref.safetensors") for name in names]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
