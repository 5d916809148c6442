"""Many small equilibrium networks at once: the same mathematics as tep_torch.py (block and energy maps, no literal form), with one
more axis in front. N networks of the same shape, each with its own seed, samples and settings, take hardly longer than one,
whose time is that of calling small ops. For searching settings and for environments (tep_rl.py); gradients of one evaluation by autograd.
"""
import torch
import torch.nn.functional as F

import tep_torch

EPS = 1e-5


class Nets:
    """p[name] has shape (N, ...). Settings may be numbers or one per network."""

    def __init__(self, d, I, C, seeds, mode="block", value=False, kappa=0.7):
        N = len(seeds)
        self.d, self.mode, self.kappa = d, mode, kappa
        made = [tep_torch.build(d, I, C, seed, torch.float32, mode).p for seed in seeds]
        self.p = {name: torch.stack([m[name] for m in made]) for name in made[0]}
        if value:
            ways = [tep_torch.xavier(torch.Generator().manual_seed(seed + 1000), (1, d)) for seed in seeds]
            self.p |= {"value.w": torch.stack(ways), "value.b": torch.zeros(N, 1)}
        for t in self.p.values():
            t.requires_grad_()
        self.m, self.v = ({n: torch.zeros_like(t) for n, t in self.p.items()} for _ in range(2))
        self.t = 0
        if mode == "energy":
            self.probe = F.normalize(torch.ones(N, d, 1), dim=1)
            self.spectral(30)

    def lin(self, x, w, b):
        return torch.baddbmm(self.p[b][:, None], x, self.p[w].mT)

    def norm(self, x, name):
        n = F.layer_norm(x, (self.d,), eps=EPS)
        return torch.addcmul(self.p[name + ".b"][:, None], n, self.p[name + ".w"][:, None])

    @torch.no_grad()
    def spectral(self, rounds=8):
        w = self.p["energy.w1"]
        for _ in range(rounds):
            self.probe = F.normalize(w.mT @ (w @ self.probe), dim=1)
        self.scale = self.kappa / (w @ self.probe).square().sum((1, 2), keepdim=True)

    def inject(self, x):
        e = self.lin(x, "embed.w", "embed.b")
        return e if self.mode == "energy" else self.lin(self.lin(e, "attn.wv", "attn.bv"), "attn.wo", "attn.bo")

    def f(self, h, a):
        if self.mode == "energy":
            return a + self.scale * torch.bmm(torch.tanh(self.lin(h, "energy.w1", "energy.b1")), self.p["energy.w1"])
        u = h + a
        z = F.gelu(self.lin(self.norm(u, "norm2"), "ffn.w1", "ffn.b1"))
        return self.norm(u + self.lin(z, "ffn.w2", "ffn.b2"), "norm_f")

    def logits(self, h):
        return self.lin(h, "head.w", "head.b")

    def value(self, h):
        return self.lin(h, "value.w", "value.b")[..., 0]

    def step(self, lr, clip=None, decay=0.0, beta2=0.999):
        """AdamW for each network, its gradient clipped to a norm of its own; lr, clip, decay: numbers or (N)."""
        names = list(self.p)
        grads = {n: self.p[n].grad for n in names}
        wide = lambda t, n: t.view(-1, *[1] * (self.p[n].dim() - 1)) if torch.is_tensor(t) else t
        with torch.no_grad():
            if clip is not None:
                size = torch.stack([grads[n].flatten(1).square().sum(1) for n in names]).sum(0).sqrt()
                part = (clip / size.clamp_min(1e-30)).clamp_max(1.0)
                grads = {n: g * wide(part, n) for n, g in grads.items()}
            self.t += 1
            for n in names:
                self.m[n].lerp_(grads[n], 0.1)
                self.v[n].mul_(beta2).addcmul_(grads[n], grads[n], value=1 - beta2)
                size = (self.v[n] / (1 - beta2 ** self.t)).sqrt_().add_(1e-8)
                p = self.p[n]
                if p.dim() > 2:
                    p -= wide(lr, n) * wide(decay, n) * p
                p -= wide(lr, n) / (1 - 0.9 ** self.t) * self.m[n] / size
                p.grad = None
        if self.mode == "energy":
            self.spectral()


def solve(step, h, o, first=None, mask=None, freeze=True):
    """As tep_torch.solve, all networks together; mask (N,B): samples that are there from the start (padding). o.damping (N,1,1) or
    a number, o.rtol (N,1) or a number. freeze=False: all of a network move until the last one is there. Returns h and the evaluations (N)."""
    alive = torch.ones(h.shape[:2], dtype=torch.bool) if mask is None else ~mask
    total = 0
    for t in range(o.iterations):
        v = step(h) if first is None else first
        first = None
        d = v - h
        total += alive.sum(1)
        on = torch.linalg.vector_norm(d, dim=2) >= o.rtol * torch.linalg.vector_norm(v, dim=2).clamp_min_(1e-6)
        moving = alive if freeze else alive.any(1, keepdim=True)
        h = h + d * (o.damping * moving[..., None])
        alive = (alive if freeze else moving if mask is None else moving & ~mask) & on
        if not bool(alive.any()):
            break
    return h, total


def gradients(nets, x, cost, force, o, mask=None):
    """Gradients of sum_b cost_b of every network. cost(h): (N,B), with the factor of the mean in it, 0 for padding; force(v): its
    derivative without that factor, (N,B,d), which nudges; o.share, a number or (N,1,1), is that factor. o besides: grad, beta,
    damping, rtol, iterations, anchor. Returns what cost gave, and the free and nudged evaluations (N)."""
    a = nets.inject(x)
    evaluate = lambda h: nets.f(h, a)
    if o.grad == "bptt":
        h, taken = solve(evaluate, torch.zeros_like(a), o, mask=mask, freeze=False)
        each = cost(h)
        each.sum().backward()
        return each.detach(), (taken, 0)
    with torch.no_grad():
        h, taken = solve(evaluate, torch.zeros_like(a), o, mask=mask)
    image, nudged = evaluate(h), 0
    if o.grad == "one_step":
        at = h.clone().requires_grad_()
        lam, = torch.autograd.grad(cost(at).sum(), at)
    else:
        with torch.no_grad():
            lam, nudged = propagate(evaluate, h, image.detach(), force, o, mask)
    image.backward(lam if mask is None else lam * ~mask[..., None])
    each = cost(h)
    each.sum().backward()
    return each.detach(), (taken, nudged)


def propagate(evaluate, h, image, force, o, mask):
    left = image - h if o.anchor == "rest" else torch.zeros_like(h)
    ends, taken = [], 0
    for sign in (1, -1)[:1 if o.grad == "ep" else 2]:
        pulled = lambda v: v - sign * o.beta * force(v)
        end, more = solve(lambda h: pulled(evaluate(h) - left), h, o, first=pulled(image - left), mask=mask)
        ends.append(end)
        taken = taken + more
    moved = ((image if o.anchor == "image" else h) - ends[0]) if o.grad == "ep" else (ends[1] - ends[0]) / 2
    return moved / o.beta * o.share, taken
