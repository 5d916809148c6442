"""The causal convolution of four taps in Triton, with or without the silu behind it, and its gradient:

    y_t = f(s_t),   s_t = sum_j w_j x_{t-3+j}

A program walks RUN tokens of some channels with the window in registers, so that everything is read once and nothing is kept
but x: the gradient computes s again. x (B,T,C), w (4,C) float32.
"""
import torch
import triton
import triton.language as tl

RUN = 64        # tokens of a program, a multiple of 4
CHANNELS = 256  # of a program, which is one warp


@triton.jit
def _taps(W, C, c, inside):
    return (tl.load(W + c, mask=inside, other=0.0), tl.load(W + C + c, mask=inside, other=0.0),
            tl.load(W + 2 * C + c, mask=inside, other=0.0), tl.load(W + 3 * C + c, mask=inside, other=0.0))


@triton.jit
def _three(X, at, C, c, mask):
    """The tokens before `at`, oldest first."""
    return (tl.load(X + at - 3 * C + c, mask=mask, other=0.0).to(tl.float32), tl.load(X + at - 2 * C + c, mask=mask, other=0.0).to(tl.float32),
            tl.load(X + at - C + c, mask=mask, other=0.0).to(tl.float32))


@triton.jit
def _four(X, at, C, c, left):
    """Four tokens from `at` on, zeros where less than four are left. All are asked for before the first is used."""
    return (tl.load(X + at + c, mask=c < tl.where(left > 0, C, 0), other=0.0), tl.load(X + at + C + c, mask=c < tl.where(left > 1, C, 0), other=0.0),
            tl.load(X + at + 2 * C + c, mask=c < tl.where(left > 2, C, 0), other=0.0), tl.load(X + at + 3 * C + c, mask=c < tl.where(left > 3, C, 0), other=0.0))


@triton.jit
def _keep_four(Y, at, C, c, from_, to, y0, y1, y2, y3):
    """Stores those of four tokens that are in from_..to-1, counted from the first."""
    tl.store(Y + at + c, y0, mask=c < tl.where((from_ <= 0) & (to > 0), C, 0))
    tl.store(Y + at + C + c, y1, mask=c < tl.where((from_ <= 1) & (to > 1), C, 0))
    tl.store(Y + at + 2 * C + c, y2, mask=c < tl.where((from_ <= 2) & (to > 2), C, 0))
    tl.store(Y + at + 3 * C + c, y3, mask=c < tl.where((from_ <= 3) & (to > 3), C, 0))


@triton.jit
def _act(s, SILU: tl.constexpr):
    if SILU:
        s = s * tl.sigmoid(s)
    return s


@triton.jit
def _of_sum(dy, s, SILU: tl.constexpr):
    dy = dy.to(tl.float32)
    if SILU:
        p = tl.sigmoid(s)
        dy = dy * p * (1.0 + s * (1.0 - p))
    return dy


@triton.jit
def _forward_kernel(X, W, Y, T, C, runs, SILU: tl.constexpr, RUN: tl.constexpr, BC: tl.constexpr):
    b, begin = tl.program_id(0) // runs, (tl.program_id(0) % runs) * RUN
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    w0, w1, w2, w3 = _taps(W, C, c, c < C)
    at = (b * T + begin).to(tl.int64) * C
    x0, x1, x2 = _three(X, at, C, c, c < tl.where(begin > 0, C, 0))  # a run is longer than the window
    for i in range(0, RUN, 4):
        left = T - begin - i
        x3, x4, x5, x6 = _four(X, at + i * C, C, c, left)
        x3, x4, x5, x6 = x3.to(tl.float32), x4.to(tl.float32), x5.to(tl.float32), x6.to(tl.float32)
        _keep_four(Y, at + i * C, C, c, 0, left, _act(w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3, SILU), _act(w0 * x1 + w1 * x2 + w2 * x3 + w3 * x4, SILU),
                   _act(w0 * x2 + w1 * x3 + w2 * x4 + w3 * x5, SILU), _act(w0 * x3 + w1 * x4 + w2 * x5 + w3 * x6, SILU))
        x0, x1, x2 = x4, x5, x6


@triton.jit
def _backward_kernel(X, W, DY, DX, DW, T, C, runs, SILU: tl.constexpr, RUN: tl.constexpr, BC: tl.constexpr):
    """Goes four tokens over the run, where ds of the tokens behind it is still needed; dx is written three tokens late."""
    b, begin = tl.program_id(0) // runs, (tl.program_id(0) % runs) * RUN
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    w0, w1, w2, w3 = _taps(W, C, c, c < C)
    at = (b * T + begin).to(tl.int64) * C
    x0, x1, x2 = _three(X, at, C, c, c < tl.where(begin > 0, C, 0))
    zero = tl.zeros((BC,), tl.float32)
    s0, s1, s2 = zero, zero, zero  # ds of the three tokens before
    g0, g1, g2, g3 = zero, zero, zero, zero
    for i in range(0, RUN + 4, 4):
        left = T - begin - i
        x3, x4, x5, x6 = _four(X, at + i * C, C, c, left)
        s3, s4, s5, s6 = _four(DY, at + i * C, C, c, left)
        x3, x4, x5, x6 = x3.to(tl.float32), x4.to(tl.float32), x5.to(tl.float32), x6.to(tl.float32)
        s3 = _of_sum(s3, w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3, SILU)
        s4 = _of_sum(s4, w0 * x1 + w1 * x2 + w2 * x3 + w3 * x4, SILU)
        s5 = _of_sum(s5, w0 * x2 + w1 * x3 + w2 * x4 + w3 * x5, SILU)
        s6 = _of_sum(s6, w0 * x3 + w1 * x4 + w2 * x5 + w3 * x6, SILU)
        own = tl.where(i < RUN, 1.0, 0.0)
        g0 += own * (s3 * x0 + s4 * x1 + s5 * x2 + s6 * x3)
        g1 += own * (s3 * x1 + s4 * x2 + s5 * x3 + s6 * x4)
        g2 += own * (s3 * x2 + s4 * x3 + s5 * x4 + s6 * x5)
        g3 += own * (s3 * x3 + s4 * x4 + s5 * x5 + s6 * x6)
        first = i - 3  # of the tokens that are complete now
        _keep_four(DX, at + first * C, C, c, -first, tl.minimum(RUN, T - begin) - first, w3 * s0 + w2 * s1 + w1 * s2 + w0 * s3,
                   w3 * s1 + w2 * s2 + w1 * s3 + w0 * s4, w3 * s2 + w2 * s3 + w1 * s4 + w0 * s5, w3 * s3 + w2 * s4 + w1 * s5 + w0 * s6)
        x0, x1, x2 = x4, x5, x6
        s0, s1, s2 = s4, s5, s6
    out = DW + tl.program_id(0).to(tl.int64) * 4 * C + c
    tl.store(out, g0, mask=c < C)
    tl.store(out + C, g1, mask=c < C)
    tl.store(out + 2 * C, g2, mask=c < C)
    tl.store(out + 3 * C, g3, mask=c < C)


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
    _forward_kernel[grid](x, w, y, T, C, runs, SILU=silu, RUN=RUN, BC=BC, num_warps=1)
    return y


@torch.library.custom_op("peers::conv_back", mutates_args=())
def conv_back(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, silu: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x, dy = x.contiguous(), dy.contiguous()
    T, C, runs, BC, grid = _grid(x)
    dx, dw = torch.empty_like(x), x.new_empty(grid[0], 4, C, dtype=torch.float32)
    _backward_kernel[grid](x, w, dy, dx, dw, T, C, runs, SILU=silu, RUN=RUN, BC=BC, num_warps=1)
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
