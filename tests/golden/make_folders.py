"""Writes the Hugging Face folders of tests/golden/hf: small random models of transformers and what they compute in float64.

    python make_folders.py tests/golden/hf

expected.safetensors in each folder has tokens (T), labels (T), logits (T,V), and the gradient (T,C) of the mean loss at the embeddings.
tests/families/golden_folders_test.c reads them. Needs torch and transformers.
"""
import json
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/peers"))

import torch  # noqa: E402
import transformers as tf  # noqa: E402
from exact import exact  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

T, V = 40, 24
SIZES = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=V,
             max_position_embeddings=64, initializer_range=0.3, bos_token_id=None, eos_token_id=3)


def rope(theta, kind="default", **more):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": kind, **more}}


# folder, configuration, its keys, type, files, whether config.json has the older form of rotary positions
FOLDERS = [
    ("llama", tf.LlamaConfig, {"tie_word_embeddings": False, **rope(500.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                                   original_max_position_embeddings=16)}, torch.float32, 3, False),
    ("mistral", tf.MistralConfig, {"tie_word_embeddings": True, "sliding_window": None, "head_dim": 8, **rope(1e6)}, torch.bfloat16, 1, True),
    ("qwen2", tf.Qwen2Config, {"tie_word_embeddings": True, **rope(1e4, "yarn", factor=4.0, original_max_position_embeddings=16)}, torch.float16, 1, True),
    ("qwen3", tf.Qwen3Config, {"tie_word_embeddings": False, "head_dim": 8, **rope(1e4, "linear", factor=2.0)}, torch.float32, 1, False),
]


def old_form(path):
    config = json.loads(path.read_text())
    given = config.pop("rope_parameters")
    config["rope_theta"] = given.pop("rope_theta")
    given["type"] = given.pop("rope_type")
    config["rope_scaling"] = None if given["type"] == "default" else given
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def expected(model):
    tokens, labels = torch.randint(0, V, (2, T))
    x = model.model.embed_tokens(tokens[None]).detach().requires_grad_()
    logits = model(inputs_embeds=x).logits[0]
    torch.nn.functional.cross_entropy(logits, labels).backward()
    return {"tokens": tokens.int(), "labels": labels.int(), "logits": logits.detach().float(), "gradient": x.grad[0].float()}


def main(out):
    for seed, (name, config, keys, kind, files, old) in enumerate(FOLDERS):
        torch.manual_seed(seed)
        model = tf.AutoModelForCausalLM.from_config(config(**{**SIZES, **keys})).to(kind)
        for p in model.parameters():
            if p.ndim == 1:  # norms and biases are 1 and 0 at first
                p.data += 0.3 * torch.randn(p.shape).to(kind)
        folder = pathlib.Path(out, name)
        shutil.rmtree(folder, ignore_errors=True)
        total = sum(p.numel() * p.element_size() for p in model.parameters())
        model.save_pretrained(folder, max_shard_size="5GB" if files == 1 else int(total / (files - 0.8)))
        found = len(list(folder.glob("*.safetensors")))
        assert found == files, f"{found} files, not {files}"
        if old:
            old_form(folder / "config.json")
        save_file(expected(exact(model)), folder / "expected.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
