"""Forward and backward of a two-layer GRU cell over 784 flows of 256 numbers in PyTorch, for timing: prints JSON lines
(README.md). The peer of `tenon bench gru`. Gradients are taken of the weights, the input and the states; no optimizer.
Keep: gates in the order r, z, n and the reset after the product, as torch.nn.GRUCell has them."""
import torch
import torch.nn.functional as F

import step


def gates(gi, gh, h):
    """gi, gh (N,3H): W_i x + b_i, W_h h + b_h; h (N,H) -> the new state and what the backward pass reads."""
    H = h.shape[1]
    rz = (gi[:, :2 * H] + gh[:, :2 * H]).sigmoid_()
    r, z = rz.split(H, 1)
    q = gh[:, 2 * H:]
    n = torch.addcmul(gi[:, 2 * H:], r, q).tanh_()
    return torch.lerp(n, h, z), rz, n, q


class Cell(torch.autograd.Function):
    """The cell with its gradient written out, so that the six products are all that is large."""
    dtype = None  # of all arithmetic; None: as the operands

    @staticmethod
    def forward(ctx, x, h, wi, wh, bi, bh):
        if Cell.dtype:
            x, h, wi, wh, bi, bh = (t.to(Cell.dtype) for t in (x, h, wi, wh, bi, bh))
        new, rz, n, q = gates(torch.addmm(bi, x, wi.t()), torch.addmm(bh, h, wh.t()), h)
        ctx.save_for_backward(x, h, wi, wh, rz, n, q)
        return new

    @staticmethod
    def backward(ctx, dy):
        x, h, wi, wh, rz, n, q = ctx.saved_tensors
        H = h.shape[1]
        r, z = rz.split(H, 1)
        dgi = dy.new_empty(dy.shape[0], 3 * H)
        dn = torch.mul(dy * (1 - z), 1 - n * n, out=dgi[:, 2 * H:])
        slope = rz * (1 - rz)
        torch.mul(dn * q, slope[:, :H], out=dgi[:, :H])
        torch.mul(dy * (h - n), slope[:, H:], out=dgi[:, H:2 * H])
        dgh = dgi.clone()
        dgh[:, 2 * H:] *= r
        dh = torch.addmm(dy * z, dgh, wh)
        return dgi @ wi, dh, dgi.t() @ x, dgh.t() @ h, dgi.sum(0), dgh.sum(0)


def plain_cell(x, h, wi, wh, bi, bh):
    """The same in plain ops, for torch.compile to fuse."""
    i_r, i_z, i_n = F.linear(x, wi, bi).chunk(3, 1)
    h_r, h_z, h_n = F.linear(h, wh, bh).chunk(3, 1)
    z = (i_z + h_z).sigmoid()
    n = (i_n + (i_r + h_r).sigmoid() * h_n).tanh()
    return n + z * (h - n)


def library_cell(x, h, wi, wh, bi, bh):
    return torch.gru_cell(x, h, wi, wh, bi, bh)


CELLS = {"hand": Cell.apply, "plain": plain_cell, "library": library_cell}


def make_step(args, dtype):
    torch.manual_seed(1)
    N, H, L = args.flows, args.hidden, args.layers
    leaf = lambda *shape: ((torch.rand(shape) * 2 - 1) / H ** 0.5).requires_grad_()
    layers = [(leaf(3 * H, H), leaf(3 * H, H), leaf(3 * H), leaf(3 * H)) for _ in range(L)]
    x, states, dy = leaf(N, H), [leaf(N, H) for _ in range(L)], torch.rand(N, H)
    leaves = [x, *states, *(w for layer in layers for w in layer)]
    if args.cell == "hand":  # autocast does not reach its backward pass
        Cell.dtype = dtype
    cell = CELLS[args.cell]

    def roll(y):
        for h, w in zip(states, layers):
            y = cell(y, h, *w)
        return y

    roll = step.compiled(roll, args.compile)

    def one():
        with step.autocast(dtype):
            y = roll(x)
        y.backward(dy.to(y.dtype))
        for leaf in leaves:
            leaf.grad = None

    return one, {"cell": args.cell, "flows": N, "hidden": H, "layers": L}


def options(a):
    a.add_argument("--flows", type=int, default=784)
    a.add_argument("--hidden", type=int, default=256)
    a.add_argument("--layers", type=int, default=2)
    a.add_argument("--cell", choices=sorted(CELLS), default="hand", help="hand: gradient written out; plain: ops; library: torch.gru_cell")
    a.set_defaults(steps=200)


if __name__ == "__main__":
    step.run("gru", step.parse_arguments("Forward and backward of a GRU cell.", options), make_step)
