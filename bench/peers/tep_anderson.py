"""Anderson acceleration of a solve, in PyTorch: what tests/peers/check_tep.py holds the damped iteration of tep_torch.py against."""
import math

import torch


def solve(step, h, consts, o, memory=5, ridge=1e-8):
    """Anderson acceleration, each sample for itself; plain damped steps where it makes no progress. All samples run on."""
    B, d = h.shape
    X, V = h.new_zeros(memory, B, d), h.new_zeros(memory, B, d)
    taken, last = torch.full((B,), o.iterations), h.new_full((B,), math.inf)
    held, done, out = 0, torch.zeros(B, dtype=torch.bool), h
    for t in range(o.iterations):
        v = step(h, *consts)
        r = torch.linalg.vector_norm(v - h, dim=1)
        X[t % memory], V[t % memory], held = h, v, min(held + 1, memory)
        R = (V[:held] - X[:held]).transpose(0, 1)  # (B,m,d)
        A = R @ R.mT
        A = A + (ridge * A.diagonal(dim1=1, dim2=2).sum(1) / held + 1e-30)[:, None, None] * torch.eye(held, dtype=h.dtype)
        alpha, info = torch.linalg.solve_ex(A, torch.ones(B, held, 1, dtype=h.dtype))
        alpha = alpha / alpha.sum(1, keepdim=True)
        mixed = (alpha * V[:held].transpose(0, 1)).sum(1)
        plain = (info != 0) | ~mixed.isfinite().all(1) | (r > 2 * last)
        h = torch.where(plain[:, None], torch.add(h, v - h, alpha=o.damping), mixed)
        there = ~done & (r < o.rtol * torch.linalg.vector_norm(v, dim=1).clamp_min(1e-6))
        out = torch.where(done[:, None], out, h)
        taken[there] = t + 1
        done |= there
        last = r
        if bool(done.all()):
            break
    return out, taken
