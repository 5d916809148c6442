"""A training step of the TEN (d512 L6 K64 V50257) in PyTorch, for timing: prints JSON lines (README.md). The peer of
`tenon bench ten dim=512 layers=6 k=64 train.batch=4 train.context=512`. No dropout, no document resets.
Keep: the same parameters and formulas as ten_twin.py; here every recurrence runs in blocks, with few and large ops."""
import math

import torch
import torch.nn.functional as F

import against
import step
import ten_twin

SETTINGS = "pattern=DO dim=512 layers=6 k=64 vocab=50257"


# --- recurrences -------------------------------------------------------------------------------------------------------

def divisor(T, most):
    return next(n for n in range(min(T, most), 0, -1) if T % n == 0)


def blocked_scan(a, b, reverse):
    """a, b (B,T,K): c_t = a_t c_{t-1} + b_t (reverse: c_t = a_t c_{t+1} + b_t). All blocks advance together, then the
    blocks' last states, then both are joined: about 2 sqrt(T) ops, three passes over the data."""
    B, T, K = b.shape
    L = divisor(T, max(int(math.sqrt(T)) + 9, 1))
    a, c = a.view(B, T // L, L, K), b.clone().view(B, T // L, L, K)
    decay = a.clone()
    order = range(L - 2, -1, -1) if reverse else range(1, L)
    back = 1 if reverse else -1
    for t in order:
        c[:, :, t].addcmul_(a[:, :, t], c[:, :, t + back])
        decay[:, :, t].mul_(decay[:, :, t + back])
    n, last = T // L, 0 if reverse else L - 1
    for m in range(n - 2, -1, -1) if reverse else range(1, n):
        c[:, m, last].addcmul_(decay[:, m, last], c[:, m + back, last])
    inner = slice(1, L) if reverse else slice(0, L - 1)  # the last of each block is done
    to, start = (slice(0, n - 1), slice(1, n)) if reverse else (slice(1, n), slice(0, n - 1))
    c[:, to, inner].addcmul_(decay[:, to, inner], c[:, start, last:last + 1])
    return c.view(B, T, K)


class Scan(torch.autograd.Function):
    """The complex recurrence with its gradient: g_t = dc_t + conj(a_{t+1}) g_{t+1}, da_t = g_t conj(c_{t-1}), db = g."""

    @staticmethod
    def forward(ctx, a, b):
        c = blocked_scan(a, b, False)
        ctx.save_for_backward(a, c)
        return c

    @staticmethod
    def backward(ctx, dc):
        a, c = ctx.saved_tensors
        after = torch.zeros_like(a)
        after[:, :-1] = a[:, 1:].conj()
        g = blocked_scan(after, dc.contiguous(), True)
        da = torch.zeros_like(a)
        torch.mul(g[:, 1:], c[:, :-1].conj(), out=da[:, 1:])
        return da, g


class Product(torch.autograd.Function):
    """a @ b for batches, always with a contiguous second operand: where it is a transpose, the batched product of some
    builds (aarch64 with oneDNN) takes twenty times as long."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b.contiguous()

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        dy = dy.contiguous()
        return dy @ b.transpose(-1, -2).contiguous(), a.transpose(-1, -2) @ dy


def scan_gated(x, ri, nu, omega):
    """As in ten_twin.py: x (B,T,2K), ri (B,T,2K) gates, nu, omega (K) -> (B,T,2K)."""
    r, i = ri.chunk(2, -1)
    log_rho = r * (-8 * F.softplus(nu, threshold=40))
    gain = torch.sqrt((-torch.expm1(2 * log_rho)).clamp_min(1e-6)) * i
    re, im = x.chunk(2, -1)
    rho = log_rho.exp()
    c = Scan.apply(torch.complex(rho * omega.cos(), rho * omega.sin()), torch.complex(gain * re, gain * im))
    return torch.cat([c.real, c.imag], -1)


def product(a, b):
    dtype = torch.bfloat16 if torch.bfloat16 in (a.dtype, b.dtype) else a.dtype
    return Product.apply(a.to(dtype), b.to(dtype))


def outer(q, k, v, alpha, chunk):
    """As in ten_twin.py, all chunks at once: q, k (B,T,H,N), v (B,T,H,P), alpha (B,T,H) -> (B,T,H,P)."""
    B, T, H, N = q.shape
    C = divisor(T, chunk)
    n = T // C
    q, k, v = (t.view(B, n, C, H, -1).permute(0, 3, 1, 2, 4) for t in (q, k, v))  # (B,H,n,C,.)
    A = alpha.view(B, n, C, H).permute(0, 3, 1, 2).cumsum(-1)                     # (B,H,n,C)
    future = torch.full((C, C), -math.inf, dtype=A.dtype).triu_(1)
    decay = (A[..., :, None] - A[..., None, :] + future).exp()
    o = product((product(q, k.transpose(-1, -2)) * decay).to(v.dtype), v)
    if n > 1:
        whole = A[..., -1]                                                        # (B,H,n): decay over a chunk
        S = product((k * (whole[..., None] - A).exp()[..., None]).transpose(-1, -2), v)  # (B,H,n,N,P): what a chunk adds
        before = whole.cumsum(-1) - whole                                         # decay before the chunk
        past = torch.full((n, n), -math.inf, dtype=A.dtype).triu_(0)              # chunk j reaches the start of i > j
        reach = (before[..., :, None] - (before + whole)[..., None, :] + past).exp()
        S = product(reach, S.reshape(B, H, n, -1)).view(S.shape)
        o = o + product(q * A.exp()[..., None], S)
    return o.permute(0, 2, 3, 1, 4).reshape(B, T, H, -1)


class ConvCausal(torch.autograd.Function):
    """x (B,T,C), w (4,C): y_t = sum_j w_j x_{t-3+j}, in place and without padding."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        y = x * w[3]
        for s in range(1, min(4, x.shape[1])):
            y[:, s:].addcmul_(x[:, :-s], w[3 - s])
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx, dw = dy * w[3], torch.zeros_like(w)
        dw[3] = (dy * x).sum((0, 1))
        for s in range(1, min(4, x.shape[1])):
            dx[:, :-s].addcmul_(dy[:, s:], w[3 - s])
            dw[3 - s] = (dy[:, s:] * x[:, :-s]).sum((0, 1))
        return dx, dw


# --- layers ------------------------------------------------------------------------------------------------------------

def d_layer(at, u):
    x, z = F.linear(u, at("w_in")).chunk(2, -1)
    x = ConvCausal.apply(x, at("conv").to(x.dtype))
    ri = F.linear(u, at("w_ri"), at("b_ri")).sigmoid()
    wide = torch.promote_types(x.dtype, torch.float32)
    c = scan_gated(x.to(wide), ri.to(wide), at("nu"), at("omega"))
    return F.linear((c + x * at("skip")) * F.silu(z), at("w_out"))


def o_layer(at, u, heads, chunk):
    B, T, _ = u.shape
    HN = at("w_out").shape[1]
    qkv, z = F.linear(u, at("w_in")).split([3 * HN, HN], -1)
    qkv = F.silu(ConvCausal.apply(qkv, at("conv").to(qkv.dtype)))
    q, k, v = qkv.view(B, T, 3 * heads, -1).chunk(3, 2)
    N = q.shape[-1]
    a, b = F.linear(u, at("w_ab"), at("b_ab")).chunk(2, -1)
    alpha = -F.softplus(a.to(torch.promote_types(a.dtype, torch.float32)), threshold=40)
    y = outer(q / math.sqrt(N), k, v * b.sigmoid()[..., None], alpha, chunk) + v * at("skip")
    y = step.rmsnorm(y, None) * at("gain")
    return F.linear(y.reshape(B, T, HN) * F.silu(z), at("w_out"))


def forward(p, kinds, heads, chunk, tokens):
    """p: parameters by name; kinds: a letter per layer; tokens (B,T) -> (B,T,d), ready for the head."""
    x = F.embedding(tokens, p["embed"])
    for i, kind in enumerate(kinds):
        at = lambda name, layer=i: p[f"layer{layer}.{name}"]
        mixer = lambda name, layer=i: p[f"layer{layer}.mixer.{name}"]
        u = step.rmsnorm(x, at("norm1.w"))
        x = x + (d_layer(mixer, u) if kind == "D" else o_layer(mixer, u, heads, chunk))
        a, b = F.linear(step.rmsnorm(x, at("norm2.w")), at("ffn.w1")).chunk(2, -1)
        x = x + F.linear(F.silu(a) * b, at("ffn.w2"))
    return step.rmsnorm(x, p["norm_f.w"])


def make_step(args, dtype):
    net, tokens, labels = step.make_net(ten_twin.Ten, ten_twin.DEFAULTS, against.TRAIN, args.settings, args.batch, args.length)
    s = net.settings
    kinds = "".join(s["pattern"][i % len(s["pattern"])] for i in range(s["layers"]))

    return step.language_step(net, lambda t: forward(net.params, kinds, net.heads, s["chunk"], t), tokens, labels, args, dtype)


if __name__ == "__main__":
    options = lambda a: step.add_model_options(a, 4, 512, SETTINGS, 1024)
    step.run("ten", step.parse_arguments("One training step of the TEN.", options), make_step)
