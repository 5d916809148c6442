"""The causal convolution of four taps in Triton, with or without the silu behind it, and its gradient:

    y_t = f(s_t),   s_t = sum_j w_j x_{t-3+j}

A program walks RUN tokens of some channels with the window in registers, so that everything is read once and nothing is kept
but x: the gradient computes s again. x (B,T,C), w (4,C) float32.
"""
import torch
import triton
import triton.language as tl

RUN, UNROLL = 64, 4  # tokens of a program; how many at a time
CHANNELS = 256       # of a program, which is one warp


@triton.jit
def _forward_kernel(X, W, Y, T, C, runs, SILU: tl.constexpr, RUN: tl.constexpr, UNROLL: tl.constexpr, BC: tl.constexpr):
    b, begin = tl.program_id(0) // runs, (tl.program_id(0) % runs) * RUN
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    w0, w1 = tl.load(W + c, mask=inside, other=0.0), tl.load(W + C + c, mask=inside, other=0.0)
    w2, w3 = tl.load(W + 2 * C + c, mask=inside, other=0.0), tl.load(W + 3 * C + c, mask=inside, other=0.0)
    at = (b * T + begin).to(tl.int64) * C
    before = c < tl.where(begin > 0, C, 0)  # a run is longer than the window
    x0 = tl.load(X + at - 3 * C + c, mask=before, other=0.0).to(tl.float32)
    x1 = tl.load(X + at - 2 * C + c, mask=before, other=0.0).to(tl.float32)
    x2 = tl.load(X + at - C + c, mask=before, other=0.0).to(tl.float32)
    for i in range(0, RUN, UNROLL):
        for u in tl.static_range(UNROLL):
            mask = c < tl.where(begin + i + u < T, C, 0)
            x3 = tl.load(X + at + (i + u) * C + c, mask=mask, other=0.0).to(tl.float32)
            s = w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
            if SILU:
                s = s * tl.sigmoid(s)
            tl.store(Y + at + (i + u) * C + c, s, mask=mask)
            x0, x1, x2 = x1, x2, x3


@triton.jit
def _backward_kernel(X, W, DY, DX, DW, T, C, runs, SILU: tl.constexpr, RUN: tl.constexpr, UNROLL: tl.constexpr, BC: tl.constexpr):
    """Goes UNROLL tokens over the run, where ds of the tokens behind it is still needed; dx is written three tokens late."""
    b, begin = tl.program_id(0) // runs, (tl.program_id(0) % runs) * RUN
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    w0, w1 = tl.load(W + c, mask=inside, other=0.0), tl.load(W + C + c, mask=inside, other=0.0)
    w2, w3 = tl.load(W + 2 * C + c, mask=inside, other=0.0), tl.load(W + 3 * C + c, mask=inside, other=0.0)
    at = (b * T + begin).to(tl.int64) * C
    before = c < tl.where(begin > 0, C, 0)
    x0 = tl.load(X + at - 3 * C + c, mask=before, other=0.0).to(tl.float32)
    x1 = tl.load(X + at - 2 * C + c, mask=before, other=0.0).to(tl.float32)
    x2 = tl.load(X + at - C + c, mask=before, other=0.0).to(tl.float32)
    zero = tl.zeros((BC,), tl.float32)
    s0, s1, s2 = zero, zero, zero          # ds of the three tokens before
    g0, g1, g2, g3 = zero, zero, zero, zero
    for i in range(0, RUN + UNROLL, UNROLL):
        for u in tl.static_range(UNROLL):
            mask = c < tl.where(begin + i + u < T, C, 0)
            x3 = tl.load(X + at + (i + u) * C + c, mask=mask, other=0.0).to(tl.float32)
            s3 = tl.load(DY + at + (i + u) * C + c, mask=mask, other=0.0).to(tl.float32)
            if SILU:
                s = w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
                p = tl.sigmoid(s)
                s3 = s3 * p * (1.0 + s * (1.0 - p))
            own = tl.where(i + u < RUN, s3, 0.0)
            g0, g1, g2, g3 = g0 + own * x0, g1 + own * x1, g2 + own * x2, g3 + own * x3
            late = i + u - 3
            tl.store(DX + at + late * C + c, w3 * s0 + w2 * s1 + w1 * s2 + w0 * s3,
                     mask=c < tl.where((late >= 0) & (late < RUN) & (begin + late < T), C, 0))
            x0, x1, x2 = x1, x2, x3
            s0, s1, s2 = s1, s2, s3
    out = DW + tl.program_id(0).to(tl.int64) * 4 * C + c
    tl.store(out, g0, mask=inside)
    tl.store(out + C, g1, mask=inside)
    tl.store(out + 2 * C, g2, mask=inside)
    tl.store(out + 3 * C, g3, mask=inside)


def _grid(x):
    B, T, C = x.shape
    runs = triton.cdiv(T, RUN)
    BC = min(triton.next_power_of_2(C), CHANNELS)
    return T, C, runs, BC, (B * runs, triton.cdiv(C, BC))


@torch.library.custom_op("peers::conv", mutates_args=())
def conv_op(x: torch.Tensor, w: torch.Tensor, silu: bool) -> torch.Tensor:
    x = x.contiguous()
    T, C, runs, BC, grid = _grid(x)
    y = torch.empty_like(x)
    _forward_kernel[grid](x, w, y, T, C, runs, SILU=silu, RUN=RUN, UNROLL=UNROLL, BC=BC, num_warps=1)
    return y


@torch.library.custom_op("peers::conv_back", mutates_args=())
def conv_back(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, silu: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x, dy = x.contiguous(), dy.contiguous()
    T, C, runs, BC, grid = _grid(x)
    dx, dw = torch.empty_like(x), x.new_empty(grid[0], 4, C, dtype=torch.float32)
    _backward_kernel[grid](x, w, dy, dx, dw, T, C, runs, SILU=silu, RUN=RUN, UNROLL=UNROLL, BC=BC, num_warps=1)
    return dx, dw.sum(0)


conv_op.register_fake(lambda x, w, silu: x.new_empty(x.shape))
conv_back.register_fake(lambda x, w, dy, silu: (x.new_empty(x.shape), w.new_empty(w.shape)))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.silu = inputs[2]


def _gradient(ctx, dy):
    return (*conv_back(*ctx.saved_tensors, dy, ctx.silu), None)


conv_op.register_autograd(_gradient, setup_context=_keep)


def conv_causal(x, w, silu=False):
    return conv_op(x, w, silu)
