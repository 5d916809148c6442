"""The prototype's own form of an equilibrium network, for timing and for its defects: attention over the one token is
computed in every iteration, each iteration asks whether to stop, the nudge comes from autograd through the mean loss, and
the gradient is that of a mean square distance. tep_torch.py does the same mathematics without these (--variant faithful).
"""
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class LinearAttention(nn.Module):
    """Queries from the state, keys and values from the input, phi = elu + 1. Tokens first: (S,B,d)."""

    def __init__(self, d):
        super().__init__()
        self.heads = next(n for n in (8, 4, 2, 1) if d % n == 0)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d) for _ in range(4))

    def forward(self, state, given):
        S, B, d = state.shape
        split = lambda t: t.reshape(S, B, self.heads, d // self.heads)
        q, k, v = F.elu(split(self.wq(state))) + 1, F.elu(split(self.wk(given))) + 1, split(self.wv(given))
        kv, norm = torch.einsum("sbhi,sbhj->bhij", k, v), torch.einsum("sbhi,bhi->sbh", q, k.sum(0)) + 1e-6
        mixed = torch.einsum("sbhi,bhij->sbhj", q, kv) / norm[..., None]
        return self.wo(mixed.reshape(S, B, d))


class Literal(nn.Module):
    def __init__(self, d, I, C, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.head = nn.Linear(I, d), nn.Linear(d, C)
        for layer in (self.embed, self.head):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.norm1, self.norm2, self.norm = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention, self.w1, self.w2 = LinearAttention(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.optimizer = None

    def count(self):
        return sum(p.numel() for p in self.parameters())

    def f(self, h, e):
        u = h + self.attention(self.norm1(h), e)
        return self.norm(u + self.w2(F.gelu(self.w1(self.norm2(u)))))

    def settle(self, h, e, o, force=None):
        """Until the whole batch moves less than tol."""
        for t in range(o.iterations):
            v = self.f(h, e)
            if force:
                v = v - force(v)
            following = (1 - o.damping) * h + o.damping * v
            moved = torch.norm(following - h).item()
            h = following
            if moved < o.tol:
                break
        return h, t + 1

    def step(self, x, y, o, lr):
        """One update; gives the loss and the iterations of the two phases."""
        if self.optimizer is None:
            self.optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        e = self.embed(x)[None]
        if o.grad == "bptt":
            free, steps = self.settle(torch.zeros_like(e), e, o)
            loss, nudged_steps = F.cross_entropy(self.head(free.mean(0)), y), 0
        else:
            with torch.no_grad():
                free, steps = self.settle(torch.zeros_like(e), e, o)

            def force(v):
                return o.beta * torch.autograd.grad(F.cross_entropy(self.head(v.mean(0)), y), v, create_graph=True)[0]

            nudged, nudged_steps = self.settle(free.clone().requires_grad_(), e, o, force)
            loss = F.mse_loss(self.f(free, e), nudged.detach()) / o.beta + F.cross_entropy(self.head(free.mean(0)), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if o.grad == "bptt":
            for part in (self.embed, self.head, (self.norm1, self.norm2, self.norm, self.attention, self.w1, self.w2)):
                parts = part if isinstance(part, tuple) else (part,)
                nn.utils.clip_grad_norm_([p for m in parts for p in m.parameters() if p.grad is not None], 1.0)
        self.optimizer.step()
        return loss.detach(), steps, nudged_steps

    @torch.no_grad()
    def accuracy(self, x, y, o, batch):
        right = steps = 0
        for i in range(0, x.shape[0], batch):
            e = self.embed(x[i:i + batch])[None]
            h, taken = self.settle(torch.zeros_like(e), e, o)
            right += int((self.head(h.mean(0)).argmax(1) == y[i:i + batch]).sum())
            steps += taken * e.shape[1]
        return right / x.shape[0], steps / x.shape[0]


def train(net, data, o, epochs, batch, lr, seed=0):
    """As tep_torch.train: one row per epoch."""
    x, y = data["train"]
    rng, rows = torch.Generator().manual_seed(seed), []
    for epoch in range(epochs):
        begin, order = time.perf_counter(), torch.randperm(x.shape[0], generator=rng)
        parts = [order[i:i + batch] for i in range(0, x.shape[0], batch)]
        done = [(len(r), *net.step(x[r], y[r], o, lr)) for r in parts]
        mean = lambda k: sum(d[0] * float(d[k]) for d in done) / x.shape[0]
        row = {"epoch": epoch + 1, "loss": mean(1), "free": mean(2), "nudged": mean(3), "adjoint": 0.0}
        row["seconds"] = time.perf_counter() - begin
        for split in data:
            if split != "train":
                row[split], row[split + "_steps"] = net.accuracy(*data[split], o, batch)
        rows.append(row)
        if not math.isfinite(row["loss"]) or row["loss"] > 100:
            break
    return rows
