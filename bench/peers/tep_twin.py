"""The twin of src/models/tep: equilibrium networks of one or several tokens, with all their maps and gradients but Anderson's
solver and the cache.

Run as a command it writes a reference file (see README.md); `--length` says nothing here, the settings inputs, tokens and classes
give the shape of a sample. Gradients come from autograd and from the definitions, not from formulas written out, so that this is
a second opinion on tep_torch.py as well.
Keep: names, shapes and formulas as in the C text.
"""
import math

import torch
import torch.nn.functional as F

import against
from against import ones, uniform, zeros

DEFAULTS = {"inputs": 6, "tokens": 1, "classes": 4, "dim": 64, "ff": "auto", "mode": "block", "variant": "corrected", "grad": "ep",
            "beta": 0.1, "anchor": "rest", "nudge_rtol": 0.0, "damping": 0.9, "iterations": 20, "rtol": 1e-2, "tol": 1e-4, "attention": "linear", "heads": "auto",
            "pos": "learned", "kappa": 0.7, "radius": 0.95, "alpha": 0.5, "buffer": 3, "buffer_fade": 0.9}


def bound(b):
    return uniform(-b, b)


def orthogonal(rng, shape):
    return 0.9 * torch.linalg.qr(torch.randn(shape, generator=rng, dtype=torch.float64))[0]


class Rest(torch.autograd.Function):
    """h* forward; backward the adjoint that `find` makes of dL/dh* reaches f(h*), through which the parameters see it."""

    @staticmethod
    def forward(ctx, image, h, find):
        ctx.find = find
        return h.clone()

    @staticmethod
    def backward(ctx, g):
        return ctx.find(g), None, None


class Tep(against.Net):
    def __init__(self, settings, dtype, rng):
        super().__init__(settings, dtype, rng)
        s = settings
        auto = lambda key, value: value if s[key] == "auto" else s[key]
        self.dim, self.ff = s["dim"], auto("ff", 4 * s["dim"])
        self.heads = auto("heads", next(n for n in (8, 4, 2, 1) if s["dim"] % n == 0))
        self.faithful = s["variant"] == "faithful"
        for key, choices in (("mode", "block energy toroidal"), ("variant", "corrected faithful"), ("attention", "linear softmax"),
                             ("grad", "ep ep_centred implicit one_step bptt"), ("pos", "none learned")):
            if s[key] not in choices.split():
                raise ValueError(f"{key}={s[key]}: one of {choices}")

    # --- parameters

    def affine(self, x, w, b, n, k, most=0.0, bias=None):
        most = most or 1 / math.sqrt(k)
        return F.linear(x, *self.pair(w, b, n, k, most, most if bias is None else bias))

    def pair(self, w, b, n, k, most, bias):
        return self.param(w, (n, k), bound(most)), self.param(b, (n,), bound(bias) if bias else zeros)

    def glorot(self, x, scope, n):
        k = x.shape[-1]
        with self.scope(scope):
            return self.affine(x, "w", "b", n, k, math.sqrt(6 / (n + k)), 0.0)

    def embed(self, x):
        e = self.glorot(x, "embed", self.dim)
        if self.settings["tokens"] == 1:
            return e[:, 0]
        if self.settings["pos"] == "none":
            return e
        return e + self.param("position", (self.settings["tokens"], self.dim), against.normal(1 / math.sqrt(self.dim)))

    def sigma(self, w):
        """Eight rounds of power iteration from a vector of equal numbers."""
        with torch.no_grad():
            v = F.normalize(torch.ones(w.shape[1], dtype=w.dtype), dim=0)
            for _ in range(7):
                v = F.normalize(w.t() @ (w @ v), dim=0)
            return (w.t() @ F.normalize(w @ v, dim=0)).norm()

    # --- maps: a function of the state, and its shape

    def feed_forward(self, u):
        d, m = self.dim, self.ff
        n = self.layernorm(u, "norm2")
        with self.scope("ffn"):
            z = F.gelu(self.affine(n, "w1", "b1", m, d))
            u = u + self.affine(z, "w2", "b2", d, m)
        return self.layernorm(u, "norm_f")

    def attend(self, h, e, given):
        """Of the state to the input; given: keys and values by head (B,H,S,D)."""
        B, S, d = h.shape
        n = self.layernorm(h, "norm1")
        with self.scope("attn"):
            q = self.split(self.project(n if self.faithful else n + e, "q"))
            k, v = given
            if self.settings["attention"] == "softmax":
                y = F.scaled_dot_product_attention(q, k, v)
            else:
                q, k = F.elu(q) + 1, F.elu(k) + 1
                y = q @ (k.mT @ v) / (q @ k.sum(-2)[..., None] + 1e-6)
            return self.project(y.transpose(1, 2).reshape(B, S, d), "o")

    def project(self, x, name):
        d, soft = self.dim, self.settings["attention"] == "softmax"
        most = math.sqrt(6 / (4 * d)) if soft and name != "o" else 0.0
        return self.affine(x, "w" + name, "b" + name, d, d, most, 0.0 if soft else None)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def block(self, x):
        e = self.embed(x)
        if self.settings["tokens"] == 1:
            with self.scope("attn"):
                if self.faithful:  # without effect, but counted
                    self.project(e, "q"), self.project(e, "k")
                a = self.project(self.project(e, "v"), "o")
            if self.faithful:
                self.layernorm(e, "norm1")
            return lambda h: self.feed_forward(h + a), e.shape
        with self.scope("attn"):
            given = self.split(self.project(e, "k")), self.split(self.project(e, "v"))
        return lambda h: self.feed_forward(h + self.attend(h, e, given)), e.shape

    def energy(self, x):
        a = self.embed(x)
        with self.scope("energy"):
            w, b = self.pair("w1", "b1", self.ff, self.dim, 1 / math.sqrt(self.dim), 1 / math.sqrt(self.dim))
        s = self.settings["kappa"] / self.sigma(w) ** 2
        return lambda h: a + s * (torch.tanh(F.linear(h, w, b)) @ w), a.shape

    def toroidal(self, x):
        """The state holds the earlier ones beside itself."""
        s, d, a = self.settings, self.dim, self.embed(x)
        K, alpha, fades = s["buffer"], s["alpha"], [s["buffer_fade"] ** (k + 1) for k in range(s["buffer"])]
        with self.scope("torus"):
            wh = self.param("wh", (d, d), orthogonal)
            gain = self.param("buffer", (1,), lambda rng, shape: torch.full(shape, 0.1 if K else 0.0))
        factor = torch.clamp(s["radius"] / (self.sigma(wh) + sum(fades) * gain.detach().abs()), max=1.0)

        def f(h):
            now, *past = h.split(d, -1)
            drive = a + F.linear(now, wh * factor) + gain * factor * sum(c * p for c, p in zip(fades, past))
            return torch.cat([(1 - alpha) * now + alpha * torch.tanh(drive), h[:, :K * d]], -1)

        return f, (a.shape[0], (K + 1) * d)

    # --- solve

    def iterate(self, f, h, origin=None):
        """The damped iteration until each sample is there; faithful: until the whole batch is. origin: there by its move from it."""
        s = self.settings
        damping, alive = 1.0 if s["mode"] == "toroidal" else s["damping"], None
        for _ in range(s["iterations"]):
            v = f(h)
            d = (v - h).flatten(1)
            moved = damping * (v - h)
            if self.faithful:
                h = h + moved
                if float(moved.detach().norm()) < s["tol"]:
                    break
                continue
            size, limit = v.flatten(1).norm(dim=1), s["rtol"]
            if origin is not None:
                size, limit = torch.maximum((v - origin).flatten(1).norm(dim=1), 1e-3 * size), s["nudge_rtol"]
            there = (d.norm(dim=1) < limit * size.clamp_min(1e-6)).detach()
            if alive is None:
                alive = torch.ones_like(there)
            h = h + moved * alive.view(-1, *[1] * (h.dim() - 1))
            alive = alive & ~there
            if not bool(alive.any()):
                break
        return h

    def cost(self, h, labels):
        """Sum over the labels that count."""
        z = self.read(h)
        return F.cross_entropy(z.flatten(0, -2), labels.flatten(), ignore_index=-1, reduction="sum")

    def read(self, h):
        """Logits (B,C), or (B,S,C) where tokens have labels."""
        if self.settings["mode"] == "toroidal":
            h = h[:, :self.dim]
        return self.glorot(h.mean(1) if h.dim() == 3 and self.labels_each == 1 else h, "head", self.settings["classes"])

    def nudged(self, f, h, labels, beta):
        s = self.settings
        at_rest = not self.faithful and s["anchor"] == "rest"
        with torch.no_grad():
            rest = f(h) - h if at_rest else 0

        def pulled(h):
            with torch.enable_grad():
                v = (f(h) - rest).detach().requires_grad_()
                force, = torch.autograd.grad(self.cost(v, labels), v)
            return v.detach() - beta * force

        with torch.no_grad():
            return self.iterate(pulled, h, h if s["nudge_rtol"] > 0 and not self.faithful else None)

    def propagate(self, f, h, labels):
        s, B, count = self.settings, h.shape[0], int((labels >= 0).sum())
        beta = s["beta"]
        if self.faithful:
            with torch.no_grad():
                return 2 / (beta * h.numel()) * (f(h) - self.nudged(f, h, labels, beta / B))
        up = self.nudged(f, h, labels, beta)
        if s["grad"] == "ep":
            return (h - up) / (beta * count)
        return (self.nudged(f, h, labels, -beta) - up) / (2 * beta * count)

    def adjoint(self, f, h, g):
        with torch.enable_grad():
            at = h.clone().requires_grad_()
            image = f(at)
        return self.iterate(lambda lam: g + torch.autograd.grad(image, at, lam, retain_graph=True)[0], g)

    def forward(self, x, labels=None):
        s = self.settings
        f, shape = getattr(self, s["mode"])(x)
        h0 = torch.zeros(shape, dtype=self.dtype)
        f(h0), self.read(h0)  # makes the parameters
        if s["grad"] == "bptt":
            return self.read(self.iterate(f, h0))
        with torch.no_grad():
            h = self.iterate(f, h0)
        find = {"one_step": lambda g: g, "implicit": lambda g: self.adjoint(f, h, g)}.get(s["grad"], lambda g: self.propagate(f, h, labels))
        return self.read(Rest.apply(f(h), h, find))

    def loss(self, x, labels):
        self.labels_each = labels.shape[-1]
        logits = self.forward(x.to(self.dtype), labels)
        for name in list(self.params):  # without effect: their gradient is 0, not none
            if self.params[name].grad is None:
                self.params[name].grad = torch.zeros_like(self.params[name])
        loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-1)
        return loss, logits.reshape(x.shape[0], self.labels_each, -1)


def make_samples(count, batch, settings, rng):
    """features (count,B,S,F), labels (count,B,1): the largest of some random sums."""
    S, I, C = settings["tokens"], settings["inputs"], settings["classes"]
    x = torch.randn(count, batch, S, I, generator=rng)
    teacher = torch.randn(S * I, C, generator=rng)
    return x, (x.flatten(2) @ teacher).argmax(-1)[..., None]


if __name__ == "__main__":
    against.main("tep", Tep, DEFAULTS, make_samples)
