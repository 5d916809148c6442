"""The historical networks TEN-A and TEN-B a second time: one step per token, complex numbers, the coupling applied to the
states instead of folded into a matrix. Written from their mathematics; src/models/ten/ten_e.c computes the same with
presets ten_a and ten_b.

Run as a command it writes a reference file (see README.md). `preset` chooses the network. No dropout, no scales.
Keep: names and shapes as in the C text.
"""
import math

import torch
import torch.nn.functional as F

import against
from against import normal, uniform, zeros

DEFAULTS = {"preset": "ten_b", "dim": 512, "layers": 6, "k": 64, "heads": 4, "vocab": 50257, "train.dropout": 0.0}
CELLS = {"ten_a": 2, "ten_b": 1}


def circle(k):
    """Phases 2 pi j/k, the same in every cell."""
    return lambda rng, shape: 2 * math.pi * (torch.arange(shape[0]) % k) / k


def near_identity(rng, shape):
    return torch.eye(shape[-1]) + 0.01 * torch.randn(shape, generator=rng) / math.sqrt(shape[-1])


def filled(value):
    return lambda rng, shape: torch.full(shape, value)


def recur(lam, beta):
    """lam (K), beta (B,T,K) complex: c_t = lam c_{t-1} + beta_t, token by token."""
    c, out = torch.zeros_like(beta[:, 0]), []
    for t in range(beta.shape[1]):
        c = lam * c + beta[:, t]
        out.append(c)
    return torch.stack(out, 1)


class TenB(against.Net):
    """u -> g * W_out [Re s; Im s], s = R c per head, c_t = sigmoid(alpha) e^{i omega} c_{t-1} + (W_in u)_t, pre-norm."""

    def __init__(self, settings, dtype, rng):
        super().__init__(settings, dtype, rng)
        if settings["preset"] not in CELLS:
            raise ValueError(f"preset={settings['preset']}: ten_a or ten_b")
        self.dim, self.k, self.heads = settings["dim"], settings["k"], settings["heads"]
        self.first = settings["preset"] == "ten_a"

    def eigenvalues(self, count, top, highest_alpha):
        alpha = self.param("alpha", (count,), uniform(-3.0, highest_alpha))
        omega = self.param("omega", (count,), circle(self.k))
        return torch.polar(top * torch.sigmoid(alpha), omega)

    def mixer_b(self, u):
        B, T, d = u.shape
        K, H = self.k, self.heads
        beta = F.linear(u, self.param("w_in", (2 * K, d), normal(0.02)))
        c = recur(self.eigenvalues(K, 1.0, -0.1), torch.complex(beta[..., :K].contiguous(), beta[..., K:].contiguous()))
        R = self.param("resonance", (H, K // H, K // H), near_identity, decay=False)
        by_head = lambda x: torch.einsum("hij,bthj->bthi", R, x.reshape(B, T, H, K // H)).reshape(B, T, K)
        s = torch.cat([by_head(c.real), by_head(c.imag)], -1)
        h = F.linear(s, self.param("w_out", (d, 2 * K), normal(0.02)))
        return h * F.linear(u, self.param("w_g", (d, d), normal(0.02)), self.param("b_g", (d,), filled(-2.0))).sigmoid()

    def mixer_a(self, x):
        """Mean over two cells of W_out Re(R^T c); the input drives the real part alone."""
        d, K, n = x.shape[-1], self.k, CELLS["ten_a"]
        beta = F.linear(x, self.param("w_in", (n * K, d), normal(0.02)))
        lam = self.eigenvalues(n * K, 0.99, 0.0)
        M = self.param("resonance", (n, K, K), normal(1.0), decay=False)
        w_out = self.param("w_out", (d, n * K), normal(0.02))
        total = 0
        for j in range(n):
            part = slice(j * K, (j + 1) * K)
            c = recur(lam[part], torch.complex(beta[..., part].contiguous(), torch.zeros_like(beta[..., part])))
            R = torch.eye(K, dtype=self.dtype) + 0.01 * M[j] / (M[j].square().sum().sqrt() + 1e-8)
            total = total + F.linear(c.real @ R, w_out[:, part])
        return total / n

    def feed_forward(self, u):
        d, f = self.dim, 4 * self.dim
        h = F.linear(u, self.param("w1", (f, d), normal(0.02)), self.param("b1", (f,), zeros))
        h = F.gelu(h, approximate="tanh") if self.first else F.silu(h)
        return F.linear(h, self.param("w2", (d, f), normal(0.02)), self.param("b2", (d,), zeros))

    def scoped(self, name, function, u):
        with self.scope(name):
            return function(u)

    def layer(self, x):
        if self.first:
            x = self.layernorm(x + self.scoped("mixer", self.mixer_a, x), "norm1")
            return self.layernorm(x + self.scoped("ffn", self.feed_forward, x), "norm2")
        x = x + self.scoped("mixer", self.mixer_b, self.layernorm(x, "norm1"))
        return x + self.scoped("ffn", self.feed_forward, self.layernorm(x, "norm2"))

    def forward(self, tokens):
        s, T = self.settings, tokens.shape[1]
        table = self.param("embed", (s["vocab"], self.dim), normal(0.02))
        x = F.embedding(tokens, table) + self.param("position", (s["train.context"], self.dim), normal(0.02))[:T]
        for i in range(s["layers"]):
            x = self.scoped(f"layer{i}", self.layer, x)
        return F.linear(self.layernorm(x, "norm_f"), table)


if __name__ == "__main__":
    against.main("ten", TenB, DEFAULTS)
