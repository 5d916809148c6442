"""The outer-product recurrence in Triton, with its gradient: per head, from q, k, v of one tensor and the write strength beta,

    S_t = e^{alpha_t} S_{t-1} + k_t (beta_t v_t)^T,   y_t = S_t^T q_t / sqrt(N) + skip v_t

A program walks the chunks of a segment with S in float32 registers; products are of the activations' type. Where sequences
are few, they are cut into segments: what each segment adds, then the states at the segments' starts, then all at once.
The forward pass keeps the states at the chunks' starts: with them dq needs no walk; dk and dv walk backwards (one kernel for all
three has to spill registers, and takes 1.6 times as long). The gradient of alpha_t is what crosses t: pairs within the chunk
from the row sums q dq - k dk, and <S, dS> at the chunk's end.
qkv (B,T,3H,N), ab (B,T,2H) float32 with alpha and beta, skip (H,N) float32; N a power of two, at least 16.
Runs on the CPU with TRITON_INTERPRET=1 (tests/peers/check_gpu.py).
"""
import torch
import triton
import triton.language as tl

CHUNK = 64
PROGRAMS = 768  # segments are made until there are about so many
WARPS = 4
STAGES = {"state": 3, "out": 2, "back": 2}


@triton.jit
def _rows(X, b, t, T, width, column, N: tl.constexpr):
    """Rows t of sequence b, N numbers from `column`; zeros beyond T."""
    at = (b * T + t).to(tl.int64)[:, None] * width + column + tl.arange(0, N)[None, :]
    return tl.load(X + at, mask=(t < T)[:, None], other=0.0)


@triton.jit
def _gate(AB, b, t, T, H, h):
    """alpha and beta of rows t; 0 beyond T, so that the state passes through."""
    at = (b * T + t).to(tl.int64) * 2 * H + h
    return tl.load(AB + at, mask=t < T, other=0.0), tl.load(AB + at + H, mask=t < T, other=0.0)


@triton.jit
def _segment_kernel(QKV, AB, DY, END, SUM, T, H, per, n, scale, REVERSE: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """What a segment of `per` chunks adds to the state behind it (REVERSE: to the gradient of the state before it)."""
    bh, m = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    j = tl.arange(0, C)
    S = tl.zeros((N, N), tl.float32)
    total = 0.0
    for i in range(0, per):
        t = (m * per + (per - 1 - i if REVERSE else i)) * C + j
        alpha, beta = _gate(AB, b, t, T, H, h)
        A = tl.cumsum(alpha, 0)
        whole = tl.sum(alpha, 0)
        if REVERSE:
            left = _rows(QKV, b, t, T, 3 * H * N, h * N, N)
            right = _rows(DY, b, t, T, H * N, h * N, N)
            left = (left * (tl.exp(A) * scale)[:, None]).to(right.dtype)
        else:
            left = _rows(QKV, b, t, T, 3 * H * N, (H + h) * N, N)
            right = _rows(QKV, b, t, T, 3 * H * N, (2 * H + h) * N, N)
            left = (left * (tl.exp(whole - A) * beta)[:, None]).to(right.dtype)
        S = tl.dot(tl.trans(left), right, S * tl.exp(whole))
        total += whole
    x = tl.arange(0, N)
    at = (bh * n + m).to(tl.int64)
    tl.store(END + at * N * N + x[:, None] * N + x[None, :], S)
    tl.store(SUM + at, total)


@triton.jit
def _join_kernel(STATE, SUM, n, SIZE, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    """In place: the state at the start of each segment (REVERSE: the gradient at its end) for what each segment adds."""
    bh = tl.program_id(0)
    x = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    S = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, n):
        m = (bh * n + (n - 1 - i if REVERSE else i)).to(tl.int64)
        added = tl.load(STATE + m * SIZE + x, mask=x < SIZE, other=0.0)
        decay = tl.exp(tl.load(SUM + m))
        tl.store(STATE + m * SIZE + x, S, mask=x < SIZE)
        S = decay * S + added


@triton.jit
def _out_kernel(QKV, AB, SKIP, START, Y, KEPT, T, H, per, n, chunks, scale, JOINED: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    bh, m = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    j, x = tl.arange(0, C), tl.arange(0, N)
    square = x[:, None] * N + x[None, :]
    S = tl.zeros((N, N), tl.float32)
    if JOINED:
        S = tl.load(START + (bh * n + m).to(tl.int64) * N * N + square)
    skip = tl.load(SKIP + h * N + x)[None, :]
    seen = j[:, None] >= j[None, :]
    for i in range(0, tl.minimum(per, chunks - m * per)):
        chunk = m * per + i
        t = chunk * C + j
        alpha, beta = _gate(AB, b, t, T, H, h)
        q = _rows(QKV, b, t, T, 3 * H * N, h * N, N)
        k = _rows(QKV, b, t, T, 3 * H * N, (H + h) * N, N)
        v = _rows(QKV, b, t, T, 3 * H * N, (2 * H + h) * N, N)
        A = tl.cumsum(alpha, 0)
        whole = tl.sum(alpha, 0)
        state = S.to(v.dtype)
        tl.store(KEPT + (bh * chunks + chunk).to(tl.int64) * N * N + square, state)
        decay = tl.exp(tl.where(seen, A[:, None] - A[None, :], float("-inf")))
        P = tl.dot(q, tl.trans(k)) * decay * (beta * scale)[None, :]
        y = tl.dot(q, state) * (tl.exp(A) * scale)[:, None]
        y = tl.dot(P.to(v.dtype), v, y) + skip * v
        tl.store(Y + (b * T + t).to(tl.int64)[:, None] * H * N + h * N + x[None, :], y, mask=(t < T)[:, None])
        left = (k * (tl.exp(whole - A) * beta)[:, None]).to(v.dtype)
        S = tl.dot(tl.trans(left), v, S * tl.exp(whole))


@triton.jit
def _query_kernel(QKV, AB, KEPT, DY, DQKV, DOT, T, H, chunks, scale, N: tl.constexpr, C: tl.constexpr):
    """dq, all chunks at once, and its row sums with q."""
    bh, chunk = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    j, x = tl.arange(0, C), tl.arange(0, N)
    t = chunk * C + j
    row = (b * T + t).to(tl.int64)
    alpha, beta = _gate(AB, b, t, T, H, h)
    A = tl.cumsum(alpha, 0)
    dy = _rows(DY, b, t, T, H * N, h * N, N)
    v = _rows(QKV, b, t, T, 3 * H * N, (2 * H + h) * N, N)
    state = tl.load(KEPT + (bh * chunks + chunk).to(tl.int64) * N * N + x[:, None] * N + x[None, :])
    decay = tl.exp(tl.where(j[:, None] >= j[None, :], A[:, None] - A[None, :], float("-inf")))
    dP = (tl.dot(dy, tl.trans(v)) * decay * (beta * scale)[None, :]).to(v.dtype)
    dq = tl.dot(dy, tl.trans(state)) * (tl.exp(A) * scale)[:, None]
    k = _rows(QKV, b, t, T, 3 * H * N, (H + h) * N, N)
    dq = tl.dot(dP, k, dq)
    q = _rows(QKV, b, t, T, 3 * H * N, h * N, N)
    tl.store(DQKV + row[:, None] * 3 * H * N + h * N + x[None, :], dq, mask=(t < T)[:, None])
    tl.store(DOT + row * H + h, tl.sum(dq * q, 1), mask=t < T)


@triton.jit
def _back_kernel(QKV, AB, SKIP, KEPT, DY, START, DOT, DQKV, DAB, DSKIP, T, H, per, n, chunks, scale, JOINED: tl.constexpr,
                 N: tl.constexpr, C: tl.constexpr):
    bh, m = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    j, x = tl.arange(0, C), tl.arange(0, N)
    square = x[:, None] * N + x[None, :]
    dS = tl.zeros((N, N), tl.float32)
    if JOINED:
        dS = tl.load(START + (bh * n + m).to(tl.int64) * N * N + square)
    skip = tl.load(SKIP + h * N + x)[None, :]
    dskip = tl.zeros((N,), tl.float32)
    count = tl.minimum(per, chunks - m * per)
    for i in range(0, count):
        chunk = m * per + count - 1 - i
        t = chunk * C + j
        row = (b * T + t).to(tl.int64)
        alpha, beta = _gate(AB, b, t, T, H, h)
        A = tl.cumsum(alpha, 0)
        whole = tl.sum(alpha, 0)
        fade = tl.exp(whole - A)
        # transposed: rows are the tokens that are read, columns those that read them
        decay = tl.exp(tl.where(j[:, None] <= j[None, :], A[None, :] - A[:, None], float("-inf"))) * scale
        state = tl.load(KEPT + (bh * chunks + chunk).to(tl.int64) * N * N + square)
        across = tl.exp(whole) * tl.sum(tl.sum(state * dS, 1), 0)
        q = _rows(QKV, b, t, T, 3 * H * N, h * N, N)
        dy = _rows(DY, b, t, T, H * N, h * N, N)
        dSl = dS.to(q.dtype)
        k = _rows(QKV, b, t, T, 3 * H * N, (H + h) * N, N)
        P = (tl.dot(k, tl.trans(q)) * decay).to(q.dtype)
        du = tl.dot(k, dSl) * fade[:, None]
        du = tl.dot(P, dy, du)
        v = _rows(QKV, b, t, T, 3 * H * N, (2 * H + h) * N, N)
        dbeta = tl.sum(du * v, 1)
        dskip += tl.sum(dy * v.to(tl.float32), 0)
        dv = du * beta[:, None] + skip * dy
        tl.store(DQKV + row[:, None] * 3 * H * N + (2 * H + h) * N + x[None, :], dv, mask=(t < T)[:, None])
        dP = (tl.dot(v, tl.trans(dy)) * decay).to(q.dtype)
        dk = tl.dot(v, tl.trans(dSl)) * fade[:, None]
        behind = tl.sum(dk * k, 1) * beta
        dk = tl.dot(dP, q, dk) * beta[:, None]
        tl.store(DQKV + row[:, None] * 3 * H * N + (H + h) * N + x[None, :], dk, mask=(t < T)[:, None])
        dA = tl.load(DOT + row * H + h, mask=t < T, other=0.0) - tl.sum(dk * k, 1)
        dalpha = tl.sum(dA, 0) - tl.cumsum(dA, 0) + dA + across + tl.sum(behind, 0)
        tl.store(DAB + row * 2 * H + h, dalpha, mask=t < T)
        tl.store(DAB + row * 2 * H + H + h, dbeta, mask=t < T)
        left = (q * (tl.exp(A) * scale)[:, None]).to(q.dtype)
        dS = tl.dot(tl.trans(left), dy, dS * tl.exp(whole))
    tl.store(DSKIP + (bh * n + m).to(tl.int64) * N + x, dskip)


# --- launching -----------------------------------------------------------------------------------------------------------

def _plan(qkv):
    """(B, T, H, N, chunks of a sequence, segments, chunks of a segment)."""
    B, T, H, N = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3, qkv.shape[3]
    chunks = triton.cdiv(T, CHUNK)
    n = max(1, min(PROGRAMS // (B * H), chunks))
    per = triton.cdiv(chunks, n)
    return B, T, H, N, chunks, triton.cdiv(chunks, per), per


def _starts(qkv, ab, dy, reverse):
    B, T, H, N, _, n, per = _plan(qkv)
    state, total = qkv.new_empty(B * H, n, N, N, dtype=torch.float32), qkv.new_empty(B * H, n, dtype=torch.float32)
    _segment_kernel[(B * H, n)](qkv, ab, dy, state, total, T, H, per, n, N ** -0.5, REVERSE=reverse, N=N, C=CHUNK,
                                num_warps=WARPS, num_stages=STAGES["state"])
    block = min(N * N, 512)
    _join_kernel[(B * H, N * N // block)](state, total, n, N * N, REVERSE=reverse, BLOCK=block)
    return state


@torch.library.custom_op("peers::outer", mutates_args=())
def outer_op(qkv: torch.Tensor, ab: torch.Tensor, skip: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    qkv, ab = qkv.contiguous(), ab.contiguous()
    B, T, H, N, chunks, n, per = _plan(qkv)
    y, kept = qkv.new_empty(B, T, H, N), qkv.new_empty(B * H, chunks, N, N)
    start = _starts(qkv, ab, qkv, False) if n > 1 else ab
    _out_kernel[(B * H, n)](qkv, ab, skip, start, y, kept, T, H, per, n, chunks, N ** -0.5, JOINED=n > 1, N=N, C=CHUNK,
                            num_warps=WARPS, num_stages=STAGES["out"])
    return y, kept


@torch.library.custom_op("peers::outer_back", mutates_args=())
def outer_back(qkv: torch.Tensor, ab: torch.Tensor, skip: torch.Tensor, kept: torch.Tensor,
               dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    qkv, ab, dy = qkv.contiguous(), ab.contiguous(), dy.contiguous()
    B, T, H, N, chunks, n, per = _plan(qkv)
    dqkv, dab, dskip = torch.empty_like(qkv), torch.empty_like(ab), qkv.new_empty(B, H, n, N, dtype=torch.float32)
    start = _starts(qkv, ab, dy, True) if n > 1 else ab
    dot = qkv.new_empty(B, T, H, dtype=torch.float32)
    _query_kernel[(B * H, chunks)](qkv, ab, kept, dy, dqkv, dot, T, H, chunks, N ** -0.5, N=N, C=CHUNK, num_warps=WARPS)
    _back_kernel[(B * H, n)](qkv, ab, skip, kept, dy, start, dot, dqkv, dab, dskip, T, H, per, n, chunks, N ** -0.5, JOINED=n > 1, N=N,
                             C=CHUNK, num_warps=WARPS, num_stages=STAGES["back"])
    return dqkv, dab, dskip.sum((0, 2))


@outer_op.register_fake
def _(qkv, ab, skip):
    B, T, H, N, chunks, _, _ = _plan(qkv)
    return qkv.new_empty(B, T, H, N), qkv.new_empty(B * H, chunks, N, N)


outer_back.register_fake(lambda qkv, ab, skip, kept, dy: tuple(t.new_empty(t.shape) for t in (qkv, ab, skip)))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output[1])
    ctx.set_materialize_grads(False)


outer_op.register_autograd(lambda ctx, dy, _: outer_back(*ctx.saved_tensors, dy), setup_context=_keep)


def outer(qkv, ab, skip):
    """qkv (B,T,3H,N), ab (B,T,2H): alpha and beta, skip (H,N) -> (B,T,H,N)."""
    return outer_op(qkv, ab, skip)[0]
