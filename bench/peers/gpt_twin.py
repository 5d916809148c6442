"""The twin of src/models/gpt/gpt.c: the transformer in two shapes, gpt2 and llama (qwen with qkv_bias). Pre-norm.

Run as a command it writes a reference file (see README.md). No dropout, no cache.
Keep: names, shapes and formulas as in the C text; `auto` means what config_read there makes of it.
"""
import math

import torch
import torch.nn.functional as F

import against
from against import normal, uniform, zeros

DEFAULTS = {"shape": "llama", "dim": 256, "layers": 4, "heads": 4, "kv_heads": "auto", "ffn": "auto", "vocab": 256,
            "rope_base": 10000.0, "rope_pairs": "half", "qkv_bias": "false", "tied": "true", "norm_eps": 0.0, "conv": 0,
            "conv_act": "none", "gate": "none"}


def conv_causal(x, w):
    """x (B,T,C), w (W,C): y_t = sum_j w_j x_{t-W+1+j}, zero before the first token."""
    T, W = x.shape[1], w.shape[0]
    padded = F.pad(x, (0, 0, W - 1, 0))
    return sum(w[j] * padded[:, j:j + T] for j in range(W))


def rope(x, base, pairs="half"):
    """x (B,T,H,N): turns the pair (j, j + N/2), or (2j, 2j+1), of token t by the angle t base^(-2j/N)."""
    T, half = x.shape[1], x.shape[-1] // 2
    speed = base ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(T, dtype=x.dtype)[:, None, None] * speed
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs == "interleaved" else x.chunk(2, -1)
    turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return torch.stack(turned, -1).flatten(-2) if pairs == "interleaved" else torch.cat(turned, -1)


def causal_attention(q, k, v, window=None):
    """q (B,T,H,N), k, v (B,T,G,N) -> (B,T,H,N); query head h reads key and value head h / (H/G). With a window, keys
    less than so many tokens back."""
    T, share = q.shape[1], q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(share, 2), v.repeat_interleave(share, 2)
    score = torch.einsum("bihn,bjhn->bhij", q, k) / math.sqrt(q.shape[-1])
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    if window:
        hidden = hidden | torch.ones(T, T, dtype=torch.bool).tril(-window)
    return torch.einsum("bhij,bjhn->bihn", score.masked_fill(hidden, -math.inf).softmax(-1), v)


class Gpt(against.Net):
    def __init__(self, settings, dtype, rng):
        super().__init__(settings, dtype, rng)
        s = settings
        if s["shape"] not in ("gpt2", "llama"):
            raise ValueError(f"shape={s['shape']}: gpt2 or llama")
        self.llama = s["shape"] == "llama"
        self.dim, self.heads = s["dim"], s["heads"]
        self.kv_heads = self.heads if s["kv_heads"] == "auto" else s["kv_heads"]
        self.ffn = s["ffn"]
        if self.ffn == "auto":
            self.ffn = (8 * self.dim // 3 + 7) // 8 * 8 if self.llama else 4 * self.dim
        self.out_std = 0.02 / math.sqrt(2 * s["layers"])
        if self.dim % self.heads or (self.llama and self.dim // self.heads % 2):
            raise ValueError("dim must be a multiple of heads, and dim/heads even for llama")
        if self.heads % self.kv_heads or (not self.llama and self.kv_heads != self.heads):
            raise ValueError("heads must be a multiple of kv_heads, and equal to it for gpt2")

    def attention(self, u):
        B, T, d = u.shape
        H, G, hd = self.heads, self.kv_heads, d // self.heads
        rows = (H + 2 * G) * hd
        biased = not self.llama or self.settings["qkv_bias"] == "true"
        bias = self.param("b_qkv", (rows,), zeros) if biased else None
        qkv = F.linear(u, self.param("w_qkv", (rows, d), normal(0.02)), bias)
        if self.settings["conv"]:
            qkv = conv_causal(qkv, self.param("conv", (self.settings["conv"], rows), uniform(-0.5, 0.5), decay=False))
            qkv = F.silu(qkv) if self.settings["conv_act"] == "silu" else qkv
        q, k, v = qkv.view(B, T, H + 2 * G, hd).split([H, G, G], 2)
        if self.llama:
            q, k = (rope(x, self.settings["rope_base"], self.settings["rope_pairs"]) for x in (q, k))
        y = causal_attention(q, k, v).reshape(B, T, d)
        if self.settings["gate"] == "silu":
            y = y * F.silu(F.linear(u, self.param("w_z", (d, d), normal(0.02))))
        bias = None if self.llama else self.param("b_out", (d,), zeros)
        return F.linear(y, self.param("w_out", (d, d), normal(self.out_std)), bias)

    def norm(self, x, name):
        eps = self.settings["norm_eps"]
        return self.rmsnorm(x, name, eps or 1e-6) if self.llama else self.layernorm(x, name, eps or 1e-5)

    def forward(self, tokens):
        s, T = self.settings, tokens.shape[1]
        if T > s["train.context"]:
            raise ValueError(f"a sequence of {T} tokens is longer than train.context={s['train.context']}")
        table = self.param("embed", (s["vocab"], self.dim), normal(0.02))
        x = F.embedding(tokens, table)
        if not self.llama:
            x = x + self.param("position", (s["train.context"], self.dim), normal(0.02))[:T]
        feed_forward = self.swiglu if self.llama else self.gelu
        for layer in range(s["layers"]):
            with self.scope(f"layer{layer}"):
                u = self.norm(x, "norm1")
                with self.scope("attn"):
                    x = x + self.attention(u)
                u = self.norm(x, "norm2")
                with self.scope("ffn"):
                    x = x + feed_forward(u, self.ffn, self.out_std)
        x = self.norm(x, "norm_f")
        tied = s["tied"] == "true"
        return F.linear(x, table if tied else self.param("head", (s["vocab"], self.dim), normal(0.02)))


if __name__ == "__main__":
    against.main("gpt", Gpt, DEFAULTS)
