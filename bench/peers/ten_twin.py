"""The twin of src/models/ten: the Temporal Eigenstate Network, layers D (gated diagonal), O (outer-product state), E
(eigenstates, in their default form with some variations) and W (window attention).

Run as a command it writes a reference file (see README.md). No dropout, no document resets, no carried state; the historical
networks are in ten_b_twin.py.
Keep: names, shapes and formulas as in the C text; `auto` means what ten_config_read there makes of it.
"""
import math

import torch
import torch.nn.functional as F

import against
import gpt_twin
from against import normal, ones, uniform, zeros

DEFAULTS = {"pattern": "DO", "dim": 256, "layers": 4, "k": "auto", "heads": "auto", "head_dim": "auto", "ffn": "auto",
            "chunk": 64, "vocab": 256, "window": 256, "rotate": "false", "resonance": "none", "select": "none", "xmem": "false",
            "conv": 4, "skip": "true", "gate": "silu", "omega": "learned", "rotate_pairs": "all", "write": "sigmoid", "forget": "token",
            "qk_norm": "false", "conv_act": "silu", "gamma_norm": "true"}


# --- initial values --------------------------------------------------------------------------------------------------

def init_nu(rng, shape):
    a = torch.sqrt(uniform(0.9 ** 2, 0.999 ** 2)(rng, shape).double())
    return torch.log(torch.expm1(-torch.log(a) / 8))


def init_omega(rng, shape):
    omega = uniform(0, math.pi)(rng, shape)
    omega[: shape[0] // 2] *= 0.1
    return omega


def init_log(rng, shape):
    """nu of rho = exp(-exp(nu)) for time constants log-uniform from 4 to 4096."""
    return -uniform(math.log(4), math.log(4096))(rng, shape)


def near_identity(rng, shape):
    return torch.eye(shape[-1]) + 0.01 * torch.randn(shape, generator=rng) / math.sqrt(shape[-1])


def identity(rng, shape):
    return torch.eye(shape[0])


def minus_three(rng, shape):
    return torch.full(shape, -3.0)


def init_decay(decays):
    """So many decays, then write strengths."""
    def fill(rng, shape):
        tau = torch.exp(torch.linspace(math.log(4), math.log(1024), decays, dtype=torch.float64))
        return torch.cat([torch.log(torch.expm1(1 / tau)), torch.zeros(shape[0] - decays)])
    return fill


def init_turn(last):
    return lambda rng, shape: torch.linspace(0, math.log(last), shape[1], dtype=torch.float64).repeat(shape[0], 1)


def minus_two(rng, shape):
    return torch.full(shape, -2.0)


# --- recurrences -----------------------------------------------------------------------------------------------------

def softplus(x):
    return F.softplus(x, threshold=40)  # beyond it the two sides agree to the last bit of a float64


conv_causal = gpt_twin.conv_causal


def rotated(x, cos, sin):
    """x (..., N), cos, sin (..., n): turns the pairs (j, j + n) of the first 2n numbers."""
    n = cos.shape[-1]
    a, b, rest = x.split([n, n, x.shape[-1] - 2 * n], -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


def scan(a, b):
    """a, b (B,T,K): c_t = a_t c_{t-1} + b_t for all t at once, each round doubling the reach."""
    step = 1
    while step < b.shape[1]:
        b = torch.cat([b[:, :step], b[:, step:] + a[:, step:] * b[:, :-step]], 1)
        a = torch.cat([a[:, :step], a[:, step:] * a[:, :-step]], 1)
        step *= 2
    return b


def scan_gated(x, ri, nu, omega):
    """x (B,T,2K) real and imaginary halves, ri (B,T,2K) gates, nu, omega (K) -> (B,T,2K):
    c_t = rho_t e^{i omega} c_{t-1} + gamma_t i_t x_t, rho_t = exp(-8 r_t softplus(nu)), gamma_t = sqrt(1 - rho_t^2)."""
    r, i = ri.chunk(2, -1)
    log_rho = -8 * r * softplus(nu)
    gamma = torch.sqrt((-torch.expm1(2 * log_rho)).clamp_min(1e-6))
    rho = log_rho.exp()
    c = scan(torch.polar(rho, omega.expand_as(rho)), gamma * i * torch.complex(*x.chunk(2, -1)))
    return torch.cat([c.real, c.imag], -1)


def outer(q, k, v, alpha, chunk):
    """q, k (B,T,H,N), v (B,T,H,P), alpha (B,T,H) -> (B,T,H,P): S_t = e^{alpha_t} S_{t-1} + k_t v_t^T, o_t = S_t^T q_t.
    Within a chunk as a masked product, between chunks through S."""
    B, T, H, N = q.shape
    S, out = q.new_zeros(B, H, N, v.shape[-1]), []
    for begin in range(0, T, chunk):
        cq, ck, cv, ca = (t[:, begin:begin + chunk].transpose(1, 2) for t in (q, k, v, alpha))  # (B,H,C,...)
        A = ca.cumsum(-1)
        future = torch.ones(A.shape[-1], A.shape[-1], dtype=torch.bool).triu(1)
        decay = (A[..., :, None] - A[..., None, :]).masked_fill(future, -math.inf).exp()
        o = (cq @ ck.mT * decay) @ cv + A.exp()[..., None] * (cq @ S)
        S = A[..., -1, None, None].exp() * S + ((A[..., -1:] - A).exp()[..., None] * ck).mT @ cv
        out.append(o.transpose(1, 2))
    return torch.cat(out, 1)


def delta(q, k, v, alpha, beta):
    """Shapes as in outer, beta (B,T,H): w_t = beta_t (v_t - e^{alpha_t} S_{t-1}^T k_t), S_t = e^{alpha_t} S_{t-1} + k_t w_t^T."""
    B, T, H, N = q.shape
    S, out = q.new_zeros(B, H, N, v.shape[-1]), []
    for t in range(T):
        S = alpha[:, t].exp()[..., None, None] * S
        missing = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhnp,bhn->bhp", S, k[:, t]))
        S = S + k[:, t, :, :, None] * missing[:, :, None, :]
        out.append(torch.einsum("bhnp,bhn->bhp", S, q[:, t]))
    return torch.stack(out, 1)


# --- model -----------------------------------------------------------------------------------------------------------

class Ten(against.Net):
    def __init__(self, settings, dtype, rng):
        super().__init__(settings, dtype, rng)
        s = settings
        auto = lambda key, value: value if s[key] == "auto" else s[key]
        self.dim = s["dim"]
        self.k = auto("k", max(self.dim // 2, 1))
        self.heads = auto("heads", max(self.dim // 64, 1))
        self.head_dim = auto("head_dim", self.dim // self.heads)
        self.ffn = auto("ffn", (5 * self.dim // 2 + 7) // 8 * 8)
        self.out_std = 0.02 / math.sqrt(2 * s["layers"])
        if not s["pattern"] or s["pattern"].strip("DOEW"):
            raise ValueError(f"pattern={s['pattern']}: a word of D, O, E and W")
        if self.head_dim < 1:
            raise ValueError(f"heads={self.heads} is more than dim={self.dim}")

    def short_conv(self, x):
        taps = self.settings["conv"]
        return conv_causal(x, self.param("conv", (taps, x.shape[-1]), uniform(-0.5, 0.5), decay=False)) if taps else x

    def read_out(self, u, s, z):
        """gate=silu: w_out(s silu(z)); sigmoid: w_out(s) sigmoid(w_g u + b_g); none: w_out(s)."""
        d, gate = self.dim, self.settings["gate"]
        y = F.linear(s * F.silu(z) if gate == "silu" else s, self.param("w_out", (d, s.shape[-1]), normal(self.out_std)))
        if gate != "sigmoid":
            return y
        return y * F.linear(u, self.param("w_g", (d, d), normal(0.02)), self.param("b_g", (d,), minus_two)).sigmoid()

    def phases(self):
        if self.settings["omega"] == "zero":
            return torch.zeros(self.k, dtype=torch.float64)
        return self.param("omega", (self.k,), init_omega, lr=0.3)

    def d_layer(self, u):
        d, K = self.dim, self.k
        parts = 2 if self.settings["gate"] == "silu" else 1
        xz = F.linear(u, self.param("w_in", (parts * 2 * K, d), normal(0.02)))
        x, z = self.short_conv(xz[..., :2 * K]), xz[..., -2 * K:]
        ri = F.linear(u, self.param("w_ri", (2 * K, d), normal(0.02)), self.param("b_ri", (2 * K,), zeros)).sigmoid()
        c = scan_gated(x, ri, self.param("nu", (K,), init_nu, lr=0.3), self.phases())
        if self.settings["skip"] == "true":
            c = c + x * self.param("skip", (2 * K,), ones)
        return self.read_out(u, c, z)

    def turned(self, q, k, u):
        """Queries and keys (B,T,H,N) turned by the angles so far."""
        s, (B, T, H, N) = self.settings, q.shape
        half = s["rotate_pairs"] == "half"
        pairs, token = N // (4 if half else 2), torch.arange(1, T + 1, dtype=q.dtype)[:, None, None]
        if s["rotate"] == "false":
            return q, k
        if s["rotate"] == "true":
            angle = token * 10000.0 ** (-torch.arange(pairs, dtype=q.dtype) / pairs)
        else:
            speed = self.param("eta", (H, pairs), init_turn(1e-3 if half else 1e-4), lr=0.3, decay=False).exp()
            angle = token * speed
        if s["rotate"] == "token":
            much = F.linear(u, self.param("w_turn", (H, self.dim), normal(0.02)), self.param("b_turn", (H,), zeros))
            angle = (2 * much.sigmoid()).cumsum(1)[..., None] * speed
        return tuple(rotated(x, angle.cos(), angle.sin()) for x in (q, k))

    def strengths(self, u):
        """Logarithm of the decay and strength of writing, (B,T,H) each."""
        s, H = self.settings, self.heads
        decays = H if s["forget"] == "token" else 0
        rows = decays + (0 if s["write"] == "decay" else H)
        if rows:
            ab = F.linear(u, self.param("w_ab", (rows, self.dim), normal(0.02)), self.param("b_ab", (rows,), init_decay(decays)))
        a = ab[..., :H] if decays else self.param("decay", (H,), init_decay(H)).expand(*u.shape[:2], H)
        alpha = -softplus(a)
        write = -torch.expm1(alpha) if s["write"] == "decay" else ab[..., decays:].sigmoid()
        if s["write"] == "normed":
            write = write * torch.sqrt((-torch.expm1(2 * alpha)).clamp_min(1e-6))
        return alpha, write

    def o_layer(self, u):
        B, T, d = u.shape
        s, H, N = self.settings, self.heads, self.head_dim
        parts = 4 if s["gate"] == "silu" else 3
        xz = F.linear(u, self.param("w_in", (parts * H * N, d), normal(0.02)))
        qkv, z = self.short_conv(xz[..., :3 * H * N]), xz[..., -H * N:]
        qkv = F.silu(qkv) if s["conv_act"] == "silu" else qkv
        q, k, v = qkv.view(B, T, 3 * H, N).chunk(3, 2)
        if s["qk_norm"] == "true":
            q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        else:
            q = q / math.sqrt(N)
        q, k = self.turned(q, k, u)
        alpha, write = self.strengths(u)
        missing = s["write"] == "delta"
        y = delta(q, k, v, alpha, write) if missing else outer(q, k, v * write[..., None], alpha, s["chunk"])
        if s["skip"] == "true":
            y = y + v * self.param("skip", (H, N), ones, decay=False)
        n = against.rms(y) * self.param("gain", (H, N), ones, decay=False)
        return self.read_out(u, n.reshape(B, T, H * N), z)

    def coupled(self, c, R):
        """c (B,T,2K): real and imaginary parts of each head's states through the head's matrix."""
        if R is None:
            return c
        B, T, K = *c.shape[:2], self.k
        return torch.einsum("hij,btphj->btphi", R, c.reshape(B, T, 2, R.shape[0], -1)).reshape(B, T, 2 * K)

    def recur_e(self, x, u):
        """Eigenvalues by `select`, and the recurrence."""
        K, d, select = self.k, self.dim, self.settings["select"]
        omega = self.phases()
        if select == "rg":
            nu = self.param("nu", (K,), init_nu, lr=0.3)
            ri = F.linear(u, self.param("w_ri", (2 * K, d), normal(0.02)), self.param("b_ri", (2 * K,), zeros)).sigmoid()
            return scan_gated(x, ri, nu, omega)
        nu = self.param("nu", (K,), init_log, lr=0.3)
        if select == "bounded":
            pq = F.linear(u, self.param("w_sel", (2 * K, d), zeros), self.param("b_sel", (2 * K,), zeros)).tanh()
            nu, omega = nu + 0.1 * pq[..., :K], omega + 0.05 * pq[..., K:]
        log_rho = -nu.exp()
        root = torch.sqrt(-torch.expm1(2 * log_rho))
        if self.settings["gamma_norm"] == "free":
            gamma = self.param("log_gamma", (K,), lambda rng, shape: root.detach().log().expand(1, 1, K)[0, 0]).exp()
        else:
            gamma = root * self.param("log_gamma", (K,), zeros, lr=0.3).exp()
        lam = torch.polar(log_rho.exp(), omega.expand_as(log_rho)).expand(*x.shape[:2], K)
        c = scan(lam, gamma * torch.complex(*x.chunk(2, -1)))
        return torch.cat([c.real, c.imag], -1)

    def e_layer(self, u):
        d, K, s = self.dim, self.k, self.settings
        x = conv_causal(F.linear(u, self.param("w_in", (2 * K, d), normal(0.02))),
                        self.param("conv", (4, 2 * K), uniform(-0.5, 0.5), decay=False))
        if s["xmem"] == "true" and self.memory is not None:
            m = F.linear(self.memory, self.param("w_mem", (2 * K, 2 * K), identity))
            x = x + m * self.param("mu", (1,), minus_three).sigmoid()
        c = self.recur_e(x, u)
        size = K // self.heads
        R = self.param("resonance", (self.heads, size, size), near_identity, decay=False) if s["resonance"] == "blockdiag" else None
        self.memory = self.coupled(c, R)
        y = self.coupled(c + x * self.param("skip", (2 * K,), ones), R)
        z = F.linear(u, self.param("w_z", (2 * K, d), normal(0.02)))
        return F.linear(y * F.silu(z), self.param("w_out", (d, 2 * K), normal(self.out_std)))

    def w_layer(self, u):
        B, T, d = u.shape
        qkv = F.linear(u, self.param("w_qkv", (3 * d, d), normal(0.02))).view(B, T, 3 * self.heads, d // self.heads)
        q, k, v = qkv.chunk(3, 2)
        y = gpt_twin.causal_attention(gpt_twin.rope(q, 10000.0), gpt_twin.rope(k, 10000.0), v, self.settings["window"])
        return F.linear(y.reshape(B, T, d), self.param("w_out", (d, d), normal(self.out_std)))

    def forward(self, tokens):
        s = self.settings
        mixers = {"D": self.d_layer, "O": self.o_layer, "E": self.e_layer, "W": self.w_layer}
        self.memory = None
        table = self.param("embed", (s["vocab"], self.dim), normal(0.02))
        x = F.embedding(tokens, table)
        for layer in range(s["layers"]):
            mixer = mixers[s["pattern"][layer % len(s["pattern"])]]
            with self.scope(f"layer{layer}"):
                u = self.rmsnorm(x, "norm1")
                with self.scope("mixer"):
                    x = x + mixer(u)
                u = self.rmsnorm(x, "norm2")
                with self.scope("ffn"):
                    x = x + self.swiglu(u, self.ffn, self.out_std)
        return F.linear(self.rmsnorm(x, "norm_f"), table)


if __name__ == "__main__":
    against.main("ten", Ten, DEFAULTS)
