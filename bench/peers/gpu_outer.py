"""The outer-product op alone on a GPU, forward and backward: as chunks of eager PyTorch ops and in Triton. B*T = 65,536, H = 8,
N = P = 64 unless told; bf16. One JSON line a form: milliseconds (median of many), and how far it is from the chunks in float32.

    python3 bench/peers/gpu_outer.py [--lengths 1024 32768] [--heads 8] [--steps 30]

`gpu.py outer` prints ours beside it: the op's rows of a network of four such layers (`tenon bench ... --by-op`)."""
import argparse
import json
import statistics

import torch

import gpu_step
import gpu_ten


def make_inputs(tokens, length, heads, width):
    torch.manual_seed(1)
    B = tokens // length
    qkv = torch.randn(B, length, 3 * heads, width, device="cuda", dtype=torch.bfloat16)
    tau = torch.exp(torch.linspace(1.4, 6.9, heads, device="cuda"))
    ab = torch.cat([(-1 / tau).expand(B, length, heads), torch.rand(B, length, heads, device="cuda")], -1).contiguous()
    skip, dy = torch.ones(heads, width, device="cuda"), torch.randn(B, length, heads, width, device="cuda", dtype=torch.bfloat16)
    return [t.requires_grad_() for t in (qkv, ab, skip)], dy


def run(op, inputs, dy):
    y = op(*inputs)
    return (y, *torch.autograd.grad(y, inputs, dy))


def distance(mine, want):
    return max(((a.float() - b).norm() / b.norm()).item() for a, b in zip(mine, want))


def main():
    a = argparse.ArgumentParser(description="The outer-product op alone.")
    a.add_argument("--tokens", type=int, default=65536)
    a.add_argument("--lengths", type=int, nargs="+", default=[1024, 8192, 32768])
    a.add_argument("--heads", type=int, default=8)
    a.add_argument("--width", type=int, default=64)
    a.add_argument("--steps", type=int, default=30)
    a.add_argument("--compiled", action="store_true", help="the chunks under torch.compile as well")
    args = a.parse_args()
    forms = {"eager": gpu_ten.outer_chunks, "triton": gpu_ten.recurrences("triton").outer}
    if args.compiled:
        forms["compiled"] = torch.compile(gpu_ten.outer_chunks)
    for length in args.lengths:
        inputs, dy = make_inputs(args.tokens, length, args.heads, args.width)
        want = run(gpu_ten.outer_chunks, [t.detach().float().requires_grad_() for t in inputs], dy.float())
        for name, op in forms.items():
            far = distance(run(op, inputs, dy), want)
            for _ in range(3):
                run(op, inputs, dy)
            times = gpu_step.time_steps(lambda: run(op, inputs, dy), args.steps)
            print(json.dumps({"name": "outer", "side": name, "length": length, "batch": args.tokens // length, "heads": args.heads,
                              "value": round(statistics.median(times), 4), "unit": "ms", "spread": round(max(times) - min(times), 4),
                              "distance": far}), flush=True)


if __name__ == "__main__":
    main()
