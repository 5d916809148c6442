"""Models in GGUF files against transformers: logits of the same weights.

    python check_gguf_models.py [MODEL.gguf ...]

Small random models of transformers (Llama, Mistral, Qwen2, Qwen3, heads of a width of their own; scaling of positions as in Llama 3,
linear and YaRN) are written as llama.cpp's converter
writes them, opened by Tenon, and compared with float64. Models given are read by transformers itself (f32), which needs accelerate. Needs torch, transformers,
gguf and the library (TENON_LIBRARY, or build/libtenon.so). Ends with "N passed, N failed".
"""
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("TENON_LIBRARY", str(ROOT / os.environ.get("BUILD", "build") / "libtenon.so"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(ROOT / "python"))

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import tenon  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from exact import exact, head_dim  # noqa: E402

NAMES = {"input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
         "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_proj.bias": "attn_q.bias",
         "self_attn.k_proj.bias": "attn_k.bias", "self_attn.v_proj.bias": "attn_v.bias", "post_attention_layernorm.weight": "ffn_norm.weight",
         "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
         "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight"}
SIZES = dict(hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=300,
             max_position_embeddings=512, initializer_range=0.3)


def rope(theta, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128)
MODELS = [
    ("llama", "llama", tf.LlamaConfig, {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, **rope(10000.0)}),
    ("llama 3", "llama", tf.LlamaConfig, {"rms_norm_eps": 1e-5, "tie_word_embeddings": False, **rope(500.0, **LLAMA3)}),
    ("mistral", "llama", tf.MistralConfig, {"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": None, **rope(1e6)}),
    ("mistral wide heads", "llama", tf.MistralConfig, {"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": None, "head_dim": 64, **rope(1e6)}),
    ("llama linear", "llama", tf.LlamaConfig, {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, **rope(10000.0, rope_type="linear", factor=2.5)}),
    ("llama yarn", "llama", tf.LlamaConfig, {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, **rope(10000.0, **YARN, beta_fast=8.0, beta_slow=2.0)}),
    ("qwen2", "qwen2", tf.Qwen2Config, {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, **rope(1e6)}),
    ("qwen2 yarn", "qwen2", tf.Qwen2Config, {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, **rope(1e6, **YARN)}),
    ("qwen3", "qwen3", tf.Qwen3Config, {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "head_dim": 32, **rope(1e6)}),
    ("qwen3 wide heads, yarn", "qwen3", tf.Qwen3Config, {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "head_dim": 128, **rope(1e6, **YARN)}),
]


def interleave(w, heads):
    """Rows from pairs (j, j+D/2) to (2j, 2j+1)."""
    return np.ascontiguousarray(w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape))


def divisors(model):
    """Of the frequencies: the unscaled over those that transformers uses."""
    used = model.model.rotary_emb.inv_freq.double().numpy()
    d = SIZES["hidden_size"] // SIZES["num_attention_heads"]
    return (500.0 ** (-np.arange(0, d, 2) / d) / used).astype(np.float32)


def write(path, arch, model, kind):
    """kind: the type of the matrices, which in the model become what the file has."""
    w, c = gguf.GGUFWriter(path, arch), model.config
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    if head_dim(c) * c.num_attention_heads != c.hidden_size or arch == "qwen3":
        w.add_key_length(head_dim(c))
        w.add_value_length(head_dim(c))
    p = c.rope_parameters
    if p["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(p["rope_type"]))
        w.add_rope_scaling_factor(p["factor"])
    if p["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(p["original_max_position_embeddings"])
        if "beta_fast" in p:
            w.add_rope_scaling_yarn_beta_fast(p["beta_fast"])
            w.add_rope_scaling_yarn_beta_slow(p["beta_slow"])
    if p["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", divisors(model))
    for name, x in model.state_dict().items():
        x, t = x.numpy(), gguf.GGMLQuantizationType["F32" if x.ndim == 1 else kind]
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        blocks = gguf.quants.quantize(x, t)
        x[...] = gguf.quants.dequantize(blocks, t)  # the memory is the model's
        fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
        if name in fixed:
            ours = fixed[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            ours = f"blk.{layer}.{NAMES[rest]}"
            if arch == "llama" and "q_proj" in rest:
                blocks = interleave(blocks, c.num_attention_heads)
            if arch == "llama" and "k_proj" in rest:
                blocks = interleave(blocks, c.num_key_value_heads)
        w.add_tensor(ours, blocks, raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def compare(what, net, model, rows, most=1e-4):
    """The largest difference of logits, relative to the largest of them."""
    worst = 0.0
    net.parameters[next(iter(net.parameters))]  # a look makes weights f32, with all digits of the file
    for tokens in rows:
        ours = np.asarray(net.forward(tokens.astype(np.int32)))
        with torch.no_grad():
            theirs = model(torch.tensor(tokens.astype(np.int64))).logits.double().numpy()
        worst = max(worst, float(np.abs(ours - theirs).max() / np.abs(theirs).max())) if np.isfinite(ours).all() else float("inf")
    print(f"{what:28} largest difference {worst:.1e} of the largest logit")
    if not worst <= most:
        print(f"FAILED {what}: more than {most:.0e}")
    return worst <= most


def main(paths):
    results, random = [], np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, arch, config, more in MODELS:
            torch.manual_seed(1)
            model = tf.AutoModelForCausalLM.from_config(config(**SIZES, **more)).float().eval()
            for p in model.parameters():  # norms and biases are 1 and 0 at first
                if p.ndim == 1:
                    p.data += 0.3 * torch.randn_like(p)
            for kind in ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q4_0"):
                path = f"{folder}/{arch}.gguf"
                write(path, arch, model, kind)
                rows = [random.integers(0, SIZES["vocab_size"], (2, n)) for n in (1, 7, 300)]
                results.append(compare(f"{name} {kind}", tenon.open(path, "threads=2"), exact(model), rows))
    for path in paths:
        model = tf.AutoModelForCausalLM.from_pretrained(os.path.dirname(path) or ".", gguf_file=os.path.basename(path), dtype=torch.float32).eval()
        rows = [random.integers(0, model.config.vocab_size, (1, n)) for n in (5, 100)]
        results.append(compare(os.path.basename(path), tenon.open(path, "threads=2"), model, rows))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
