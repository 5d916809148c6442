"""The energy-flow lattice in PyTorch, forward and backward, for timing beside `tenon bench flow_experiment stop=never`:

    python3 bench/peers/gpu_lattice.py [--form graph|hand|eager] [--batch 16] [--width 28 --height 28] [--steps-of-a-flow 20] [--profile]

    eager   as one writes it: torch.gru_cell, autograd, strict float32 (no TF32), nothing compiled
    hand    bf16 states and products over float32 places, energies and sums; gates with their gradient written out, weight gradients
            of all steps as two products a matrix; whatever is between the products under torch.compile
    graph   the same, forward and backward recorded once as a CUDA graph: the fastest we can write

Every flow is computed in every step; one that has left stands still (stop=never). No noise, no spawn, no field; splat collection.
JSON lines: milliseconds of a step, samples/s, TFLOP/s; with --profile the share of products and the largest kernels.

    python3 bench/peers/gpu_lattice.py --check RUN/model.safetensors --input x.npy --out surface.npy [--dtype float64]

reads the lattice's parameters from weights of model `flow`, rolls out x (B,S) or (B,S,E) as an evaluation does, writes the surface
(B,S,E) and prints its sums. --drift, --start, --eps and --steps-of-a-flow are those of the run.
Keep: parameter names of src/models/flow, formulas of tests/flow_oracle.h."""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import gpu_step

FORMS = ("graph", "hand", "eager")
NEURON, FEATURES, HIDDEN = 32, 64, 64
LIMIT, AGE = 0.5, 0.1


# --- parameters ------------------------------------------------------------------------------------------------------------

def make_params(H, L, E, seed=1):
    """float32 on the CPU, with the first values of the model (recurrent matrices normal instead of orthogonal)."""
    rng, p = torch.Generator().manual_seed(seed), {}

    def affine(name, rows, columns, std):
        p[f"{name}.w"], p[f"{name}.b"] = torch.randn(rows, columns, generator=rng) * std, torch.zeros(rows)

    def norm(name):
        p[f"{name}.w"], p[f"{name}.b"] = torch.ones(NEURON), torch.zeros(NEURON)

    for name, rows, columns in (("place", 3, 3), ("neuron1", NEURON, 3 + E), ("neuron2", NEURON, NEURON), ("neuron3", FEATURES, NEURON)):
        affine(name, rows, columns, (2 / rows) ** 0.5)
    norm("norm1")
    norm("norm2")
    for l in range(L):
        X = H if l else FEATURES + E
        p[f"gru{l}.w_i"] = (torch.rand(3 * H, X, generator=rng) * 2 - 1) * (6 / (X + H)) ** 0.5
        p[f"gru{l}.w_h"] = torch.randn(3 * H, H, generator=rng) / H ** 0.5
        p[f"gru{l}.b_i"], p[f"gru{l}.b_h"] = torch.zeros(3 * H), torch.zeros(3 * H)
    for name, rows, columns, scale in (("energy1", H // 2, H, 1), ("energy2", E, H // 2, 1), ("move1", HIDDEN, H, 1), ("move2", 3, HIDDEN, 0.1)):
        affine(name, rows, columns, scale * (2 / (rows + columns)) ** 0.5)
    return p


def read_params(path):
    import safetensors.torch
    found = safetensors.torch.load_file(path)
    p = {name.split("lattice.", 1)[1]: x for name, x in found.items() if name.startswith("lattice.")}
    if "gru0.w_h" not in p:
        raise ValueError(f"{path} has no lattice.gru0.w_h: give the weights of a model flow")
    if "field" in p:
        raise ValueError(f"{path} has a field, and this program has none: use a run with field=0")
    return p


# --- the lattice -----------------------------------------------------------------------------------------------------------

def births(B, W, Hs, start, like):
    """Places (N,3) and, of a flow in the middle, the side that it drifts to (N,1); N = B W Hs, cell y W + x."""
    y, x = torch.meshgrid(torch.arange(Hs, device=like.device), torch.arange(W, device=like.device), indexing="ij")
    place = torch.stack([2 * x / (W - 1) - 1, 2 * y / (Hs - 1) - 1, torch.full_like(x, start, dtype=like.dtype)], -1).to(like.dtype)
    side = (1 - 2 * ((x + y) % 2)).to(like.dtype)
    return place.reshape(1, -1, 3).expand(B, -1, -1).reshape(-1, 3), side.reshape(1, -1, 1).expand(B, -1, -1).reshape(-1, 1)


def neuron(p, place, e):
    q = F.linear(place, p["place.w"], p["place.b"])
    s = F.gelu(F.layer_norm(F.linear(torch.cat([q, e], 1), p["neuron1.w"], p["neuron1.b"]), (NEURON,), p["norm1.w"], p["norm1.b"]))
    s = F.gelu(F.layer_norm(F.linear(s, p["neuron2.w"], p["neuron2.b"]), (NEURON,), p["norm2.w"], p["norm2.b"]))
    return F.linear(s, p["neuron3.w"], p["neuron3.b"])


def move(place, e, age, active, delta, new_e, birth_side, drift):
    """One step of all that are active: place, energy, age, who is active after it."""
    zeta = place[:, 2:]
    side = torch.where(zeta == 0, birth_side, torch.sign(zeta))
    want = place + delta.clamp(-LIMIT, LIMIT) + torch.cat([torch.zeros_like(place[:, :2]), side * drift], 1)
    flat = want[:, :2]
    flat = torch.where(flat < -1, -2 - flat, torch.where(flat > 1, 2 - flat, flat))
    new = torch.cat([flat, want[:, 2:].clamp(-1, 1)], 1)
    left = new[:, 2:].abs() >= 1
    return torch.where(active, new, place), torch.where(active, new_e, e), age + active, active & ~left


def collect(place, e, age, active, B, W, Hs, eps):
    """The surface (B,S,E) of where flows are, those still active projected onto the nearer plane."""
    S, E = W * Hs, e.shape[1]
    d = torch.where(active, 1 - place[:, 2:].abs(), torch.zeros_like(place[:, 2:]))
    score = (e.norm(dim=1, keepdim=True) if E > 1 else e.abs()) * (1 + AGE * age) / (1 + d)
    most = score.reshape(B, S).amax(1).reshape(B, 1, 1).expand(B, S, 1).reshape(-1, 1)
    weight = torch.exp(score - most)
    x, y = (place[:, :1] + 1) / 2 * (W - 1), (place[:, 1:2] + 1) / 2 * (Hs - 1)
    x0, y0 = x.detach().floor().clamp(0, W - 2), y.detach().floor().clamp(0, Hs - 2)
    first = torch.arange(B, device=e.device).reshape(B, 1).expand(B, S).reshape(-1) * S
    parts, cells = [], []
    for dx in (0, 1):
        for dy in (0, 1):
            k = (x - x0 if dx else 1 - x + x0) * (y - y0 if dy else 1 - y + y0) * weight
            parts.append(torch.cat([k * e, k], 1))
            cells.append(first + ((y0 + dy) * W + x0 + dx).reshape(-1).long())
    sums = torch.zeros(B * S, E + 1, dtype=e.dtype, device=e.device).index_add(0, torch.cat(cells), torch.cat(parts))
    return (sums[:, :E] / (eps + sums[:, E:])).reshape(B, S, E)


def eager_cells(p, L):
    """step(place, e, h) -> (delta, new e, new h), as one writes it."""
    def step(place, e, h):
        x, new = torch.cat([neuron(p, place, e), e], 1), []
        for l in range(L):
            x = torch.gru_cell(x, h[l], p[f"gru{l}.w_i"], p[f"gru{l}.w_h"], p[f"gru{l}.b_i"], p[f"gru{l}.b_h"])
            new.append(x)
        new_e = torch.tanh(F.linear(F.gelu(F.linear(x, p["energy1.w"], p["energy1.b"])), p["energy2.w"], p["energy2.b"]))
        delta = F.linear(F.gelu(F.linear(x, p["move1.w"], p["move1.b"])), p["move2.w"], p["move2.b"])
        return delta, new_e, new
    return step


def roll_out(cells, e0, h, o, move=move, collect=collect):
    """e0 (B,S,E) -> the surface (B,S,E)."""
    B, _, E = e0.shape
    e = e0.reshape(-1, E)
    place, side = births(B, o.width, o.height, o.start, e0)
    age, active = torch.zeros_like(side), torch.ones_like(side, dtype=torch.bool)
    for _ in range(o.flow_steps):
        delta, new_e, h = cells(place, e, h)
        place, e, age, active = move(place, e, age, active, delta, new_e, side, o.drift)
    return collect(place, e, age, active, B, o.width, o.height, o.eps)


# --- the products by hand --------------------------------------------------------------------------------------------------

def wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


def gates(gi, gh, h, new, saved):
    """gi (N,3H) with gates n, r, z; gh (N,3H) with r, z, n: that the gradients of both stand in one row of 4H. saved (N,4H): n, r, z, q."""
    H = h.shape[1]
    i_n, i_r, i_z = wide(gi).split(H, 1)
    h_r, h_z, q = wide(gh).split(H, 1)
    r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
    n = torch.tanh(i_n + r * q)
    new.copy_(n + z * (wide(h) - n))
    saved.copy_(torch.cat([n, r, z, q], 1))


def gate_slopes(dy, h, saved, slopes):
    """slopes (N,4H): dn, dr, dz, dn r; the first three are by gi, the last three by gh. Returns what goes straight to h."""
    H = h.shape[1]
    n, r, z, q = wide(saved).split(H, 1)
    dy = wide(dy)
    dn = dy * (1 - z) * (1 - n * n)
    slopes.copy_(torch.cat([dn, dn * q * r * (1 - r), dy * (wide(h) - n) * z * (1 - z), dn * r], 1))
    return (dy * z).to(h.dtype)


class Rows:
    """(N,width) of each step, even and odd ones in a tensor each: what a compiled function reads must not share memory with what it
    writes, or it is compiled anew for every step."""

    def __init__(self, steps, N, width, like, dtype):
        self.base = [torch.zeros((steps + 1) // 2, N, width, dtype=dtype, device=like.device) for _ in range(2)]

    def __getitem__(self, t):
        return self.base[t % 2][t // 2]

    def of(self, parity, steps, later=0):
        """Rows of steps t + later, all t below `steps` of that parity: (rows, width)."""
        first, n = (parity + later) // 2, (steps + 1 - parity) // 2
        return self.base[(parity + later) % 2][first:first + n].flatten(0, 1)


class Hand:
    """Weights as the products take them, what all steps leave for the gradient, and that gradient."""

    def __init__(self, p, o, N, L, dtype, compiled):
        self.p, self.L, self.T, self.dtype = p, L, o.flow_steps, dtype
        self.H, self.E = p["gru0.w_h"].shape[1], p["energy2.w"].shape[0]
        self.X = -(-(FEATURES + self.E) // 8) * 8  # rows that products like
        make = lambda steps, width: Rows(steps, N, width, p["gru0.w_h"], dtype)
        self.x0 = make(self.T, self.X)
        self.states = [make(self.T + 1, self.H) for _ in range(L)]  # before each step and after the last
        self.saved, self.slopes = ([make(self.T, 4 * self.H) for _ in range(L)] for _ in range(2))
        self.heads_slopes = make(self.T, self.H // 2 + HIDDEN)
        compile = torch.compile if compiled else lambda f, **_: f
        self.gates, self.gate_slopes = compile(gates, dynamic=False), compile(gate_slopes, dynamic=False)
        self.front, self.back = compile(self.make_front, dynamic=False), compile(self.make_back, dynamic=False)
        self.move, self.collect = compile(move, dynamic=False), compile(collect, dynamic=False)
        self.load()

    def load(self):
        """Once a step: weights in the type of the products, gates of w_i in the order n, r, z."""
        turn = lambda w: torch.cat([w[2 * self.H:], w[:2 * self.H]])
        p, d = self.p, self.dtype
        with torch.no_grad():
            self.w_i = [turn(F.pad(p["gru0.w_i"], (0, self.X - p["gru0.w_i"].shape[1])) if l == 0 else p[f"gru{l}.w_i"]).to(d) for l in range(self.L)]
            self.w_h = [p[f"gru{l}.w_h"].to(d) for l in range(self.L)]
            self.b_i, self.b_h = [turn(p[f"gru{l}.b_i"]).to(d) for l in range(self.L)], [p[f"gru{l}.b_h"].to(d) for l in range(self.L)]
            self.w_heads = torch.cat([p["energy1.w"], p["move1.w"]]).to(d)
            self.b_heads = torch.cat([p["energy1.b"], p["move1.b"]]).to(d)
        self.t = 0

    def make_front(self, place, e):
        x = torch.cat([neuron(self.p, place, e), e], 1)
        return F.pad(x, (0, self.X - x.shape[1])).to(self.dtype)

    def make_back(self, y):
        g, p, H2 = F.gelu(wide(y)), self.p, self.H // 2
        rows = lambda g, w, b: torch.stack([(g * w[i]).sum(1) for i in range(w.shape[0])], 1) + b
        return rows(g[:, H2:], p["move2.w"], p["move2.b"]), torch.tanh(rows(g[:, :H2], p["energy2.w"], p["energy2.b"]))

    def cells(self, place, e, h):
        y = Stack.apply(self.front(place, e), self, self.t)
        self.t += 1
        return *self.back(y), h  # states are in self

    def product(self, slopes, columns, x, later=0):
        """Sum over all steps t of slopes[t]^T x[t + later]."""
        even, odd = ((slopes.of(k, self.T)[:, columns].t(), x.of(k, self.T, later)) for k in (0, 1))
        return torch.addmm(even[0] @ even[1], *odd)

    def column_sums(self, slopes):
        return sum(b.sum((0, 1), dtype=torch.promote_types(self.dtype, torch.float32)) for b in slopes.base)

    def weight_gradients(self):
        """By name, of what the steps left: two products a matrix."""
        H, out, every = self.H, {}, slice(None)
        back = lambda g: torch.cat([g[H:], g[:H]])
        for l in range(self.L):
            s = self.slopes[l]
            by_x = self.product(s, slice(3 * H), self.states[l - 1], 1) if l else self.product(s, slice(3 * H), self.x0)
            b = self.column_sums(s)
            out[f"gru{l}.w_i"] = back(by_x)[:, :self.p[f"gru{l}.w_i"].shape[1]]
            out[f"gru{l}.w_h"] = self.product(s, slice(H, 4 * H), self.states[l])
            out[f"gru{l}.b_i"], out[f"gru{l}.b_h"] = back(b[:3 * H]), b[H:]
        w, b = self.product(self.heads_slopes, every, self.states[-1], 1), self.column_sums(self.heads_slopes)
        out["energy1.w"], out["move1.w"] = w[:H // 2], w[H // 2:]
        out["energy1.b"], out["move1.b"] = b[:H // 2], b[H // 2:]
        return out


class Stack(torch.autograd.Function):
    """All layers of a step and the first product of both heads. States and their gradients pass from step to step beside autograd,
    which goes from the last step to the first because places do. Weight gradients wait for the end."""

    @staticmethod
    def forward(ctx, x, hand, t):
        ctx.hand, ctx.t = hand, t
        hand.x0[t].copy_(x)
        for l in range(hand.L):
            gi = torch.addmm(hand.b_i[l], hand.x0[t] if l == 0 else hand.states[l - 1][t + 1], hand.w_i[l].t())
            gh = torch.addmm(hand.b_h[l], hand.states[l][t], hand.w_h[l].t())
            hand.gates(gi, gh, hand.states[l][t], hand.states[l][t + 1], hand.saved[l][t])
        return torch.addmm(hand.b_heads, hand.states[-1][t + 1], hand.w_heads.t())

    @staticmethod
    def backward(ctx, dy):
        hand, t, H = ctx.hand, ctx.t, ctx.hand.H
        hand.heads_slopes[t].copy_(dy)
        down, last = hand.heads_slopes[t] @ hand.w_heads, t + 1 == hand.T
        for l in reversed(range(hand.L)):
            total = down if last else down + hand.later[l]
            straight = hand.gate_slopes(total, hand.states[l][t], hand.saved[l][t], hand.slopes[l][t])
            hand.later[l] = torch.addmm(straight, hand.slopes[l][t][:, H:], hand.w_h[l])
            down = hand.slopes[l][t][:, :3 * H] @ hand.w_i[l]
        return down, None, None


# --- a step ----------------------------------------------------------------------------------------------------------------

def make_step(o, p, e0, target, dtype=torch.bfloat16):
    """p by name, float32 (or float64) with gradients wanted -> a function of one forward and backward pass that returns (loss, surface)
    and leaves p's gradients."""
    L = max(int(name[3]) for name in p if name.startswith("gru")) + 1
    H, N = p["gru0.w_h"].shape[1], e0.shape[0] * e0.shape[1]
    loss_of = lambda surface: F.mse_loss(surface, target)
    if o.form == "eager":
        def one():
            h = [torch.zeros(N, H, dtype=e0.dtype, device=e0.device) for _ in range(L)]
            surface = roll_out(eager_cells(p, L), e0, h, o)
            loss = loss_of(surface)
            for x in p.values():
                x.grad = None
            loss.backward()
            return loss, surface
        return one
    hand = Hand(p, o, N, L, dtype, o.compile)
    rest = [x for name, x in p.items() if not name.startswith(("gru", "energy1", "move1"))]

    def one():
        hand.load()
        hand.later = [None] * L
        surface = roll_out(hand.cells, e0, None, o, hand.move, hand.collect)
        loss = loss_of(surface)
        for x, g in zip(rest, torch.autograd.grad(loss, rest)):
            x.grad = g
        for name, g in hand.weight_gradients().items():
            p[name].grad = g.to(p[name].dtype)
        return loss, surface
    return one


def recorded(one):
    """The same as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = one()

    def replay():
        graph.replay()
        return out
    return replay


def make_run(o, device):
    p = {name: x.to(device).requires_grad_() for name, x in make_params(o.hidden, o.layers, o.energy).items()}
    torch.manual_seed(2)
    S = o.width * o.height
    e0, target = torch.rand(o.batch, S, o.energy, device=device), torch.rand(o.batch, S, o.energy, device=device)
    one = make_step(o, p, e0, target, torch.bfloat16 if device == "cuda" else torch.float32)
    return recorded(one) if o.form == "graph" else one


# --- timing ----------------------------------------------------------------------------------------------------------------

def flops(o):
    """Of forward and backward: products alone, twice the forward pass for the backward one."""
    H, E = o.hidden, o.energy
    cell = 3 * H * (FEATURES + E) + 3 * H * H + (o.layers - 1) * 6 * H * H + H * (H // 2 + HIDDEN) + H // 2 * E + HIDDEN * 3
    small = 9 + NEURON * (3 + E) + NEURON * NEURON + FEATURES * NEURON
    return 3 * 2 * (cell + small) * o.batch * o.width * o.height * o.flow_steps


def time_steps(one, steps, device):
    if device == "cuda":
        return gpu_step.time_steps(one, steps)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        one()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def timing_line(o, one, steps, device):
    times = time_steps(one, steps, device)
    ms = statistics.median(times)
    q = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [ms] * 3
    return {"name": "lattice", "side": o.form, "value": round(ms, 4), "unit": "ms", "spread": round((q[2] - q[0]) / 2, 4), "steps": len(times),
            "samples_per_s": round(1e3 * o.batch / ms, 1), "tflop_per_s": round(flops(o) / ms / 1e9, 2), "batch": o.batch,
            "shape": f"{o.width}x{o.height}, H={o.hidden}, L={o.layers}, {o.flow_steps} steps", "torch": torch.__version__,
            **({"peak_mb": round(torch.cuda.max_memory_allocated() / 1e6)} if device == "cuda" else {})}


def serve(o, one):
    """Reads `time N`, `profile` and `quit`, as gpu_step.serve does."""
    print(json.dumps({"name": "lattice", "side": o.form, "ready": True, "memory_mb": round(torch.cuda.memory_reserved() / 1e6)}), flush=True)
    for command in sys.stdin:
        words = command.split()
        if words[:1] == ["quit"]:
            return
        line = timing_line(o, one, int(words[1]), "cuda") if words[0] == "time" else {"name": "lattice", "side": o.form, **gpu_step.profile(one)}
        print(json.dumps(line), flush=True)


def check(o):
    import numpy
    dtype = getattr(torch, o.dtype)
    p = {name: x.to(dtype) for name, x in read_params(o.check).items()}
    L = max(int(name[3]) for name in p if name.startswith("gru")) + 1
    x = torch.from_numpy(numpy.load(o.input)).to(dtype)
    x = x[..., None] if x.dim() == 2 else x
    if x.shape[1] != o.width * o.height:
        raise ValueError(f"{o.input} has {x.shape[1]} cells: give --width and --height")
    with torch.no_grad():
        h = [torch.zeros(x.shape[0] * x.shape[1], p["gru0.w_h"].shape[1], dtype=dtype) for _ in range(L)]
        surface = roll_out(eager_cells(p, L), x, h, o)
    if o.out:
        numpy.save(o.out, surface.float().numpy())
    each = surface.double()
    print(json.dumps({"name": "surface", "shape": list(surface.shape), "sum": each.sum().item(), "squares": each.square().sum().item(),
                      "largest": each.abs().max().item()}))


def parse_arguments():
    a = argparse.ArgumentParser(description="Forward and backward of the energy-flow lattice.")
    a.add_argument("--form", choices=FORMS, default="graph")
    a.add_argument("--batch", type=int, default=16)
    a.add_argument("--width", type=int, default=28)
    a.add_argument("--height", type=int, default=28)
    a.add_argument("--steps-of-a-flow", dest="flow_steps", type=int, default=20)
    a.add_argument("--hidden", type=int, default=512)
    a.add_argument("--layers", type=int, default=3)
    a.add_argument("--energy", type=int, default=1)
    a.add_argument("--drift", type=float, help="default: 1.2 / steps of a flow")
    a.add_argument("--start", type=float, default=0.0, help="third coordinate of the input plane")
    a.add_argument("--eps", type=float, default=1e-3)
    a.add_argument("--steps", type=int, default=20, help="timed steps")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a.add_argument("--no-compile", dest="compile", action="store_false")
    a.add_argument("--profile", action="store_true", help="also print where a step's time goes")
    a.add_argument("--serve", action="store_true", help="wait for commands on standard input")
    a.add_argument("--check", metavar="WEIGHTS", help="roll out --input with these weights (safetensors) instead of timing")
    a.add_argument("--input", help="npy, (B,S) or (B,S,E)")
    a.add_argument("--out", help="write the surface here (npy)")
    a.add_argument("--dtype", default="float32", help="of --check")
    a.add_argument("--file", help=argparse.SUPPRESS)
    a.add_argument("--length", type=int, help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.check and not o.input:
        a.error("--check needs --input=X.npy")
    if o.drift is None:
        o.drift = 1.2 / o.flow_steps
    return o


def main():
    o = parse_arguments()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        if o.check:
            return check(o)
        one = make_run(o, o.device)
        for _ in range(2):
            one()
        if o.serve:
            return serve(o, one)
        print(json.dumps(timing_line(o, one, o.steps, o.device)), flush=True)
        if o.profile:
            print(json.dumps({"name": "lattice.profile", "side": o.form, **gpu_step.profile(one)}), flush=True)
    except (RuntimeError, ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {type(error).__name__}: {str(error).strip()[:1500]}")


if __name__ == "__main__":
    main()
