"""A training step of GPT-2 124M on a GPU in PyTorch, compiled, for timing beside `tenon bench gpt2_124m device=cuda`:

    python3 bench/peers/gpu_gpt2.py [--batch 64] [--length 1024] [--steps 30]

bf16 autocast over f32 weights, flash attention, fused AdamW, gradients clipped without waiting for the GPU; the
vocabulary is padded to a multiple of 64, as one does for speed. Prints one JSON line: the median step, its spread, the
tokens a second, the memory, and the largest kernels by their share of the time.
Keep: the same parameters as gpt_twin.py; nothing in the timed part that the other side does not do as well."""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F

import against
import gpt_twin
import step
import step_gpt2


def make(args):
    net, tokens, labels = step.make_net(gpt_twin.Gpt, gpt_twin.DEFAULTS, against.TRAIN, args.settings, args.batch, args.length)
    params = {name: p.detach().cuda() for name, p in net.params.items()}
    embed = params["embed"]
    params["embed"] = torch.cat([embed, embed.new_zeros(-embed.shape[0] % 64, embed.shape[1])])
    for p in params.values():
        p.requires_grad_(True)
    layers, heads = net.settings["layers"], net.heads

    def loss_of(tokens, labels):
        x = step_gpt2.forward(params, layers, heads, tokens)
        return F.cross_entropy(F.linear(x, params["embed"]).reshape(-1, params["embed"].shape[0]), labels.reshape(-1))

    compiled = torch.compile(loss_of)
    groups = [{"params": [p for n, p in params.items() if net.decays[n] == decays], "weight_decay": 0.1 if decays else 0.0} for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    tokens, labels = tokens.cuda(), labels.cuda()
    every = list(params.values())

    def one():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(every, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return one


def largest_kernels(one):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        for _ in range(3):
            one()
        torch.cuda.synchronize()
    rows = [(e.key, e.self_device_time_total) for e in p.key_averages()]
    total = sum(t for _, t in rows)
    return [[name[:60], round(100 * t / total, 1)] for name, t in sorted(rows, key=lambda r: -r[1])[:8]]


def main():
    a = argparse.ArgumentParser(description="One training step of GPT-2 124M on a GPU.")
    a.add_argument("--batch", type=int, default=64)
    a.add_argument("--length", type=int, default=1024)
    a.add_argument("--steps", type=int, default=30)
    a.add_argument("--settings", default=step_gpt2.SETTINGS)
    args = a.parse_args()
    torch.set_float32_matmul_precision("high")
    one = make(args)
    for _ in range(10):
        loss = one()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
    marks[0].record()
    for i in range(args.steps):
        one()
        marks[i + 1].record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    ms = statistics.median(times)
    print(json.dumps({"name": "gpt2_124m", "side": "torch.compile", "torch": torch.__version__, "value": ms, "unit": "ms",
                      "spread": max(times) - min(times), "tokens_per_s": 1e3 * args.batch * args.length / ms, "loss": loss.item(),
                      "peak_mb": torch.cuda.max_memory_allocated() / 1e6, "kernels": largest_kernels(one)}))


if __name__ == "__main__":
    main()
