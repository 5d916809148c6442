"""Flows and encoded sentences on one device against another: flow.py flows RUN DEVICE | flow.py encode DEVICE

flows: each flow of 64 samples through the trained lattice RUN, in f32 on the CPU and on DEVICE. At least 99.99 % must leave at the
same step and in the same way, and the landings of these lie within 1e-5 of each other.
encode: 64 sentences at once and one by one on DEVICE, in f32 within 1e-5 of each other. On a GPU at once is at least 10 times as fast,
in f32 and in bf16 (not on a CPU, which computes the same products either way).
"""
import statistics
import sys
import time

import numpy as np

import tenon

SAMPLES, ROUNDS = 64, 5


def landings(run, device):
    net = tenon.open(run, f"device={device}", "compute=f32", f"train.batch={SAMPLES}")
    rng = np.random.default_rng(3)
    ink = (rng.random((SAMPLES, 28, 28)) > 0.9).astype(np.float32)
    ink[:, 1:] = np.maximum(ink[:, 1:], 0.7 * ink[:, :-1])  # lines, not dots
    out = net.run("flows", features=ink.reshape(SAMPLES, 1, 784))
    if net.device != device:
        sys.exit(f"computed on {net.device}, not on {device}")
    return {name: out[name].copy() for name in ("u", "v", "d", "e", "age", "landed", "plane")}


def flows(run, device):
    want, got = landings(run, "cpu"), landings(run, device)
    same = np.logical_and.reduce([want[name] == got[name] for name in ("age", "landed", "plane")])
    there = same & (want["landed"] > 0)  # a slot may be empty
    off = np.concatenate([np.abs(want[name] - got[name])[there].ravel() for name in ("u", "v", "d", "e")]).astype(np.float64)
    ages = np.unique(want["age"][want["landed"] > 0])
    print(f"  {same.size - same.sum()} of {same.size} flows leave otherwise; the rest is {off.max():.2g} apart at most, {off.mean():.2g} in the mean; "
          f"they take {ages.min()} to {ages.max()} steps")
    return same.mean() >= 0.9999 and off.max() <= 1e-5 and len(ages) > 1


def encode(device):
    rng = np.random.default_rng(1)
    words, lengths = rng.integers(1, 8192, (64, 48)).astype(np.int32), rng.integers(4, 49, 64).astype(np.int32)
    fine = True
    for compute in ("f32", "bf16"):
        nets = [tenon.open("flow_text", "vocab=8192", "text=48", f"device={device}", f"compute={compute}", f"train.batch={n}") for n in (64, 1)]

        def at_once():
            return nets[0].run("encode", premise=words, premise_length=lengths)["surface"].copy()

        def one_by_one():
            return np.concatenate([nets[1].run("encode", premise=words[i:i + 1], premise_length=lengths[i:i + 1])["surface"].copy()
                                   for i in range(64)])

        def seconds(work):
            start = time.perf_counter()
            work()
            return time.perf_counter() - start

        off = float(np.abs(at_once() - one_by_one()).max())
        at_once(), one_by_one()  # a GPU's second run is recorded
        ratios = [seconds(one_by_one) / seconds(at_once) for _ in range(ROUNDS)]
        ratio = statistics.median(ratios)
        print(f"  {compute}: 64 x encode(1) takes {ratio:.2f} times as long as encode(64) [{min(ratios):.2f} {max(ratios):.2f}, {ROUNDS} rounds], "
              f"largest difference {off:.2g}")
        fine = fine and off <= (1e-5 if compute == "f32" else 0.05) and (device == "cpu" or ratio >= 10)
    return fine


part, *rest = sys.argv[1:]
sys.exit(not {"flows": flows, "encode": encode}[part](*rest))
