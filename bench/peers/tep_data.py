"""Digits and MNIST as tensors, with stratified splits, for the equilibrium networks of tep_torch.py."""
import gzip
import math
import pathlib
import struct

import numpy
import torch


def read_idx(path):
    with gzip.open(path) as f:
        raw = f.read()
    dims = struct.unpack_from(f">{raw[3]}I", raw, 4)
    return torch.from_numpy(numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * raw[3]).reshape(dims).copy())


def split_rows(y, parts, rng):
    """Rows of each part, stratified: of every class the same fraction, largest remainders first."""
    out = [[] for _ in parts]
    totals = [math.floor(p * y.numel() + 1e-9) for p in parts]
    classes = [c[torch.randperm(c.numel(), generator=rng)] for c in ((y == k).nonzero()[:, 0] for k in y.unique())]
    used = [0] * len(classes)
    for k, total in enumerate(totals[:-1]):
        exact = [c.numel() * parts[k] for c in classes]
        quota = [math.floor(e) for e in exact]
        for i in sorted(range(len(classes)), key=lambda i: quota[i] - exact[i])[:total - sum(quota)]:
            quota[i] += 1
        for i, c in enumerate(classes):
            out[k].append(c[used[i]:used[i] + quota[i]])
            used[i] += quota[i]
    out[-1] = [c[u:] for c, u in zip(classes, used)]
    return [torch.cat(rows).sort()[0] for rows in out]


def load(path, split, seed, dtype=torch.float32, subset=0):
    """{"train", "valid" (with three parts), "test"}: (x, y). A folder is MNIST's, whose test set is its own: there the split
    says train/valid; a file is digits, 64 counts of 0..16 and the label per line."""
    parts, rng, path = [float(p) for p in split.split("/")], torch.Generator().manual_seed(seed), pathlib.Path(path)
    if path.is_dir():
        x, y, tx, ty = (read_idx(path / f"{name}-ubyte.gz") for name in
                        ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"))
        flat = lambda t: t.flatten(1).to(dtype) / 255
        rows = split_rows(y.long(), parts, rng)
        if subset:
            rows[0] = rows[0][torch.randperm(rows[0].numel(), generator=rng)[:subset]]
        data = {name: (flat(x[r]), y[r].long()) for name, r in zip(("train", "valid"), rows)}
        return {**data, "test": (flat(tx), ty.long())}
    table = torch.from_numpy(numpy.loadtxt(gzip.open(path), delimiter=","))
    x, y = (table[:, :-1] / 16).to(dtype), table[:, -1].long()
    names = ("train", "test") if len(parts) == 2 else ("train", "valid", "test")
    return {name: (x[r], y[r]) for name, r in zip(names, split_rows(y, parts, rng))}
