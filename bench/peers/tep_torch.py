"""Equilibrium networks in eager PyTorch: one token per sample, h* = f(h*; a(x)), logits = head(h*), mean cross-entropy.

Three maps f (block, energy, toroidal) and the gradients of a solve: ep and ep_centred (equilibrium propagation), implicit
(adjoint), one_step (Jacobian-free), bptt, and proxy, the prototype's: nudge by beta/B, lambda = 2/(beta B d) (f(h*) - h_beta),
one absolute stop for the whole batch. Everything is written for speed as eager code goes: the injection is made once per
batch, gradients are written out (no autograd), the nudge has its closed form, samples leave the solve when they are there,
parameters and gradients lie in flat tensors. tep_literal.py beside it is the prototype's own form.

    python tep_torch.py --data DIGITS.csv.gz --d 13 --batch 64 --grad ep --epochs 30 --seeds 10 --split 0.8/0.2
    python tep_torch.py --time --d 64 --batch 128 --grad ep --iterations 20

tests/peers/check_tep.py holds the gradients to central differences. Keep: the mathematics of src/models/tep and src/ops/relax.
"""
import argparse
import math
import sys
import time

import torch
import torch.nn.functional as F

import against
from tep_data import load

EPS = 1e-5
GRADS = ("ep", "ep_centred", "implicit", "one_step", "bptt", "proxy")
TOROIDAL_GAIN = 0.9 + 0.9 ** 2 + 0.9 ** 3  # of the buffer at a fixed point: three earlier states, each 0.9 of the one before
aten = torch.ops.aten


class Options:
    """How to solve and how to take the gradient."""

    def __init__(self, grad="ep", beta=0.1, damping=0.9, iterations=20, rtol=1e-2, tol=0.0, compact=0.75, anchor="rest"):
        if grad not in GRADS:
            raise ValueError(f"grad={grad}: one of {', '.join(GRADS)}")
        self.grad, self.beta, self.damping, self.iterations = grad, beta, damping, iterations
        self.rtol, self.tol = rtol, tol  # tol > 0: absolute, one stop for the whole batch
        self.anchor = anchor  # what ep measures the nudged state from; see propagate
        self.compact = compact  # samples that are there are dropped when fewer than this part is left; 0: never


# --- parameters ------------------------------------------------------------------------------------------------------------

def xavier(rng, shape):
    return against.uniform(-1, 1)(rng, shape) * math.sqrt(6 / (shape[0] + shape[1]))


def fan_in(n):
    return against.uniform(-1 / math.sqrt(n), 1 / math.sqrt(n))


def orthogonal(rng, shape):
    q, r = torch.linalg.qr(torch.randn(shape, generator=rng, dtype=torch.float64))
    return 0.9 * q * r.diagonal().sign()


def layout(d, I, C, ff, mode):
    """name -> (shape, initial value), in the order in which they are made."""
    out = {"embed.w": ((d, I), xavier), "embed.b": ((d,), against.zeros)}
    if mode == "block":
        for name in ("v", "o"):
            out |= {f"attn.w{name}": ((d, d), fan_in(d)), f"attn.b{name}": ((d,), fan_in(d))}
        out |= {"norm2.w": ((d,), against.ones), "norm2.b": ((d,), against.zeros)}
        out |= {"ffn.w1": ((ff, d), fan_in(d)), "ffn.b1": ((ff,), fan_in(d)),
                "ffn.w2": ((d, ff), fan_in(ff)), "ffn.b2": ((d,), fan_in(ff))}
        out |= {"norm_f.w": ((d,), against.ones), "norm_f.b": ((d,), against.zeros)}
    elif mode == "energy":
        out |= {"energy.w1": ((ff, d), fan_in(d)), "energy.b1": ((ff,), fan_in(d))}
    elif mode == "toroidal":
        out |= {"torus.wh": ((d, d), orthogonal), "torus.buffer": ((1,), lambda rng, shape: torch.full(shape, 0.1))}
    else:
        raise ValueError(f"mode={mode}: block, energy or toroidal")
    out |= {"head.w": ((C, d), xavier), "head.b": ((C,), against.zeros)}
    return out


class Net:
    """Parameters by name as views of two flat tensors (matrices, which decay, and vectors), and gradients likewise."""

    def __init__(self, shapes, rng, dtype, mode, kappa):
        self.mode, self.kappa, self.dtype = mode, kappa, dtype
        made = {name: init(rng, shape).float().to(dtype) for name, (shape, init) in shapes.items()}
        self.flat = [torch.cat([t.flatten() for t in made.values() if (t.dim() > 1) == matrix]) for matrix in (True, False)]
        self.flat_grads = [torch.zeros_like(t) for t in self.flat]
        self.p, self.g, at = {}, {}, [0, 0]
        for name, t in made.items():
            k = int(t.dim() < 2)
            for views, flat in ((self.p, self.flat), (self.g, self.flat_grads)):
                views[name] = flat[k][at[k]:at[k] + t.numel()].view(t.shape)
            at[k] += t.numel()
        if mode != "block":
            self.matrix = self.p["energy.w1" if mode == "energy" else "torus.wh"]
            self.probe = F.normalize(torch.ones(self.matrix.shape[1], dtype=dtype), dim=0)
            self.spectral(30)

    def spectral(self, rounds=8):
        """The factor that keeps the map contracting, with the largest singular value by power iteration; some rounds follow each
        update. energy: kappa / sigma^2; toroidal: min(1, 0.95 / (sigma + reach of the buffer))."""
        w = self.matrix
        for _ in range(rounds):
            self.probe = F.normalize(w.t().mv(w.mv(self.probe)), dim=0)
        sigma = float(w.mv(self.probe).norm())
        self.scale = self.kappa / sigma ** 2 if self.mode == "energy" else \
            min(1.0, 0.95 / (sigma + TOROIDAL_GAIN * abs(float(self.p["torus.buffer"]))))

    def count(self):
        return sum(t.numel() for t in self.flat)


def build(d, I, C, seed=0, dtype=torch.float32, mode="block", ff=0, kappa=0.7):
    return Net(layout(d, I, C, ff or 4 * d, mode), torch.Generator().manual_seed(seed), dtype, mode, kappa)


# --- maps: evaluate(a, h), then the same with what its gradient needs, then the gradient -----------------------------------

def turned(w):
    """A copy (in, out), made once per update: products with it avoid a slow way that oneDNN takes for a weight seen through .t()."""
    return w.t().contiguous()


def linear(x, w, b):
    return torch.addmm(b, x, turned(w))


def norm_backward(y, x, mean, rstd, w, b, params):
    return aten.native_layer_norm_backward(y, x, w.shape, mean, rstd, w, b, [True, params, params])


def put(grad, value, add):
    grad.add_(value) if add else grad.copy_(value)


def product(grads, w, b, dy, x, add):
    """Of y = x W^T + b."""
    grads[w].addmm_(dy.t(), x, beta=add)
    put(grads[b], dy.sum(0), add)


class Block:
    """f(h) = LN(u + W2 gelu(W1 LN2(u) + b1) + b2), u = h + a;  a = Wo (Wv (We x + be) + bv) + bo."""

    def __init__(self, net):
        self.p, self.g = net.p, net.g
        self.w1, self.b1, self.w2, self.b2 = (net.p["ffn." + n] for n in ("w1", "b1", "w2", "b2"))
        self.w1t, self.w2t = turned(self.w1), turned(self.w2)
        self.n2, self.nf = ((net.p[n + ".w"], net.p[n + ".b"]) for n in ("norm2", "norm_f"))
        self.shape = self.n2[0].shape

    def inject(self, x):
        p = self.p
        self.e = linear(x, p["embed.w"], p["embed.b"])
        self.v = linear(self.e, p["attn.wv"], p["attn.bv"])
        return linear(self.v, p["attn.wo"], p["attn.bo"])

    def inject_grad(self, x, da):
        p, g = self.p, self.g
        for w, b, given in (("attn.wo", "attn.bo", self.v), ("attn.wv", "attn.bv", self.e), ("embed.w", "embed.b", x)):
            torch.mm(da.t(), given, out=g[w])
            torch.sum(da, 0, out=g[b])
            if w != "embed.w":
                da = da.mm(p[w])

    def f(self, h, a):
        u = h + a
        z = F.gelu(torch.addmm(self.b1, F.layer_norm(u, self.shape, *self.n2, EPS), self.w1t))
        u.addmm_(z, self.w2t).add_(self.b2)
        return F.layer_norm(u, self.shape, *self.nf, EPS)

    def saved(self, h, a):
        u = h + a
        n, mean2, rstd2 = aten.native_layer_norm(u, self.shape, *self.n2, EPS)
        z = torch.addmm(self.b1, n, self.w1t)
        y = F.gelu(z)
        w = torch.addmm(u, y, self.w2t).add_(self.b2)
        out, mean, rstd = aten.native_layer_norm(w, self.shape, *self.nf, EPS)
        return out, (u, n, mean2, rstd2, z, y, w, mean, rstd)

    def pull(self, saved, lam, grads=None, add=0):
        """lambda^T df/dh; with grads also lambda^T df/dparameter, into them (add=1: added)."""
        u, n, mean2, rstd2, z, y, w, mean, rstd = saved
        dw, gf, bf = norm_backward(lam, w, mean, rstd, *self.nf, grads is not None)
        dz = aten.gelu_backward(dw.mm(self.w2), z)
        du, g2, b2 = norm_backward(dz.mm(self.w1), u, mean2, rstd2, *self.n2, grads is not None)
        if grads is not None:
            for name, value in (("norm_f.w", gf), ("norm_f.b", bf), ("norm2.w", g2), ("norm2.b", b2)):
                put(grads[name], value, add)
            product(grads, "ffn.w2", "ffn.b2", dw, y, add)
            product(grads, "ffn.w1", "ffn.b1", dz, n, add)
        return du.add_(dw)

    def da(self, saved, lam, dh):
        return dh


class Energy:
    """f(h) = a + s W1^T tanh(W1 h + b1), a = We x + be: minus the gradient of an energy plus h, so J is symmetric."""

    def __init__(self, net):
        self.scale, self.p, self.g = net.scale, net.p, net.g
        self.w1, self.b1 = net.p["energy.w1"], net.p["energy.b1"]
        self.w1t = turned(self.w1)

    def inject(self, x):
        return linear(x, self.p["embed.w"], self.p["embed.b"])

    def inject_grad(self, x, da):
        torch.mm(da.t(), x, out=self.g["embed.w"])
        torch.sum(da, 0, out=self.g["embed.b"])

    def f(self, h, a):
        return torch.addmm(a, torch.addmm(self.b1, h, self.w1t).tanh_(), self.w1, alpha=self.scale)

    def saved(self, h, a):
        t = torch.addmm(self.b1, h, self.w1t).tanh_()
        return torch.addmm(a, t, self.w1, alpha=self.scale), (h, t)

    def pull(self, saved, lam, grads=None, add=0):
        h, t = saved
        dz = lam.mm(self.w1t).mul_(1 - t * t).mul_(self.scale)
        if grads is not None:
            product(grads, "energy.w1", "energy.b1", dz, h, add)
            grads["energy.w1"].addmm_(t.t(), lam, alpha=self.scale)
        return dz.mm(self.w1)

    def da(self, saved, lam, dh):
        return lam


class Toroidal(Energy):
    """f(h) = tanh(a + k (Wh h + gain c h)): the ring buffer of earlier states with all of them equal, as they are at rest. k is what
    keeps the slope below the radius; it has no gradient."""

    def __init__(self, net):
        self.p, self.g, self.gain = net.p, net.g, net.p["torus.buffer"]
        self.scale, self.wh = net.scale, net.p["torus.wh"] * net.scale
        self.wht = turned(self.wh)

    def f(self, h, a):
        return torch.addmm(a, h, self.wht).add_(h * self.gain, alpha=self.scale * TOROIDAL_GAIN).tanh_()

    def saved(self, h, a):
        t = self.f(h, a)
        return t, (h, t)

    def pull(self, saved, lam, grads=None, add=0):
        h, t = saved
        dz = lam * (1 - t * t)
        if grads is not None:
            grads["torus.wh"].addmm_(dz.t(), h, beta=add, alpha=self.scale)
            put(grads["torus.buffer"], self.scale * TOROIDAL_GAIN * (dz * h).sum().view(1), add)
        return dz.mm(self.wh).add_(dz * self.gain, alpha=self.scale * TOROIDAL_GAIN)

    def da(self, saved, lam, dh):
        return lam * (1 - saved[1] * saved[1])


MAPS = {"block": Block, "energy": Energy, "toroidal": Toroidal}


# --- solve -----------------------------------------------------------------------------------------------------------------

def solve(step, h, consts, o, first=None):
    """h <- (1-damping) h + damping step(h, *consts) until |step(h) - h| < rtol max(|step(h)|, 1e-6) for each sample. consts
    have samples along axis 0; `first` is step(h) where it is known already. Returns h and the evaluations of each sample."""
    if o.tol > 0:
        return solve_batch(step, h, consts, o, first)
    rows, taken = None, torch.full((h.shape[0],), o.iterations)
    out, alive, left = h, None, h.shape[0]
    for t in range(o.iterations):
        v = step(h, *consts) if first is None else first
        first = None
        size, d = torch.linalg.vector_norm(v, dim=1), v.sub_(h)
        on = torch.linalg.vector_norm(d, dim=1) >= o.rtol * size.clamp_min_(1e-6)
        if alive is not None:
            d *= alive[:, None]
            on &= alive
        h = torch.add(h, d, alpha=o.damping)
        n = int(on.sum())
        if n < left:
            alive, left = on, n
            done = ~on if rows is None else rows[~on]
            taken[done] = taken[done].clamp_max(t + 1)
        if n == 0:
            break
        if n < o.compact * h.shape[0]:
            if rows is None:
                out, rows = h, on.nonzero()[:, 0]
            else:
                out[rows] = h
                rows = rows[on]
            h, consts, alive = h[on], [c[on] for c in consts], None
    if rows is None:
        return h, taken
    out[rows] = h
    return out, taken


def solve_batch(step, h, consts, o, first=None):
    """The prototype's stop: all samples together, |h_next - h| < tol."""
    for t in range(o.iterations):
        d = (step(h, *consts) if first is None else first).sub_(h)
        first = None
        h = torch.add(h, d, alpha=o.damping)
        if o.damping * float(torch.linalg.vector_norm(d)) < o.tol:
            break
    return h, torch.full((h.shape[0],), t + 1)


# --- gradients -------------------------------------------------------------------------------------------------------------

def head_grad(net, h, onehot):
    """Mean loss, logits, and its dL/dh; writes the head's gradients."""
    w, scale = net.p["head.w"], 1 / h.shape[0]
    logits = linear(h, w, net.p["head.b"])
    logp = F.log_softmax(logits, 1)
    loss = -scale * torch.dot(logp.view(-1), onehot.view(-1))
    dz = logp.exp_().sub_(onehot).mul_(scale)
    torch.mm(dz.t(), h, out=net.g["head.w"])
    torch.sum(dz, 0, out=net.g["head.b"])
    return loss, logits, dz.mm(w)


def propagate(net, m, h, fh, a, onehot, o, stats):
    """lambda of the mean loss by equilibrium propagation: nudged solves from h*, the first step of which knows f(h*). A free solve
    that stops early leaves r = f(h*) - h*, and h* - h_beta (anchor=state) then holds -r, which learning makes larger: one-sided
    propagation with a loose rtol fails. anchor=rest nudges f(h) - r, for which h* is at rest; image measures from f(h*)."""
    w, b, B = net.p["head.w"], net.p["head.b"], h.shape[0]
    wt = turned(w)
    faithful, ends = o.grad == "proxy", []
    consts = (a, onehot, fh - h) if o.anchor == "rest" and not faithful else (a, onehot)
    for eta in ([o.beta / B] if faithful else [o.beta] if o.grad == "ep" else [o.beta, -o.beta]):
        def force(v, y, left=None):
            v = v if left is None else v - left
            return torch.addmm(v, torch.addmm(b, v, wt).softmax(1).sub_(y), w, alpha=-eta)
        end, taken = solve(lambda h, a, *more: force(m.f(h, a), *more), h, consts, o, first=force(fh, *consts[1:]))
        ends.append(end)
        stats["nudged"] += int(taken.sum())
    if faithful:
        return (fh - ends[0]).mul_(2 / (o.beta * h.numel()))
    if o.anchor == "image" and len(ends) == 1:
        return (fh - ends[0]).mul_(1 / (o.beta * B))
    return (h - ends[0] if len(ends) == 1 else ends[1] - ends[0]).mul_(1 / (o.beta * B * len(ends)))


def adjoint(m, saved, g, o, stats):
    """lambda = g + J^T lambda by the damped iteration; a sample that is there stays as it is."""
    lam, alive = g, None
    for t in range(o.iterations):
        v = m.pull(saved, lam).add_(g)
        size, d = torch.linalg.vector_norm(v, dim=1), v.sub_(lam)
        on = torch.linalg.vector_norm(d, dim=1) >= o.rtol * size.clamp_min_(1e-6)
        stats["adjoint"] += g.shape[0] if alive is None else int(alive.sum())
        if alive is not None:
            d *= alive[:, None]
            on &= alive
        lam, alive = torch.add(lam, d, alpha=o.damping), on
        if not bool(on.any()):
            break
    return lam


def bptt(net, m, x, a, onehot, o, stats):
    """Back through the iterations that each sample took; one that is there stays as it is."""
    h, kept, alive = torch.zeros_like(a), [], torch.ones_like(a[:, :1])
    for t in range(o.iterations):
        v, saved = m.saved(h, a)
        part = o.damping * alive
        kept.append((saved, part))
        stats["free"] += int(alive.sum())
        size, d = torch.linalg.vector_norm(v, dim=1), v - h
        dist = torch.linalg.vector_norm(d, dim=1)
        h = torch.addcmul(h, d, part)
        if o.tol <= 0:
            alive = alive * (dist >= o.rtol * size.clamp_min_(1e-6))[:, None]
        if o.damping * float(dist.norm()) < o.tol if o.tol > 0 else not bool(alive.any()):
            break
    loss, logits, g = head_grad(net, h, onehot)
    da = torch.zeros_like(a)
    for i, (saved, part) in enumerate(reversed(kept)):
        lam = g * part
        dh = m.pull(saved, lam, net.g, add=int(i > 0))
        da += m.da(saved, lam, dh)
        g = dh.addcmul_(g, 1 - part)
    m.inject_grad(x, da)
    return loss, logits


@torch.no_grad()
def gradients(net, x, onehot, o, stats):
    """Writes the gradients of the mean loss into net.g; gives loss and logits. x (B,I), onehot (B,C)."""
    m = MAPS[net.mode](net)
    a = m.inject(x)
    if o.grad == "bptt":
        return bptt(net, m, x, a, onehot, o, stats)
    h, taken = solve(m.f, torch.zeros_like(a), (a,), o)
    stats["free"] += int(taken.sum())
    fh, saved = m.saved(h, a)
    loss, logits, g = head_grad(net, h, onehot)
    lam = g if o.grad == "one_step" else adjoint(m, saved, g, o, stats) if o.grad == "implicit" else \
        propagate(net, m, h, fh, a, onehot, o, stats)
    m.inject_grad(x, m.da(saved, lam, m.pull(saved, lam, net.g)))
    return loss, logits


@torch.no_grad()
def predict(net, x, o, batch=1024):
    """Logits of all samples, and the iterations of each."""
    m, logits, taken = MAPS[net.mode](net), [], []
    for i in range(0, x.shape[0], batch):
        a = m.inject(x[i:i + batch])
        h, t = solve(m.f, torch.zeros_like(a), (a,), o)
        logits.append(linear(h, net.p["head.w"], net.p["head.b"]))
        taken.append(t)
    return torch.cat(logits), torch.cat(taken)


# --- training --------------------------------------------------------------------------------------------------------------

class Adam:
    """One fused optimizer over the two flat tensors; clipping by the norm of all gradients (0: none)."""

    def __init__(self, net, lr, decay=0.0, betas=(0.9, 0.999), clip=0.0):
        self.net, self.clip = net, clip
        groups = [{"params": [t], "weight_decay": wd} for t, wd in zip(net.flat, (decay, 0.0))]
        for t, g in zip(net.flat, net.flat_grads):
            t.grad = g
        self.inner = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8, fused=True)

    def step(self, lr=None):
        if self.clip > 0:
            norm = math.hypot(*(float(g.norm()) for g in self.net.flat_grads))
            if norm > self.clip:
                torch._foreach_mul_(self.net.flat_grads, self.clip / norm)
        if lr is not None:
            for group in self.inner.param_groups:
                group["lr"] = lr
        self.inner.step()
        if self.net.mode != "block":
            with torch.no_grad():
                self.net.spectral()


def step(net, optimizer, x, onehot, o, stats, lr=None):
    loss, _ = gradients(net, x, onehot, o, stats)
    optimizer.step(lr)
    return loss


def accuracy(net, x, y, o):
    logits, taken = predict(net, x, o)
    return float((logits.argmax(1) == y).double().mean()), float(taken.double().mean())


def train(net, data, o, epochs, batch, lr, seed=0, schedule="constant", lr_min_frac=0.1, warmup=0, decay=0.0, clip=0.0,
          betas=(0.9, 0.999), report=None, cooldown_frac=0.2):
    """data: {"train": (x, y), "valid": .., "test": ..}; the splits but train are evaluated after each epoch. One row per epoch."""
    x, y = data["train"]
    onehot = F.one_hot(y, net.p["head.b"].shape[0]).to(net.dtype)
    per_epoch = -(-x.shape[0] // batch)
    rates = {"train.lr": lr, "train.warmup": warmup, "train.steps": epochs * per_epoch, "train.schedule": schedule,
             "train.lr_min_frac": lr_min_frac, "train.cooldown_frac": cooldown_frac}
    optimizer, rng, rows, at = Adam(net, lr, decay, betas, clip), torch.Generator().manual_seed(seed), [], 0
    for epoch in range(epochs):
        stats, losses, begin = {"free": 0, "nudged": 0, "adjoint": 0}, [], time.perf_counter()
        order = torch.randperm(x.shape[0], generator=rng)
        for i in range(0, x.shape[0], batch):
            rows_of = order[i:i + batch]
            losses.append(step(net, optimizer, x[rows_of], onehot[rows_of], o, stats, against.learning_rate(rates, at)))
            at += 1
        row = {"epoch": epoch + 1, "loss": float(torch.stack(losses).mean()),
               **{k: v / x.shape[0] for k, v in stats.items()}, "seconds": time.perf_counter() - begin}
        for split in data:
            if split != "train":
                row[split], row[split + "_steps"] = accuracy(net, *data[split], o)
        rows.append(row)
        if report:
            report(row)
        if not math.isfinite(row["loss"]):
            break
    return rows


# --- command ---------------------------------------------------------------------------------------------------------------

def parse_arguments():
    a = argparse.ArgumentParser(description="Trains or times an equilibrium network in eager PyTorch.")
    a.add_argument("--data", help="digits.csv.gz, or a folder with the four files of MNIST")
    a.add_argument("--split", default="0.8/0.2", help="fractions train/test, train/valid/test, or for MNIST train/valid")
    a.add_argument("--split-seed", type=int, default=-1, help="-1: the seed of the run")
    a.add_argument("--subset", type=int, default=0, help="MNIST: only so many training samples")
    a.add_argument("--mode", default="block", choices=tuple(MAPS))
    a.add_argument("--variant", default="corrected", choices=("corrected", "faithful", "literal"))
    a.add_argument("--grad", default="ep", choices=GRADS)
    a.add_argument("--anchor", default="rest", choices=("rest", "state", "image"))
    for name, kind, value in (("d", int, 64), ("ff", int, 0), ("batch", int, 64), ("epochs", int, 30), ("seeds", int, 1),
                              ("seed", int, 0), ("iterations", int, 20), ("inputs", int, 64), ("classes", int, 10),
                              ("beta", float, 0.1), ("damping", float, 0.9), ("rtol", float, 1e-2), ("tol", float, 1e-4),
                              ("kappa", float, 0.7), ("lr", float, 1e-3), ("lr-min-frac", float, 0.1), ("warmup", int, 0),
                              ("decay", float, 0.0), ("clip", float, 0.0), ("beta2", float, 0.999)):
        a.add_argument("--" + name, type=kind, default=value)
    a.add_argument("--schedule", default="constant", choices=("constant", "cosine", "wsd"))
    a.add_argument("--verbose", action="store_true", help="a line per epoch")
    a.add_argument("--time", action="store_true", help="milliseconds per update on random samples, as JSON")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--onednn", choices=("on", "off"), default="on", help="torch's library for products: off is faster where d is small")
    a.add_argument("--steps", type=int, default=200, help="of --time, as are the three below")
    a.add_argument("--warmup-steps", type=int, default=5)
    a.add_argument("--seconds", type=float, default=20)
    a.add_argument("--profile", action="store_true")
    args = a.parse_args()
    if not args.time and not args.data:
        a.error("--data or --time is needed")
    return args


def options_of(args):
    """The prototype has its own gradient and stop; bptt there is its baseline, with the same stop."""
    if args.variant == "corrected":
        return Options(args.grad, args.beta, args.damping, args.iterations, args.rtol, anchor=args.anchor)
    return Options("bptt" if args.grad == "bptt" else "proxy", args.beta, args.damping, args.iterations, 0.0, args.tol)


def time_updates(args):
    import step as timing

    def make_step(args, dtype):
        x = torch.rand(args.batch, args.inputs, generator=torch.Generator().manual_seed(1))
        y = torch.arange(args.batch) % args.classes
        if args.variant == "literal":
            import tep_literal
            net = tep_literal.Literal(args.d, args.inputs, args.classes, args.seed)
            return lambda: net.step(x, y, options_of(args), args.lr), {"parameters": net.count()}
        net = build(args.d, args.inputs, args.classes, args.seed, torch.float32, args.mode, args.ff, args.kappa)
        onehot = F.one_hot(y, args.classes).float()
        optimizer, o, stats = Adam(net, args.lr, args.decay, clip=args.clip), options_of(args), {"free": 0, "nudged": 0, "adjoint": 0}
        return lambda: step(net, optimizer, x, onehot, o, stats), {"parameters": net.count(), "grad": o.grad, "onednn": args.onednn}

    args.dtype, args.compile, args.warmup = "float32", False, args.warmup_steps
    timing.run("tep", args, make_step)


def run_seed(args, seed):
    data = load(args.data, args.split, seed if args.split_seed < 0 else args.split_seed, subset=args.subset)
    I, C = data["train"][0].shape[1], int(data["train"][1].max()) + 1
    report = (lambda row: print("  " + " ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)) if args.verbose else None
    if args.variant == "literal":
        import tep_literal
        net = tep_literal.Literal(args.d, I, C, seed)
        return tep_literal.train(net, data, options_of(args), args.epochs, args.batch, args.lr, seed), net
    net = build(args.d, I, C, seed, torch.float32, args.mode, args.ff, args.kappa)
    return train(net, data, options_of(args), args.epochs, args.batch, args.lr, seed, args.schedule, args.lr_min_frac, args.warmup,
                 args.decay, args.clip, (0.9, args.beta2), report), net


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.backends.mkldnn.enabled = args.onednn == "on"
    if args.time: return time_updates(args)
    table = []
    print("| seed | best epoch on test (optimistic) | test at the best epoch on valid | last epoch | free + nudged + adjoint steps, last epoch | s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for seed in range(args.seed, args.seed + args.seeds):
        rows, net = run_seed(args, seed)
        chosen = max(rows, key=lambda r: r["valid"])["test"] if "valid" in rows[0] else math.nan
        best, last, took = max(r["test"] for r in rows), rows[-1], sum(r["seconds"] for r in rows)
        table.append((best, chosen, last["test"], took))
        print(f"| {seed} | {best:.4f} | {chosen:.4f} | {last['test']:.4f} | {last['free']:.1f} + {last['nudged']:.1f} + "
              f"{last['adjoint']:.1f} | {took:.1f} |", flush=True)
    columns = torch.tensor(table, dtype=torch.float64)
    mean, sd = columns.mean(0), columns.std(0, correction=min(args.seeds - 1, 1))
    print("| mean | " + " | ".join(f"{m:.4f} +-{s:.4f}" for m, s in zip(mean[:3], sd)) + f" | | {mean[3]:.1f} |")
    print(f"\n{net.count()} parameters, {args.seeds} seeds, {args.variant}, {' '.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
