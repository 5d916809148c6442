"""Checks of the equilibrium networks in bench/peers by independent means, in float64: implicit gradients and those through
time against central differences of the loss, equilibrium propagation against the implicit gradient, the prototype's form
against its fast one, the ring buffer against its fixed point. Ends with "N passed, N failed"; needs torch."""
import pathlib
import sys
import types

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
import tep_anderson  # noqa: E402
import tep_literal  # noqa: E402
import tep_many  # noqa: E402
import tep_torch as tep  # noqa: E402

results = []
D, I, C, B = 8, 5, 4, 6


def check(name, worst, limit):
    results.append(worst <= limit)
    print(f"{'ok    ' if results[-1] else 'FAILED'} {name}: {worst:.2g} (limit {limit:g})")


def stats():
    return {"free": 0, "nudged": 0, "adjoint": 0}


def make(mode, seed=3, d=D, spread=0.1):
    """A net away from its initial values, and a batch."""
    net = tep.build(d, I, C, seed, torch.float64, mode)
    rng = torch.Generator().manual_seed(seed)
    for t in net.flat:
        t += spread * torch.randn(t.shape, generator=rng, dtype=torch.float64)
    if mode != "block":
        net.spectral(200)
    x = torch.randn(B, I, generator=rng, dtype=torch.float64)
    return net, x, F.one_hot(torch.arange(B) % C, C).double()


def exact(grad="implicit", **more):
    return tep.Options(grad, damping=0.5, iterations=4000, rtol=1e-14, **more)


def loss_at(net, x, onehot, o):
    return -(F.log_softmax(tep.predict(net, x, o)[0], 1) * onehot).sum() / x.shape[0]


def direction_error(net, x, onehot, o):
    """Worst relative error over the parameters, each along one random direction, by differences of two widths."""
    worst, rng = 0.0, torch.Generator().manual_seed(1)
    for name, p in net.p.items():
        way, start = torch.randn(p.shape, generator=rng, dtype=torch.float64), p.clone()
        sides = []
        for eps in (1e-4, 2e-4):
            values = []
            for sign in (1, -1):
                p.copy_(start + sign * eps * way)
                values.append(float(loss_at(net, x, onehot, o)))
            sides.append((values[0] - values[1]) / (2 * eps))
        p.copy_(start)
        slope = (4 * sides[0] - sides[1]) / 3
        worst = max(worst, abs(slope - float((net.g[name] * way).sum())) / max(abs(slope), 1e-3))
    return worst


def check_exact(mode):
    net, x, onehot = make(mode)
    tep.gradients(net, x, onehot, exact(), stats())
    check(f"{mode}: implicit gradient against central differences", direction_error(net, x, onehot, exact()), 1e-6)
    fixed = tep.Options("bptt", damping=0.7, iterations=7, rtol=0.0)
    tep.gradients(net, x, onehot, fixed, stats())
    check(f"{mode}: gradient through 7 steps against central differences", direction_error(net, x, onehot, fixed), 1e-6)


def flat(net):
    return torch.cat([net.g[n].flatten() for n in net.g if not n.startswith("head")])


def cosine(mode, grad, beta, **more):
    net, x, onehot = make(mode)
    tep.gradients(net, x, onehot, exact(), stats())
    g = flat(net)
    tep.gradients(net, x, onehot, exact(grad, beta=beta, **more), stats())
    e = flat(net)
    return float(1 - F.cosine_similarity(g, e, dim=0)), float((g - e).norm() / g.norm()), float(e.norm() / g.norm())


def check_propagation():
    check("energy: 1 - cosine of centred propagation, beta 0.01", cosine("energy", "ep_centred", 1e-2)[0], 1e-6)
    check("energy: its relative distance", cosine("energy", "ep_centred", 1e-2)[1], 1e-4)
    check("energy: one-sided propagation, beta 1e-5", cosine("energy", "ep", 1e-5)[1], 1e-4)
    check("block: J is not symmetric, so propagation is off: 1e-3 / (1 - cosine)", 1e-3 / cosine("block", "ep_centred", 1e-3)[0], 1)


def check_proxy():
    """Converged, it is 2/(Bd) times propagation with J for its transpose; in energy mode that is the exact gradient's scale."""
    net, x, onehot = make("energy")
    tep.gradients(net, x, onehot, exact(), stats())
    g = flat(net)
    tep.gradients(net, x, onehot, exact("proxy", beta=1e-4), stats())
    check("proxy, converged: 2/(B d) times the gradient", float((flat(net) * B * D / 2 - g).norm() / g.norm()), 1e-3)


def copy_literal(net, lit):
    """The fast net's weights into the literal one."""
    p = net.p
    pairs = [(lit.embed, "embed.w", "embed.b"), (lit.head, "head.w", "head.b"), (lit.attention.wv, "attn.wv", "attn.bv"),
             (lit.attention.wo, "attn.wo", "attn.bo"), (lit.w1, "ffn.w1", "ffn.b1"), (lit.w2, "ffn.w2", "ffn.b2"),
             (lit.norm2, "norm2.w", "norm2.b"), (lit.norm, "norm_f.w", "norm_f.b")]
    with torch.no_grad():
        for layer, w, b in pairs:
            layer.weight.copy_(p[w])
            layer.bias.copy_(p[b])
    return pairs


def check_literal(grad):
    """Attention's 1e-6 in the denominator is the only difference of the two forms."""
    net, x, onehot = make("block")
    lit = tep_literal.Literal(D, I, C).double()
    pairs = copy_literal(net, lit)
    o = tep.Options(grad, beta=0.1, damping=0.8, iterations=9, rtol=0.0, tol=1e-9)
    tep.gradients(net, x, onehot, o, stats())
    lit.optimizer = torch.optim.SGD(lit.parameters(), lr=0.0)
    clip, torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_, lambda *a: None
    lit.step(x, onehot.argmax(1), o, 0.0)
    torch.nn.utils.clip_grad_norm_ = clip
    worst = max(float((layer.weight.grad - net.g[w]).norm() / net.g[w].norm()) for layer, w, _ in pairs)
    check(f"literal form, {grad}: gradients", worst, 1e-4)


def check_buffer():
    """The ring buffer at rest is the map with its states put together."""
    net, x, _ = make("toroidal", spread=0.02)
    m = tep.MAPS["toroidal"](net)
    a = m.inject(x)
    h, _ = tep.solve(m.f, torch.zeros_like(a), (a,), exact())
    s, past = torch.zeros_like(a), [torch.zeros_like(a)] * 3
    for _ in range(4000):
        buffer = sum(0.9 ** (k + 1) * p for k, p in enumerate(past))
        following = 0.5 * s + 0.5 * torch.tanh(a + s @ m.wh.t() + m.scale * m.gain * buffer)
        s, past = following, [s] + past[:2]
    check("toroidal: with its buffer, at rest", float((s - h).abs().max()), 1e-12)


def check_solvers():
    """Compaction and the order of the batch change nothing; Anderson gets to the same place in fewer steps."""
    net, x, _ = make("block", d=16)
    m = tep.MAPS["block"](net)
    a = m.inject(x)
    ends = {}
    for compact in (0.0, 0.75, 1.0):
        o = tep.Options(rtol=1e-3, iterations=200, compact=compact)
        ends[compact] = tep.solve(m.f, torch.zeros_like(a), (a,), o)
    far = max(float((ends[0.0][0] - ends[c][0]).abs().max()) for c in (0.75, 1.0))
    check("compaction", far + sum(float((ends[0.0][1] - ends[c][1]).abs().sum()) for c in (0.75, 1.0)), 1e-12)
    back = torch.arange(B - 1, -1, -1)
    again = tep.solve(m.f, torch.zeros_like(a), (a[back],), o)
    check("order of the batch", float((again[0][back] - ends[1.0][0]).abs().max()), 1e-12)
    o = tep.Options(rtol=1e-9, iterations=2000)
    h, taken = tep.solve(m.f, torch.zeros_like(a), (a,), o)
    ha, fewer = tep_anderson.solve(m.f, torch.zeros_like(a), (a,), o)
    check("Anderson: the same equilibrium", float((h - ha).abs().max()), 1e-6)
    check(f"Anderson: steps as a part of the plain ones ({fewer.double().mean():.1f} of {taken.double().mean():.1f})",
          float(fewer.sum() / taken.sum()), 0.9)


def check_many(mode, grad):
    """Three networks at once against one after the other, in float32; the third row of the second is padding."""
    seeds, x = [4, 5, 6], torch.randn(3, B, I, generator=torch.Generator().manual_seed(2))
    nets, onehot = tep_many.Nets(D, I, C, seeds, mode), F.one_hot(torch.arange(B) % C, C).float()
    mask = torch.zeros(3, B, dtype=torch.bool)
    mask[1, 2] = True
    o = types.SimpleNamespace(grad=grad, beta=0.1, damping=0.9, rtol=1e-3, iterations=50, anchor="rest")
    o.share = 1 / (~mask).sum(1)[:, None, None]
    cost = lambda h: -(F.log_softmax(nets.logits(h), 2) * onehot).sum(2) * o.share[..., 0] * ~mask
    force = lambda v: torch.bmm(nets.logits(v).softmax(2) - onehot, nets.p["head.w"])
    tep_many.gradients(nets, x, cost, force, o, mask)
    worst = 0.0
    for i, seed in enumerate(seeds):
        net, keep = tep.build(D, I, C, seed, mode=mode), ~mask[i]
        tep.gradients(net, x[i][keep], onehot[keep], tep.Options(grad, 0.1, 0.9, 50, 1e-3), stats())
        worst = max([worst] + [float((nets.p[n].grad[i] - g).norm() / g.norm()) for n, g in net.g.items()])
    check(f"many networks at once, {mode} {grad}", worst, 1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        for mode in tep.MAPS:
            check_exact(mode)
        check_propagation()
        check_proxy()
        check_buffer()
        check_solvers()
    for grad in ("proxy", "bptt"):
        check_literal(grad)
    for mode in ("block", "energy"):
        for grad in ("ep", "ep_centred", "one_step", "bptt"):
            check_many(mode, grad)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)
