"""A training step of the TEN on a GPU in PyTorch, for timing beside `tenon bench`:

    python3 bench/peers/gpu_ten.py [--net ten|ten_b] [--form triton|eager|compiled|loop] [--batch 64] [--length 1024]

    triton    recurrences, convolution, gating and cross-entropy in Triton (triton_*.py), the rest compiled
    eager     every recurrence in chunks of whole-tensor ops, nothing compiled
    compiled  the same, compiled
    loop      a step per token, as in the prototype: slow, so give it short sequences; its rate does not depend on their length

`ten` is the default network (pattern DO, d768 L12 K64), `ten_b` the wiring of that preset (d1024 L8 K128).
Keep: the same parameters and formulas as ten_twin.py and ten_b_twin.py, which tests/peers/check_gpu.py checks in all forms."""
import math
import types

import torch
import torch.nn.functional as F

import gpu_step
import ten_b_twin
import ten_twin
from gpu_step import linear

SETTINGS = {"ten": "dim=768 layers=12 k=64 vocab=50257", "ten_b": "preset=ten_b dim=1024 layers=8 k=128 vocab=50257"}
FORMS = ("triton", "eager", "compiled", "loop")
CHUNK, BLOCK = 64, 16  # tokens of a chunk of products; of a block of the scan


def wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


# --- eager, in chunks ------------------------------------------------------------------------------------------------------

def divisor(T, most):
    return next(n for n in range(min(T, most), 0, -1) if T % n == 0)


def scan_blocks(a, c):
    """a, c (B,T,K) complex, both overwritten: c_t += a_t c_{t-1}. All blocks together, their last states the same way, joined."""
    B, T, K = c.shape
    L = divisor(T, BLOCK)
    if L < 4:
        for t in range(1, T):
            c[:, t].addcmul_(a[:, t], c[:, t - 1])
        return c
    a, c = a.view(B, T // L, L, K), c.view(B, T // L, L, K)
    for t in range(1, L):
        c[:, :, t].addcmul_(a[:, :, t], c[:, :, t - 1])
        a[:, :, t].mul_(a[:, :, t - 1])
    if T > L:
        before = scan_blocks(a[:, :, -1].clone(), c[:, :, -1].clone())[:, :-1, None]
        c[:, 1:].addcmul_(a[:, 1:], before)
    return c.view(B, T, K)


class Scan(torch.autograd.Function):
    """c_t = a_t c_{t-1} + b_t with its gradient: g_t = dc_t + conj(a_{t+1}) g_{t+1}, da_t = g_t conj(c_{t-1}), db = g."""

    @staticmethod
    def forward(ctx, a, b):
        c = scan_blocks(a.clone(), b.clone())
        ctx.save_for_backward(a, c)
        return c

    @staticmethod
    def backward(ctx, dc):
        a, c = ctx.saved_tensors
        after = torch.cat([torch.zeros_like(a[:, :1]), a.flip(1)[:, :-1].conj()], 1)
        g = scan_blocks(after, dc.flip(1).resolve_conj().contiguous()).flip(1)
        return torch.cat([torch.zeros_like(g[:, :1]), g[:, 1:] * c[:, :-1].conj()], 1), g


def gated_terms(x, ri, nu, omega):
    """The recurrence's factors and inputs, complex (B,T,K)."""
    r, i = wide(ri).chunk(2, -1)
    re, im = wide(x).chunk(2, -1)
    log_rho = r * (-8 * F.softplus(nu, threshold=40))
    gain = torch.sqrt((-torch.expm1(2 * log_rho)).clamp_min(1e-6)) * i
    rho = log_rho.exp()
    return torch.complex(rho * omega.cos(), rho * omega.sin()), torch.complex(gain * re, gain * im)


def scan_gated_chunks(x, ri, nu, omega):
    c = Scan.apply(*gated_terms(x, ri, nu, omega))
    return torch.cat([c.real, c.imag], -1).to(x.dtype)


def scan_fixed_real(x, log_rho, omega):
    """x (B,T,2,K). Within a chunk the powers of the eigenvalue as a matrix per state, between chunks the same once more."""
    B, T, _, K = x.shape
    C = divisor(T, CHUNK)
    n = T // C
    back = torch.arange(C, device=x.device)[:, None] - torch.arange(C, device=x.device)
    power = lambda e: (torch.exp(e * log_rho) * torch.cos(e * omega), torch.exp(e * log_rho) * torch.sin(e * omega))
    re, im = (torch.where(back[..., None] >= 0, p, 0).permute(2, 0, 1) for p in power(back.clamp_min(0)[..., None]))
    M = torch.cat([torch.cat([re, -im], 2), torch.cat([im, re], 2)], 1)                     # (K,2C,2C)
    y = torch.bmm(M, x.reshape(B, n, C, 2, K).permute(4, 3, 2, 0, 1).reshape(K, 2 * C, B * n))
    y = y.view(K, 2, C, B, n).permute(3, 4, 2, 1, 0)                                        # (B,n,C,2,K)
    if n > 1:
        start = scan_fixed_real(y[:, :, -1], C * log_rho, C * omega)[:, :-1, None]         # (B,n-1,1,2,K)
        re, im = power(torch.arange(1, C + 1, device=x.device)[:, None])                    # (C,K)
        sr, si = start.unbind(3)
        y = y + F.pad(torch.stack([re * sr - im * si, re * si + im * sr], 3), (0, 0, 0, 0, 0, 0, 1, 0))
    return y.reshape(B, T, 2, K)


def scan_fixed_chunks(x, log_rho, omega):
    B, T, K2 = x.shape
    return scan_fixed_real(wide(x).view(B, T, 2, K2 // 2), log_rho, omega).reshape(B, T, K2).to(x.dtype)


def outer_chunks(qkv, ab, skip):
    """As triton_outer.outer, all chunks at once: (B,T,3H,N), (B,T,2H), (H,N) -> (B,T,H,N)."""
    q, k, v = qkv.chunk(3, 2)
    alpha, beta = ab.chunk(2, -1)
    return outer_products(q * q.shape[-1] ** -0.5, k, v * beta[..., None].to(v.dtype), alpha) + v * skip.to(v.dtype)


def outer_products(q, k, v, alpha):
    """q, k (B,T,H,N), v (B,T,H,P), alpha (B,T,H) of float32 -> (B,T,H,P): S_t = e^{alpha_t} S_{t-1} + k_t v_t^T, o_t = S_t^T q_t."""
    B, T, H, N = q.shape
    C = divisor(T, CHUNK)
    n, dtype = T // C, v.dtype
    q, k, v = (t.reshape(B, n, C, H, -1).permute(0, 3, 1, 2, 4) for t in (q, k, v))         # (B,H,n,C,.)
    A = alpha.view(B, n, C, H).permute(0, 3, 1, 2).cumsum(-1)                               # (B,H,n,C)
    decay = (A[..., :, None] - A[..., None, :] + A.new_full((C, C), -math.inf).triu(1)).exp()
    o = (q @ k.mT * decay.to(dtype)) @ v
    if n > 1:
        whole = A[..., -1]                                                                  # (B,H,n): decay over a chunk
        S = (k * (whole[..., None] - A).exp()[..., None].to(dtype)).mT @ v                  # (B,H,n,N,P): what a chunk adds
        ends = whole.cumsum(-1)
        reach = ((ends - whole)[..., :, None] - ends[..., None, :] + A.new_full((n, n), -math.inf).triu(0)).exp()
        S = (reach @ S.reshape(B, H, n, -1).to(reach.dtype)).view(S.shape).to(dtype)        # the state before each chunk
        o = o + (q * A.exp()[..., None].to(dtype)) @ S
    return o.permute(0, 2, 3, 1, 4).reshape(B, T, H, -1)


def conv_ops(x, w, silu=False):
    T, w = x.shape[1], w.to(x.dtype)
    padded = F.pad(x, (0, 0, 3, 0))
    y = w[0] * padded[:, :T] + w[1] * padded[:, 1:T + 1] + w[2] * padded[:, 2:T + 2] + w[3] * x
    return F.silu(y) if silu else y


# --- a step per token ------------------------------------------------------------------------------------------------------

def walk(a, b):
    c, out = torch.zeros_like(b[:, 0]), []
    for t in range(b.shape[1]):
        c = a[:, t] * c + b[:, t]
        out.append(c)
    return torch.stack(out, 1)


def scan_gated_loop(x, ri, nu, omega):
    c = walk(*gated_terms(x, ri, nu, omega))
    return torch.cat([c.real, c.imag], -1).to(x.dtype)


def scan_fixed_loop(x, log_rho, omega):
    b = torch.complex(*(t.contiguous() for t in wide(x).chunk(2, -1)))
    c = walk(torch.polar(log_rho.exp(), omega).expand_as(b), b)
    return torch.cat([c.real, c.imag], -1).to(x.dtype)


def outer_loop(qkv, ab, skip):
    q, k, v = wide(qkv).chunk(3, 2)
    alpha, beta = ab.chunk(2, -1)
    decay, u = alpha.exp()[..., None, None], v * beta[..., None]
    S, out = 0, []
    for t in range(qkv.shape[1]):
        S = decay[:, t] * S + k[:, t, :, :, None] * u[:, t, :, None, :]
        out.append((S * q[:, t, :, :, None]).sum(2))
    return (torch.stack(out, 1) * q.shape[-1] ** -0.5 + v * skip).to(qkv.dtype)


def swiglu_ops(h):
    a, b = h.chunk(2, -1)
    return F.silu(a) * b


CHUNKS = types.SimpleNamespace(scan_gated=scan_gated_chunks, scan_fixed=scan_fixed_chunks, outer=outer_chunks, conv=conv_ops,
                               swiglu=swiglu_ops)
LOOP = types.SimpleNamespace(scan_gated=scan_gated_loop, scan_fixed=scan_fixed_loop, outer=outer_loop, conv=conv_ops, swiglu=swiglu_ops)


def recurrences(form):
    if form != "triton":
        return LOOP if form == "loop" else CHUNKS
    import triton_blocks
    import triton_conv
    import triton_outer
    import triton_scan
    return types.SimpleNamespace(scan_gated=triton_scan.scan_gated, scan_fixed=triton_scan.scan_fixed, outer=triton_outer.outer,
                                 conv=triton_conv.conv_causal, swiglu=triton_blocks.swiglu)


# --- layers ----------------------------------------------------------------------------------------------------------------

def rmsnorm(x, w):
    return F.rms_norm(x, (x.shape[-1],), None if w is None else w.to(x.dtype), 1e-6)


def d_layer(at, u, ops):
    K = at("nu").shape[0]
    x, z, ri = linear(u, torch.cat([at("w_in"), at("w_ri")])).split(2 * K, -1)  # one product instead of two
    x = ops.conv(x, at("conv"))
    ri = torch.sigmoid(ri + at("b_ri").to(ri.dtype))
    c = ops.scan_gated(x, ri, at("nu"), at("omega"))
    return linear((c + x * at("skip").to(x.dtype)) * F.silu(z), at("w_out"))


def o_layer(at, u, ops):
    B, T, _ = u.shape
    H, N = at("skip").shape
    qkv = ops.conv(linear(u, at("w_in")[:3 * H * N]), at("conv"), silu=True)
    z, ab = linear(u, torch.cat([at("w_in")[3 * H * N:], at("w_ab")])).split([H * N, 2 * H], -1)
    a, b = (wide(ab) + at("b_ab")).chunk(2, -1)
    ab = torch.cat([-F.softplus(a, threshold=40), b.sigmoid()], -1)
    y = ops.outer(qkv.view(B, T, 3 * H, N), ab, at("skip"))
    y = rmsnorm(y, None) * at("gain").to(y.dtype)
    return linear(y.reshape(B, T, H * N) * F.silu(z), at("w_out"))


def begin_ten(p, tokens, dtype):
    x = F.embedding(tokens, p["embed"]).to(dtype)
    return x, rmsnorm(x, p["layer0.norm1.w"])


def make_layer_ten(ops):
    def layer(kind, p, x, u):
        """x (B,T,d) and u, its norm; p: the layer's parameters. The next layer's x and u."""
        at = lambda name: p["mixer." + name]
        x = x + (d_layer if kind == "D" else o_layer)(at, u, ops)
        x = x + linear(ops.swiglu(linear(rmsnorm(x, p["norm2.w"]), p["ffn.w1"])), p["ffn.w2"])
        return x, rmsnorm(x, p["next.w"])

    return layer


def layernorm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w.to(x.dtype), b.to(x.dtype))


def e_layer(at, u, ops):
    """The heads' coupling matrices are folded into w_out: a product over (d,2K) instead of one over all tokens."""
    R, w_out = at("resonance"), at("w_out")
    H, K = R.shape[0], at("alpha").shape[0]
    folded = torch.einsum("dphi,hij->dphj", w_out.view(-1, 2, H, K // H), R).reshape(w_out.shape)
    c = ops.scan_fixed(linear(u, at("w_in")), F.logsigmoid(at("alpha")), at("omega"))
    return linear(c, folded) * torch.sigmoid(linear(u, at("w_g"), at("b_g")))


def begin_ten_b(p, tokens, dtype):
    x = (F.embedding(tokens, p["embed"]) + p["position"][:tokens.shape[1]]).to(dtype)
    return x, layernorm(x, p["layer0.norm1.w"], p["layer0.norm1.b"])


def make_layer_ten_b(ops):
    def layer(kind, p, x, u):
        x = x + e_layer(lambda name: p["mixer." + name], u, ops)
        h = F.silu(linear(layernorm(x, p["norm2.w"], p["norm2.b"]), p["ffn.w1"], p["ffn.b1"]))
        x = x + linear(h, p["ffn.w2"], p["ffn.b2"])
        return x, layernorm(x, p["next.w"], p["next.b"])

    return layer


NETS = {"ten": (ten_twin.Ten, ten_twin.DEFAULTS, begin_ten, make_layer_ten),
        "ten_b": (ten_b_twin.TenB, ten_b_twin.DEFAULTS, begin_ten_b, make_layer_ten_b)}


def make_body(kind, form, params, settings, dtype, graph="none"):
    """body(tokens) -> (B,T,d), ready for the head. graph: see gpu_step.make_body."""
    _, _, begin, make_layer = NETS[kind]
    pattern = settings.get("pattern", "E")
    kinds = [pattern[i % len(pattern)] for i in range(settings["layers"])]
    return gpu_step.make_body(params, kinds, begin, make_layer(recurrences(form)), dtype, graph)


def make(args):
    net_class, defaults, _, _ = NETS[args.net]
    net, tokens, labels = gpu_step.make_net(net_class, defaults, args.settings, args.batch, args.length, steps=args.first, folder=args.text)
    params, s, compiled = gpu_step.device_params(net, "cuda"), net.settings, args.form in ("triton", "compiled")
    body = make_body(args.net, args.form, params, s, torch.bfloat16, args.graph if compiled else "none")
    head = args.head or {"triton": "triton", "compiled": "whole"}.get(args.form, "rows")
    return net, params, gpu_step.make_loss(body, head, params["embed"], s["vocab"], compiled), tokens.cuda(), labels.cuda()


if __name__ == "__main__":
    gpu_step.run("ten", gpu_step.parse_arguments("One training step of the TEN on a GPU.", FORMS, 64, 1024, SETTINGS), make)
