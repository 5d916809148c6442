"""A training step of an equilibrium transformer block in eager PyTorch, as such solvers are written: the state of B sequences of T
tokens, Anderson acceleration of each sequence by itself with a look at the residuals after every iteration, the implicit
gradient by the same solver through a hook, Adam. What `tenon bench tep task=seq_copy` computes:

    python3 bench/peers/deq_torch.py [--dim=256 --tokens=128 --batch=32 --heads=8 --iterations=20 --solver=anderson|picard]
    tenon bench tep task=seq_copy task.length=128 dim=256 heads=8 train.batch=32 attention=softmax solver=anderson \
        grad=implicit iterations=20 rtol=1e-30 device=cuda

Products are in tf32, as the other side's. Prints milliseconds of a step: median of 20 after 5."""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    """f(h; e): attention of the state to the input, then a feed-forward network, and a norm."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(d, d) for _ in range(4))
        self.norm1, self.norm2, self.norm = (torch.nn.LayerNorm(d) for _ in range(3))
        self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)

    def split(self, x):
        B, T, d = x.shape
        return x.view(B, T, self.heads, d // self.heads).transpose(1, 2)

    def once(self, e):
        """What does not depend on the state."""
        return self.q(e), self.split(self.k(e)), self.split(self.v(e))

    def forward(self, h, asks, k, v):
        y = F.scaled_dot_product_attention(self.split(F.linear(self.norm1(h), self.q.weight) + asks), k, v)
        u = h + self.o(y.transpose(1, 2).reshape(h.shape))
        return self.norm(u + self.down(F.gelu(self.up(self.norm2(u)))))


def picard(f, x, o):
    for _ in range(o.iterations):
        y = f(x)
        r = (y - x).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1).clamp_min(1e-6)
        x = x + o.damping * (y - x)
        if bool((r < o.rtol).all()):
            break
    return x


def anderson(f, x, o):
    B, m = x.shape[0], o.memory
    ys, rs = x.new_zeros(B, m, x[0].numel()), x.new_zeros(B, m, x[0].numel())
    for t in range(o.iterations):
        y = f(x)
        ys[:, t % m], rs[:, t % m] = y.flatten(1), (y - x).flatten(1)
        n = min(t + 1, m)
        G = torch.bmm(rs[:, :n], rs[:, :n].mT)
        G = G + 1e-8 * G.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * torch.eye(n, device=x.device)
        a = torch.linalg.solve(G, x.new_ones(B, n, 1))
        a = a / a.sum(1, keepdim=True)
        r = rs[:, t % m].norm(dim=1) / ys[:, t % m].norm(dim=1).clamp_min(1e-6)
        x = torch.bmm(a.mT, ys[:, :n]).view_as(x) if t else x + o.damping * (y - x)
        if bool((r < o.rtol).all()):
            break
    return x


class Net(torch.nn.Module):
    def __init__(self, o, inputs, classes):
        super().__init__()
        self.o, self.embed, self.head = o, torch.nn.Linear(inputs, o.dim), torch.nn.Linear(o.dim, classes)
        self.position = torch.nn.Parameter(torch.randn(o.tokens, o.dim) / o.dim**0.5)
        self.block = Block(o.dim, o.heads)

    def forward(self, x):
        solve = anderson if self.o.solver == "anderson" else picard
        e = self.embed(x) + self.position
        consts = self.block.once(e)
        with torch.no_grad():
            h = solve(lambda s: self.block(s, *consts), torch.zeros_like(e), self.o)
        h = self.block(h, *consts)
        if h.requires_grad:
            at = h.detach().requires_grad_()
            f = self.block(at, *(c.detach() for c in consts))
            h.register_hook(lambda g: solve(lambda s: torch.autograd.grad(f, at, s, retain_graph=True)[0] + g, g, self.o))
        return self.head(h)


def main():
    p = argparse.ArgumentParser()
    for name, value in (("dim", 256), ("tokens", 128), ("batch", 32), ("heads", 8), ("iterations", 20), ("memory", 5)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--solver", default="anderson", choices=("anderson", "picard"))
    p.add_argument("--damping", type=float, default=0.9)
    p.add_argument("--rtol", type=float, default=1e-30)
    o = p.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    inputs, classes = 10, 10
    net = Net(o, inputs, classes).cuda()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    labels = torch.randint(classes, (o.batch, o.tokens), device="cuda")
    x = F.one_hot(labels, inputs).float()
    times = []
    for _ in range(25):
        torch.cuda.synchronize()
        start = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x).flatten(0, 1), labels.flatten())
        loss.backward()
        adam.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    print(f"torch {torch.__version__} eager, {o.solver}: {statistics.median(times[5:]):.2f} ms a step, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
