"""The complex diagonal recurrence in Triton, with its gradient:

    c_t = rho_t e^{i omega} c_{t-1} + b_t

gated (the D layer: rho_t = exp(-8 r_t softplus(nu)), b_t = sqrt(1 - rho_t^2) i_t x_t) or fixed (the E layer of ten_b:
rho of its own, b = x). Sequences are cut into chunks: what each chunk adds, the states at the chunks' starts, then every
chunk from its start, all chunks at once. Within a tile the phase is taken out, so that what is scanned has real decay.
State in float32, activations as given; x, ri, c (B,T,2K) hold real (or r) and imaginary (or i) halves.
Runs on the CPU with TRITON_INTERPRET=1, which is how tests/peers/check_gpu.py holds it to the twins.
"""
import torch
import triton
import triton.language as tl

TILE, CHUNK = 64, 256  # tokens of a tile, of a chunk


@triton.jit
def _decayed(a, xr, xi, b, yr, yi):
    return a * b, xr * b + yr, xi * b + yi


@triton.jit
def _turned(ar, ai, xr, xi, br, bi, yr, yi):
    return ar * br - ai * bi, ar * bi + ai * br, xr * br - xi * bi + yr, xr * bi + xi * br + yi


@triton.jit
def _gamma_square(l):
    """1 - e^{2 l}, without cancellation where l is small."""
    series = -2.0 * l * (1.0 + l * (1.0 + l * (2.0 / 3 + l / 3)))
    return tl.where(l > -0.03, series, 1.0 - tl.exp(2.0 * l))


@triton.jit
def _log_rho(RI, LOG, row, k, mask, K, GATED: tl.constexpr):
    """Tile of log rho: from the gates r and LOG = -8 softplus(nu), or LOG itself. 0 outside."""
    log = tl.load(LOG + k, mask=k < K, other=0.0)[None, :]
    if GATED:
        return tl.load(RI + row * 2 * K + k[None, :], mask=mask, other=0.0).to(tl.float32) * log
    else:
        return tl.where(mask, log, 0.0)


@triton.jit
def _input(X, RI, row, k, mask, K, l, GATED: tl.constexpr):
    """Tiles of b_t: (gamma_t i_t) x_t, or x_t."""
    xr = tl.load(X + row * 2 * K + k[None, :], mask=mask, other=0.0).to(tl.float32)
    xi = tl.load(X + row * 2 * K + K + k[None, :], mask=mask, other=0.0).to(tl.float32)
    if GATED:
        i = tl.load(RI + row * 2 * K + K + k[None, :], mask=mask, other=0.0).to(tl.float32)
        g = tl.sqrt(tl.maximum(_gamma_square(l), 1e-6)) * i
        xr, xi = xr * g, xi * g
    return xr, xi


@triton.jit
def _ends_kernel(X, RI, LOG, OMEGA, END, SUM, T, K, n, GATED: tl.constexpr, REVERSE: tl.constexpr, CHUNK: tl.constexpr,
                 TILE: tl.constexpr, BK: tl.constexpr):
    """What a chunk adds to the state behind it (REVERSE: to the gradient before it; X is dc), and its sum of log rho."""
    b, m = tl.program_id(0) // n, tl.program_id(0) % n
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    j = tl.arange(0, TILE)
    omega = tl.load(OMEGA + k, mask=k < K, other=0.0)[None, :]
    cr, ci, total = tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32)
    if REVERSE:
        angle = -omega * (j + 1)[:, None]
    else:
        angle = omega * (TILE - 1 - j)[:, None]
    cos, sin = tl.cos(angle), tl.sin(angle)
    whole = tl.sum(omega, 0) * TILE
    turn_r, turn_i = tl.cos(whole), tl.sin(whole)
    for i in range(0, CHUNK, TILE):
        at = CHUNK - TILE - i if REVERSE else i
        t = m * CHUNK + at + j
        mask = (t < T)[:, None] & (k < K)[None, :]
        row = (b * T + t).to(tl.int64)[:, None]
        l = _log_rho(RI, LOG, row, k, mask, K, GATED)
        reach = tl.cumsum(l, 0)
        sum_l = tl.sum(l, 0)
        if REVERSE:
            xr = tl.load(X + row * 2 * K + k[None, :], mask=mask, other=0.0).to(tl.float32)
            xi = tl.load(X + row * 2 * K + K + k[None, :], mask=mask, other=0.0).to(tl.float32)
            weight = tl.exp(reach)
        else:
            xr, xi = _input(X, RI, row, k, mask, K, l, GATED)
            weight = tl.exp(sum_l[None, :] - reach)
        decay = tl.exp(sum_l)
        s = -1.0 if REVERSE else 1.0
        nr = decay * (cr * turn_r - s * ci * turn_i) + tl.sum(weight * (xr * cos - xi * sin), 0)
        ci = decay * (ci * turn_r + s * cr * turn_i) + tl.sum(weight * (xr * sin + xi * cos), 0)
        cr = nr
        total += sum_l
    out = (b * n + m).to(tl.int64)
    tl.store(END + out * 2 * K + k, cr, mask=k < K)
    tl.store(END + out * 2 * K + K + k, ci, mask=k < K)
    tl.store(SUM + out * K + k, total, mask=k < K)


@triton.jit
def _join_kernel(END, SUM, OMEGA, START, K, n, REVERSE: tl.constexpr, CHUNK: tl.constexpr, NB: tl.constexpr, BK: tl.constexpr):
    """The state at the start of each chunk (REVERSE: the gradient that enters it at its end), from the chunks before."""
    b = tl.program_id(0)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    j = tl.arange(0, NB)
    angle = tl.load(OMEGA + k, mask=k < K, other=0.0) * CHUNK
    if REVERSE:
        angle = -angle
    cos, sin = tl.cos(angle)[None, :], tl.sin(angle)[None, :]
    cr, ci = tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32)
    for i in range(0, n, NB):
        place = n - 1 - i - j if REVERSE else i + j
        mask = (i + j < n)[:, None] & (k < K)[None, :]
        row = (b * n + place).to(tl.int64)[:, None]
        decay = tl.exp(tl.load(SUM + row * K + k[None, :], mask=mask, other=0.0))
        xr = tl.load(END + row * 2 * K + k[None, :], mask=mask, other=0.0)
        xi = tl.load(END + row * 2 * K + K + k[None, :], mask=mask, other=0.0)
        ar, ai, xr, xi = tl.associative_scan((decay * cos, decay * sin, xr, xi), 0, _turned)
        yr = xr + ar * cr[None, :] - ai * ci[None, :]
        yi = xi + ar * ci[None, :] + ai * cr[None, :]
        next_row = row - 1 if REVERSE else row + 1
        inner = (i + j < n - 1)[:, None] & (k < K)[None, :]
        tl.store(START + next_row * 2 * K + k[None, :], yr, mask=inner)
        tl.store(START + next_row * 2 * K + K + k[None, :], yi, mask=inner)
        last = (j == NB - 1)[:, None]
        cr, ci = tl.sum(tl.where(last, yr, 0.0), 0), tl.sum(tl.where(last, yi, 0.0), 0)
    edge = (b * n + (n - 1 if REVERSE else 0)).to(tl.int64)
    tl.store(START + edge * 2 * K + k, tl.zeros((BK,), tl.float32), mask=k < K)
    tl.store(START + edge * 2 * K + K + k, tl.zeros((BK,), tl.float32), mask=k < K)


@triton.jit
def _out_kernel(X, RI, LOG, OMEGA, START, C, T, K, n, GATED: tl.constexpr, JOINED: tl.constexpr, CHUNK: tl.constexpr,
                TILE: tl.constexpr, BK: tl.constexpr):
    b, m = tl.program_id(0) // n, tl.program_id(0) % n
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    j = tl.arange(0, TILE)
    omega = tl.load(OMEGA + k, mask=k < K, other=0.0)[None, :]
    cr, ci = tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32)
    if JOINED:
        at = (b * n + m).to(tl.int64) * 2 * K
        cr, ci = tl.load(START + at + k, mask=k < K, other=0.0), tl.load(START + at + K + k, mask=k < K, other=0.0)
    angle = omega * (j + 1)[:, None]  # the state before the tile has phase 0
    cos, sin = tl.cos(angle), tl.sin(angle)
    for i in range(0, CHUNK, TILE):
        t = m * CHUNK + i + j
        mask = (t < T)[:, None] & (k < K)[None, :]
        row = (b * T + t).to(tl.int64)[:, None]
        l = _log_rho(RI, LOG, row, k, mask, K, GATED)
        xr, xi = _input(X, RI, row, k, mask, K, l, GATED)
        a, sr, si = tl.associative_scan((tl.exp(l), xr * cos + xi * sin, xi * cos - xr * sin), 0, _decayed)
        sr += a * cr[None, :]
        si += a * ci[None, :]
        yr, yi = sr * cos - si * sin, sr * sin + si * cos
        tl.store(C + row * 2 * K + k[None, :], yr, mask=mask)
        tl.store(C + row * 2 * K + K + k[None, :], yi, mask=mask)
        last = (j == TILE - 1)[:, None]
        cr, ci = tl.sum(tl.where(last, yr, 0.0), 0), tl.sum(tl.where(last, yi, 0.0), 0)


@triton.jit
def _back_kernel(X, RI, LOG, OMEGA, C, DC, START, DX, DRI, DLOG, DOMEGA, T, K, n, GATED: tl.constexpr, JOINED: tl.constexpr,
                 CHUNK: tl.constexpr, TILE: tl.constexpr, BK: tl.constexpr):
    """g_t = dc_t + conj(lambda_{t+1}) g_{t+1}, tiles from the last to the first; then the gradients of b, rho and omega.
    DLOG (gated: of -8 softplus(nu); fixed: of log rho) and DOMEGA get one row per program."""
    b, m = tl.program_id(0) // n, tl.program_id(0) % n
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    j = tl.arange(0, TILE)
    omega = tl.load(OMEGA + k, mask=k < K, other=0.0)[None, :]
    log = tl.load(LOG + k, mask=k < K, other=0.0)[None, :]
    rr, ri = tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32)  # conj(lambda) g of the tokens behind the tile
    if JOINED:
        at = (b * n + m).to(tl.int64) * 2 * K
        rr, ri = tl.load(START + at + k, mask=k < K, other=0.0), tl.load(START + at + K + k, mask=k < K, other=0.0)
    angle = omega * j[:, None]
    cos, sin = tl.cos(angle), tl.sin(angle)
    one_r, one_i = tl.cos(omega), tl.sin(omega)
    dlog, domega = tl.zeros((BK,), tl.float32), tl.zeros((BK,), tl.float32)
    for i in range(0, CHUNK, TILE):
        t = m * CHUNK + CHUNK - TILE - i + j
        mask = (t < T)[:, None] & (k < K)[None, :]
        row = (b * T + t).to(tl.int64)[:, None]
        l = _log_rho(RI, LOG, row, k, mask, K, GATED)
        after = _log_rho(RI, LOG, row + 1, k, mask & ((t + 1 < T) & (j < TILE - 1))[:, None], K, GATED)
        gr = tl.load(DC + row * 2 * K + k[None, :], mask=mask, other=0.0).to(tl.float32)
        gi = tl.load(DC + row * 2 * K + K + k[None, :], mask=mask, other=0.0).to(tl.float32)
        last = (j == TILE - 1)[:, None]
        gr, gi = gr + tl.where(last, rr[None, :], 0.0), gi + tl.where(last, ri[None, :], 0.0)
        _, hr, hi = tl.associative_scan((tl.exp(after), gr * cos + gi * sin, gi * cos - gr * sin), 0, _decayed, reverse=True)
        gr, gi = hr * cos - hi * sin, hr * sin + hi * cos
        rho = tl.exp(l)
        first = (j == 0)[:, None]
        br, bi = rho * (gr * one_r + gi * one_i), rho * (gi * one_r - gr * one_i)  # conj(lambda_t) g_t
        rr, ri = tl.sum(tl.where(first, br, 0.0), 0), tl.sum(tl.where(first, bi, 0.0), 0)
        before = mask & (t > 0)[:, None]
        pr = tl.load(C + row * 2 * K - 2 * K + k[None, :], mask=before, other=0.0).to(tl.float32)
        pi = tl.load(C + row * 2 * K - K + k[None, :], mask=before, other=0.0).to(tl.float32)
        dl = br * pr + bi * pi
        domega += tl.sum(bi * pr - br * pi, 0)
        if GATED:
            r = tl.load(RI + row * 2 * K + k[None, :], mask=mask, other=0.0).to(tl.float32)
            gate = tl.load(RI + row * 2 * K + K + k[None, :], mask=mask, other=0.0).to(tl.float32)
            xr = tl.load(X + row * 2 * K + k[None, :], mask=mask, other=0.0).to(tl.float32)
            xi = tl.load(X + row * 2 * K + K + k[None, :], mask=mask, other=0.0).to(tl.float32)
            square = _gamma_square(l)
            gamma = tl.sqrt(tl.maximum(square, 1e-6))
            gx = gr * xr + gi * xi
            dl -= tl.where(square > 1e-6, gate * gx * rho * rho / gamma, 0.0)
            tl.store(DRI + row * 2 * K + k[None, :], dl * log, mask=mask)
            tl.store(DRI + row * 2 * K + K + k[None, :], gamma * gx, mask=mask)
            dlog += tl.sum(dl * r, 0)
            gr, gi = gr * gamma * gate, gi * gamma * gate
        else:
            dlog += tl.sum(tl.where(mask, dl, 0.0), 0)
        tl.store(DX + row * 2 * K + k[None, :], gr, mask=mask)
        tl.store(DX + row * 2 * K + K + k[None, :], gi, mask=mask)
    out = (b * n + m).to(tl.int64) * K
    tl.store(DLOG + out + k, dlog, mask=k < K)
    tl.store(DOMEGA + out + k, domega, mask=k < K)


# --- launching -----------------------------------------------------------------------------------------------------------

def _grid(x):
    B, T, K = x.shape[0], x.shape[1], x.shape[2] // 2
    n = triton.cdiv(T, CHUNK)
    BK = min(triton.next_power_of_2(K), 32)
    return B, T, K, n, BK, (B * n, triton.cdiv(K, BK))


def _starts(x, ri, log, omega, gated, reverse):
    """States (or gradients) at the chunks' edges (B,n,2K), float32."""
    B, T, K, n, BK, grid = _grid(x)
    end, total = x.new_empty(B, n, 2 * K, dtype=torch.float32), x.new_empty(B, n, K, dtype=torch.float32)
    start = torch.empty_like(end)
    _ends_kernel[grid](x, ri, log, omega, end, total, T, K, n, GATED=gated, REVERSE=reverse, CHUNK=CHUNK, TILE=TILE, BK=BK)
    small = min(BK, 4)
    _join_kernel[(B, triton.cdiv(K, small))](end, total, omega, start, K, n, REVERSE=reverse, CHUNK=CHUNK,
                                             NB=min(triton.next_power_of_2(n), 128), BK=small)
    return start


def _forward(x, ri, log, omega, gated):
    B, T, K, n, BK, grid = _grid(x)
    c = torch.empty_like(x)
    start = _starts(x, ri, log, omega, gated, False) if n > 1 else c
    _out_kernel[grid](x, ri, log, omega, start, c, T, K, n, GATED=gated, JOINED=n > 1, CHUNK=CHUNK, TILE=TILE, BK=BK)
    return c


def _backward(x, ri, log, omega, c, dc, gated):
    B, T, K, n, BK, grid = _grid(x)
    dx, dri = torch.empty_like(x), torch.empty_like(ri)
    dlog, domega = (x.new_empty(B * n, K, dtype=torch.float32) for _ in range(2))
    start = _starts(dc, ri, log, omega, gated, True) if n > 1 else c
    _back_kernel[grid](x, ri, log, omega, c, dc, start, dx, dri, dlog, domega, T, K, n, GATED=gated, JOINED=n > 1, CHUNK=CHUNK,
                       TILE=TILE, BK=BK)
    return dx, dri, dlog.sum(0), domega.sum(0)


# --- ops: opaque to torch.compile, which sees shapes and gradients ----------------------------------------------------------

@torch.library.custom_op("peers::scan_gated", mutates_args=())
def gated_op(x: torch.Tensor, ri: torch.Tensor, log: torch.Tensor, omega: torch.Tensor) -> torch.Tensor:
    return _forward(x.contiguous(), ri.contiguous(), log, omega, True)


@torch.library.custom_op("peers::scan_gated_back", mutates_args=())
def gated_back(x: torch.Tensor, ri: torch.Tensor, log: torch.Tensor, omega: torch.Tensor, c: torch.Tensor,
               dc: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _backward(x.contiguous(), ri.contiguous(), log, omega, c, dc.contiguous(), True)


@torch.library.custom_op("peers::scan_fixed", mutates_args=())
def fixed_op(x: torch.Tensor, log: torch.Tensor, omega: torch.Tensor) -> torch.Tensor:
    return _forward(x.contiguous(), log, log, omega, False)


@torch.library.custom_op("peers::scan_fixed_back", mutates_args=())
def fixed_back(x: torch.Tensor, log: torch.Tensor, omega: torch.Tensor, c: torch.Tensor,
               dc: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dx, _, dlog, domega = _backward(x.contiguous(), log, log, omega, c, dc.contiguous(), False)
    return dx, dlog, domega


def _like(x):
    return x.new_empty(x.shape)


gated_op.register_fake(lambda x, ri, log, omega: _like(x))
gated_back.register_fake(lambda x, ri, log, omega, c, dc: (_like(x), _like(ri), _like(log), _like(omega)))
fixed_op.register_fake(lambda x, log, omega: _like(x))
fixed_back.register_fake(lambda x, log, omega, c, dc: (_like(x), _like(log), _like(omega)))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output)


gated_op.register_autograd(lambda ctx, dc: gated_back(*ctx.saved_tensors, dc), setup_context=_keep)
fixed_op.register_autograd(lambda ctx, dc: fixed_back(*ctx.saved_tensors, dc), setup_context=_keep)


def scan_gated(x, ri, nu, omega):
    """As in ten_twin.py: x (B,T,2K), ri (B,T,2K) gates after the sigmoid, nu, omega (K) -> (B,T,2K)."""
    return gated_op(x, ri, -8 * torch.nn.functional.softplus(nu, threshold=40), omega)


def scan_fixed(x, log_rho, omega):
    """x (B,T,2K), log_rho, omega (K) -> (B,T,2K)."""
    return fixed_op(x, log_rho, omega)
