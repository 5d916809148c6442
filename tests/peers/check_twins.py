"""Checks of the PyTorch twins in bench/peers by independent means, in float64: gradients against central differences,
the recurrences against one step per token, attention against torch's own, AdamW with clipping against the formula, and
that no token sees a later one. Ends with "N passed, N failed"; run it with an interpreter that has torch."""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
import against  # noqa: E402
import gpt_twin  # noqa: E402
import ten_b_twin  # noqa: E402
import ten_twin  # noqa: E402

NETS = [
    (gpt_twin.Gpt, gpt_twin.DEFAULTS, "shape=gpt2 dim=8 layers=2 heads=2 vocab=11"),
    (gpt_twin.Gpt, gpt_twin.DEFAULTS, "shape=llama dim=16 layers=2 heads=4 kv_heads=2 vocab=11"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=DO dim=8 layers=2 heads=2 vocab=11 chunk=3"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=O dim=8 layers=2 vocab=11 head_dim=5"),
    (ten_b_twin.TenB, ten_b_twin.DEFAULTS, "preset=ten_a dim=8 layers=2 k=3 vocab=11"),
    (ten_b_twin.TenB, ten_b_twin.DEFAULTS, "preset=ten_b dim=8 layers=2 k=6 heads=2 vocab=11"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=EW dim=8 layers=2 k=4 heads=2 vocab=11 window=3 resonance=blockdiag"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=E dim=8 layers=2 k=4 heads=2 vocab=11 select=bounded xmem=true resonance=blockdiag"),
    (gpt_twin.Gpt, gpt_twin.DEFAULTS, "dim=16 layers=2 heads=4 vocab=11 conv=3 conv_act=silu gate=silu"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=O dim=16 layers=2 heads=2 vocab=11 rotate=token write=normed"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=DO dim=16 layers=2 heads=2 vocab=11 omega=zero conv=2 gate=sigmoid rotate=learned rotate_pairs=half forget=fixed"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=O dim=32 layers=2 heads=2 vocab=11 qk_norm=true write=delta conv_act=none"),
    (gpt_twin.Gpt, gpt_twin.DEFAULTS, "dim=16 layers=2 heads=4 vocab=11 qkv_bias=true tied=false rope_pairs=interleaved"),
    (ten_twin.Ten, ten_twin.DEFAULTS, "pattern=E dim=8 layers=2 k=4 vocab=11 gamma_norm=free"),
]
results = []


def check(name, worst, limit):
    results.append(worst <= limit)
    print(f"{'ok    ' if results[-1] else 'FAILED'} {name}: {worst:.2g} (limit {limit:g})")


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def make(kind, defaults, text, length=7):
    """A net away from its initial values, where gates and norms matter, with two batches."""
    settings = against.parse_settings(text, {**defaults, **against.TRAIN})
    settings["train.context"] = length + 2
    net = kind(settings, torch.float64, torch.Generator().manual_seed(3))
    tokens, labels = against.make_batches(2, 2, length, settings["vocab"], net.rng)
    net.loss(tokens[0], labels[0])
    with torch.no_grad():
        for p in net.params.values():
            p += 0.3 * rand(*p.shape)
    return net, tokens, labels


def check_gradients(net, tokens, labels, text):
    """Along one random direction per parameter. Differences of two widths cancel the error's first term."""
    loss, _ = net.loss(tokens[0], labels[0])
    loss.backward()
    worst = 0.0
    with torch.no_grad():
        for p in net.params.values():
            direction, start = rand(*p.shape), p.clone()

            def moved(h):
                p.copy_(start + h * direction)
                return net.loss(tokens[0], labels[0])[0]

            wide, narrow = ((moved(h) - moved(-h)) / (2 * h) for h in (2.5e-4, 1.25e-4))
            numeric = (4 * narrow - wide) / 3
            p.copy_(start)
            exact = (p.grad * direction).sum()
            worst = max(worst, abs(exact - numeric).item() / (1e-3 + abs(exact.item())))
    check(f"gradients, {text}", worst, 5e-8)


def check_causal(net, tokens, text):
    with torch.no_grad():
        before = net.forward(tokens[0])
        changed = tokens[0].clone()
        changed[:, 4] = (changed[:, 4] + 1) % net.settings["vocab"]
        after = net.forward(changed)
    check(f"future unseen, {text}", (after - before)[:, :4].abs().max().item(), 0)
    check(f"past seen, {text}", 0.0 if (after - before)[:, 6].abs().max() > 1e-6 else math.inf, 0)


def check_training(net, tokens, labels, text):
    """Two steps of make_reference's loop against AdamW written out."""
    s = net.settings
    s.update({"train.lr": 0.02, "train.decay": 0.3, "train.clip": 0.01})
    p = {n: q.detach().clone() for n, q in net.params.items()}
    m, v = ({n: torch.zeros_like(q) for n, q in p.items()} for _ in range(2))
    optimizer, worst = against.make_optimizer(net), 0.0
    for t in (1, 2):
        optimizer.zero_grad()
        net.loss(tokens[t - 1], labels[t - 1])[0].backward()
        g = {n: q.grad.clone() for n, q in net.params.items()}
        scale = min(1.0, s["train.clip"] / math.sqrt(sum((x ** 2).sum().item() for x in g.values())))
        against.apply_step(net, optimizer, t - 1)
        for n in p:
            m[n] = 0.9 * m[n] + 0.1 * scale * g[n]
            v[n] = 0.95 * v[n] + 0.05 * (scale * g[n]) ** 2
            slow = (".nu", ".omega", ".eta") + (() if s.get("gamma_norm") == "free" else (".log_gamma",))
            lr = 0.02 * (0.3 if n.endswith(slow) and "preset" not in s else 1.0)
            plain = p[n].dim() < 2 or n.endswith((".conv", ".skip", ".gain", ".resonance", ".eta"))
            update = m[n] / (1 - 0.9 ** t) / ((v[n] / (1 - 0.95 ** t)).sqrt() + 1e-8)
            p[n] = p[n] - lr * update - (0.0 if plain else lr * 0.3) * p[n]
            worst = max(worst, (net.params[n] - p[n]).abs().max().item())
    check(f"two steps of AdamW, {text}", worst, 1e-12)


def check_scan():
    B, T, K = 2, 37, 3
    x, ri, nu, omega = rand(B, T, 2 * K), rand(B, T, 2 * K).sigmoid(), rand(K), rand(K)
    c, rows = torch.zeros(B, K, dtype=torch.complex128), []
    for t in range(T):
        r, i = ri[:, t, :K], ri[:, t, K:]
        rho = torch.exp(-8 * r * torch.log1p(nu.exp()))
        gamma = torch.sqrt(torch.clamp(1 - rho ** 2, min=1e-6))
        c = rho * torch.exp(1j * omega) * c + gamma * i * (x[:, t, :K] + 1j * x[:, t, K:])
        rows.append(torch.cat([c.real, c.imag], -1))
    check("scan_gated against a loop", (ten_twin.scan_gated(x, ri, nu, omega) - torch.stack(rows, 1)).abs().max().item(), 1e-13)


def check_outer():
    B, T, H, N, P = 2, 37, 3, 4, 5
    q, k, v, alpha = rand(B, T, H, N), rand(B, T, H, N), rand(B, T, H, P), -rand(B, T, H).exp()
    S, rows = torch.zeros(B, H, N, P, dtype=torch.float64), []
    for t in range(T):
        S = alpha[:, t].exp()[..., None, None] * S + k[:, t, :, :, None] * v[:, t, :, None, :]
        rows.append((S * q[:, t, :, :, None]).sum(2))
    want = torch.stack(rows, 1)
    for chunk in (1, 8, 64):
        check(f"outer against a loop, chunk {chunk}", (ten_twin.outer(q, k, v, alpha, chunk) - want).abs().max().item(), 1e-13)


def check_conv():
    x, w = rand(2, 9, 3), rand(4, 3)
    want = F.conv1d(F.pad(x.mT, (3, 0)), w.T[:, None, :], groups=3).mT
    check("conv_causal against conv1d", (ten_twin.conv_causal(x, w) - want).abs().max().item(), 1e-14)


def check_attention():
    for heads, kv in ((4, 4), (4, 2), (6, 1)):
        q, k, v = rand(2, 9, heads, 6), rand(2, 9, kv, 6), rand(2, 9, kv, 6)
        want = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True,
                                              enable_gqa=True).transpose(1, 2)
        check(f"attention against torch, {heads} heads over {kv}",
              (gpt_twin.causal_attention(q, k, v) - want).abs().max().item(), 1e-14)


def check_rope():
    q, k = rand(1, 1, 1, 8), rand(1, 1, 1, 8)
    many = gpt_twin.rope(q.expand(1, 20, 1, 8), 100.0)
    check("rope keeps norms", (many.norm(dim=-1) - q.norm()).abs().max().item(), 1e-14)
    keys = gpt_twin.rope(k.expand(1, 20, 1, 8), 100.0)
    dots = torch.einsum("bihn,bjhn->ij", many, keys)
    check("rope sees distances only", (dots[1:, 1:] - dots[:-1, :-1]).abs().max().item(), 1e-12)
    turned = gpt_twin.rope(torch.eye(8, dtype=torch.float64)[1].view(1, 1, 1, 8).expand(1, 2, 1, 8), 100.0)[0, 1, 0]
    want = torch.tensor([math.cos(100 ** -0.25), math.sin(100 ** -0.25)], dtype=torch.float64)
    check("rope turns pair (1, 5)", (turned[[1, 5]] - want).abs().max().item(), 1e-14)


def main():
    torch.manual_seed(7)
    for kind, defaults, text in NETS:
        net, tokens, labels = make(kind, defaults, text)
        check_gradients(net, tokens, labels, text)
        check_causal(net, tokens, text)
        check_training(net, tokens, labels, text)
    for part in (check_scan, check_outer, check_conv, check_attention, check_rope):
        part()
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
