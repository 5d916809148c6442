"""Hugging Face folders against transformers, both ways.

    python check_hf.py [FOLDER ...]

Random folders are written by transformers: each architecture, tied or not, heads of 128 at a width of 256, each scaling of positions, three shards,
three types, both forms of config.json. Tenon opens each: logits and the gradient at the input must be within 1e-4 of the largest of transformers in
float64 (exact.py), and 50 greedy tokens be equal. Computing in a half type it must be within 2e-2, or nearer than transformers in that type. Then
Tenon writes a folder of its own (`tenon ckpt convert`), which transformers opens: the same logits. So it does with a model of its own and with
llama2.c's, whose rotary pairs lie in another order. Folders given are only opened and compared. Needs torch, transformers, build/tenon and the
library (TENON_LIBRARY, or build/libtenon.so). Ends with "N passed, N failed".
"""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
os.environ.setdefault("TENON_LIBRARY", str(BUILD / "libtenon.so"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(ROOT / "python"))

import numpy as np  # noqa: E402
import tenon  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from exact import exact  # noqa: E402

tf.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()

VOCAB = 256  # bytes: no tokenizer is needed
SIZES = dict(hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCAB,
             max_position_embeddings=512, initializer_range=0.3, bos_token_id=None, eos_token_id=None)
ARCHITECTURES = {
    "llama": (tf.LlamaConfig, {}),
    "mistral": (tf.MistralConfig, {"sliding_window": None}),
    "qwen2": (tf.Qwen2Config, {}),
    "qwen3": (tf.Qwen3Config, {"head_dim": 32}),
}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn 2": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 128, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.3},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
}
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def cases():
    """name, architecture, keys of the configuration, type, shards, old form"""
    for arch in ARCHITECTURES:
        for tied in (False, True):
            yield f"{arch}{' tied' if tied else ''}", arch, {"tie_word_embeddings": tied}, "f32", 1, False
        yield f"{arch}, old form", arch, {}, "f32", 1, True
        yield f"{arch}, 3 shards", arch, {}, "f32", 3, False
        yield f"{arch} bf16", arch, {}, "bf16", 1, False
        yield f"{arch} f16, 3 shards", arch, {}, "f16", 3, True
        yield f"{arch}, heads of 128", arch, {"hidden_size": 256, "head_dim": 128}, "f32", 1, False
        for name, scaling in SCALINGS.items():
            yield f"{arch}, {name}", arch, {"rope_parameters": {"rope_theta": 500.0, **scaling}}, "f32", 1, False
            yield f"{arch}, {name}, old form", arch, {"rope_parameters": {"rope_theta": 500.0, **scaling}}, "f32", 1, True


def make(arch, keys, kind, seed):
    config, more = ARCHITECTURES[arch]
    torch.manual_seed(seed)
    model = tf.AutoModelForCausalLM.from_config(config(**{**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **more, **keys})).float()
    for name, p in model.named_parameters():
        if p.ndim == 1:  # norms and biases are 1 and 0 at first
            p.data += 0.3 * torch.randn_like(p)
        if "q_proj" in name or "k_proj" in name:  # scores of about 7: at 60 softmax makes 2e-4 of f32's rounding, in transformers as here
            p.data /= 3
        p.data = p.data.to(TYPES[kind]).float()
    return model.eval()


def write(folder, model, kind, shards, old):
    copied = copy.deepcopy(model).to(TYPES[kind])  # which rounds the table of frequencies, too
    copied.save_pretrained(folder, max_shard_size="5GB" if shards == 1 else int(sum(p.numel() * p.element_size() for p in copied.parameters()) / 2.2))
    found = len(list(pathlib.Path(folder).glob("*.safetensors")))
    assert found == shards, f"{found} files, not {shards}"
    if not old:
        return
    path = pathlib.Path(folder, "config.json")
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope["type"] == "default" else rope
    path.write_text(json.dumps(config))


def furthest(ours, theirs):
    """Relative to the largest of theirs."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max()) if np.isfinite(ours).all() else float("inf")


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens.astype(np.int64))).logits.double().numpy()


def gradient_of(model, tokens, labels):
    """Of the mean loss, at the embeddings."""
    x = model.model.embed_tokens(torch.tensor(tokens)).detach().requires_grad_()
    out = model(inputs_embeds=x).logits[0]
    torch.nn.functional.cross_entropy(out if out.dtype == torch.float64 else out.float(), torch.tensor(labels[0])).backward()
    return x.grad.double().numpy()


def greedy(net, model, prompt):
    net.tokenizer = "bytes"
    ours = net.sample(prompt.astype(np.int32), temperature=0, max_tokens=50).tokens
    theirs = torch.tensor(prompt.astype(np.int64))[None]
    with torch.no_grad():
        for _ in range(50):
            theirs = torch.cat((theirs, model(theirs).logits[:, -1:].argmax(-1)), 1)
    return np.array_equal(ours[-50:], theirs[0, -50:].numpy())


def convert(source, folder):
    subprocess.run([str(BUILD / "tenon"), "ckpt", "convert", str(source), f"{folder}/"], check=True, stdout=subprocess.DEVNULL)
    return tf.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")


def report(what, numbers, limit, equal=True):
    worst = max(numbers.values())
    print(f"{what:32} " + ", ".join(f"{k} {v:.1e}" for k, v in numbers.items()) + ("" if equal else ", OTHER TOKENS"))
    if not (worst <= limit and equal):
        print(f"FAILED {what}: more than {limit:.0e}, or other tokens")
    return worst <= limit and equal


def compare(net, model, random, other=None):
    """Logits and the gradient at the input; with a model in another type, also how far that one is."""
    rows = [random.integers(0, VOCAB, (2, n)) for n in (1, 7, 200)]
    tokens, labels = random.integers(0, VOCAB, (2, 1, 64))
    right = [logits_of(model, t) for t in rows] + [gradient_of(model, tokens, labels)]
    x = model.model.embed_tokens.weight.detach().numpy().astype(np.float32)[tokens]
    ours = [np.asarray(net.forward(t.astype(np.int32))) for t in rows]
    ours.append(net.run("eval", "d.embeddings", embeddings=x, labels=labels.astype(np.int32))["d.embeddings"])
    away = [furthest(a, b) for a, b in zip(ours, right)]
    numbers = {"logits": max(away[:-1]), "gradient": away[-1]}
    if other:
        away = [furthest(a, b) for a, b in zip([logits_of(other, t) for t in rows] + [gradient_of(other, tokens, labels)], right)]
        return numbers, {"logits": max(away[:-1]), "gradient": away[-1]}
    return numbers


def check_half(name, net, model, other, random):
    ours, theirs = compare(net, model, random, other)
    good = all(v <= max(2e-2, theirs[k]) for k, v in ours.items())
    print(f"{name:32} " + ", ".join(f"{k} {v:.1e} (transformers {theirs[k]:.1e})" for k, v in ours.items()))
    if not good:
        print(f"FAILED {name}: more than 2e-2 and more than transformers")
    return good


def check_case(work, case, random):
    name, arch, keys, kind, shards, old = case
    made = make(arch, keys, kind, len(name))
    theirs, ours = f"{work}/theirs", f"{work}/ours"
    write(theirs, made, kind, shards, old)
    model, net, good = exact(made), tenon.open(theirs, "threads=2"), True
    numbers = compare(net, model, random)
    if kind != "f32":
        good = check_half(f"{name}, in {kind}", tenon.open(theirs, f"compute={kind}", "threads=2"), model, copy.deepcopy(made).to(TYPES[kind]), random)
    equal = greedy(net, model, random.integers(0, VOCAB, 20))
    back = convert(theirs, ours)
    if back.dtype != TYPES[kind]:
        good = print(f"FAILED {name}: its own folder is {back.dtype}")
    numbers["back"] = furthest(logits_of(exact(back), np.arange(100)[None]), logits_of(model, np.arange(100)[None]))
    return report(name, numbers, 1e-4, equal) and bool(good)


def check_own(work, what, source):
    """A model of Tenon's as a folder: transformers computes the same."""
    net, back = tenon.open(str(source), "threads=2"), exact(convert(source, f"{work}/own"))
    tokens = np.arange(100)[None] * 7 % min(net.vocab, 256)
    return report(what, {"logits": furthest(np.asarray(net.forward(tokens.astype(np.int32))), logits_of(back, tokens))}, 1e-4)


def train(work):
    pathlib.Path(work, "t.txt").write_text(" ".join(str(i * i) for i in range(4000)))
    subprocess.run([str(BUILD / "tenon"), "train", "gpt_tiny", f"data={work}/t.txt", f"run={work}/run", "train.steps=20", "dim=64", "heads=4", "kv_heads=2",
                    "qkv_bias=true", "train.context=128", "train.batch=2", "threads=2"], check=True, capture_output=True)
    return f"{work}/run"


def main(paths):
    results, random = [], np.random.default_rng(1)
    for case in [] if paths else cases():
        with tempfile.TemporaryDirectory() as work:
            results.append(check_case(work, case, random))
    with tempfile.TemporaryDirectory() as work:
        if not paths:
            results.append(check_own(work, "a run", train(work)))
    story = ROOT.parent / "shared/data/models/stories260K/stories260K.bin"
    if not paths and story.exists():
        with tempfile.TemporaryDirectory() as work:
            results.append(check_own(work, story.name, story))
    for path in paths:
        model = tf.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        net, rows = tenon.open(path, "threads=2"), [random.integers(0, model.config.vocab_size, (1, n)) for n in (5, 100)]
        results.append(report(path, {"logits": max(furthest(np.asarray(net.forward(t.astype(np.int32))), logits_of(model, t)) for t in rows)}, 1e-3))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
