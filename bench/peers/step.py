"""What the timed PyTorch steps share: options, the optimizer, fast blocks, timing, and the profile.

A step is forward, backward, clipping and AdamW on one fixed batch, as `tenon bench MODEL` does on our side. Parameters,
their names and their first values come from the twins; the formulas are written anew for speed, and
tests/peers/check_steps.py holds them to the twins in float64. Runs on torch 1.13 and later: newer features are guarded.
Keep: nothing in the timed part that the other side does not do as well.
"""
import argparse
import contextlib
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

# How the names of the profiler's matrix products begin; attention, which holds two more, shows under its own name.
GEMMS = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation", "mkldnn_linear", "linear_pointwise", "_linear_pointwise", "_mkl_linear", "packed_linear",
         "mkldnn_convolution")


# --- fast blocks -----------------------------------------------------------------------------------------------------

def rmsnorm(x, w):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), w, 1e-6)
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return y if w is None else y * w


def causal_attention(q, k, v):
    """q, k, v (B,H,T,N) -> (B,H,T,N)."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    T = q.shape[2]
    future = torch.full((T, T), -math.inf, dtype=q.dtype).triu_(1)
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + future).softmax(-1) @ v


class LinearXent(torch.autograd.Function):
    """Mean cross-entropy of x w^T, `rows` rows of logits at a time: the gradient is made while the logits are there, so
    that they are computed once and never whole. x (M,d), w (V,d) of one type, labels (M)."""

    @staticmethod
    def forward(ctx, x, w, labels, rows):
        M = x.shape[0]
        loss, dx, dw = x.new_zeros((), dtype=torch.promote_types(x.dtype, torch.float32)), torch.empty_like(x), torch.zeros_like(w)
        for i in range(0, M, rows):
            part, label = x[i:i + rows], labels[i:i + rows, None]
            z = F.log_softmax(part @ w.t(), 1, dtype=loss.dtype)
            loss -= z.gather(1, label).sum()
            z.exp_().scatter_add_(1, label, z.new_full((1, 1), -1.0).expand_as(label)).mul_(1 / M)
            z = z.to(x.dtype)
            dx[i:i + rows] = z @ w
            dw.addmm_(z.t(), part)
        ctx.save_for_backward(dx, dw)
        return loss / M

    @staticmethod
    def backward(ctx, dloss):
        dx, dw = ctx.saved_tensors
        return dx.mul_(dloss), dw.mul_(dloss), None, None


def head_loss(x, w, labels, rows, dtype):
    """x (B,T,d), w (V,d); rows = 0: whole logits and torch's own cross-entropy. Labels all count."""
    x = x.reshape(-1, x.shape[-1])
    if not rows:
        return F.cross_entropy(F.linear(x, w), labels.reshape(-1))
    return LinearXent.apply(x.to(dtype), w.to(dtype), labels.reshape(-1), rows)


# --- a training step ---------------------------------------------------------------------------------------------------

def make_net(net_class, defaults, training, text, batch, length):
    """A twin with its parameters made, and a batch: (net, tokens, labels)."""
    import against
    settings = against.parse_settings(text, {**defaults, **training})
    settings["train.context"], settings["train.steps"] = length, 1
    rng = torch.Generator().manual_seed(1)
    net = net_class(settings, torch.float32, rng)
    tokens = torch.randint(settings["vocab"], (batch, length + 1), generator=rng)
    with torch.no_grad():
        net.forward(tokens[:, :1])  # makes the parameters
    return net, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def make_optimizer(net):
    """AdamW in the fastest form this torch has, and its name. Parameters of one decay and rate form a group."""
    groups = {}
    for name, p in net.params.items():
        groups.setdefault((0.1 if net.decays[name] else 0.0, 1e-3 * net.lr_factor[name]), []).append(p)
    groups = [{"params": ps, "weight_decay": decay, "lr": lr} for (decay, lr), ps in groups.items()]
    for kind in ({"fused": True}, {"foreach": True}, {}):
        try:
            return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, **kind), next(iter(kind), "plain")
        except (RuntimeError, TypeError, ValueError):
            continue
    raise RuntimeError("torch.optim.AdamW cannot be made")


def clip(params, limit=1.0):
    """Scales only where the norm is over the limit; torch's own function always writes all gradients."""
    grads = [p.grad for p in params]
    norms = torch._foreach_norm(grads) if hasattr(torch, "_foreach_norm") else [g.norm() for g in grads]
    norm = torch.stack([n.float() for n in norms]).norm().item()
    if norm > limit:
        torch._foreach_mul_(grads, limit / norm)


def training_step(net, loss_of):
    """One step as a function without arguments, and the optimizer's name."""
    optimizer, kind = make_optimizer(net)
    params = list(net.params.values())

    def step():
        loss = loss_of()
        loss.backward()
        clip(params)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, kind


def language_step(net, forward, tokens, labels, args, dtype):
    """The step of a model whose forward(tokens) gives (B,T,d) for a tied head, and what to report of it."""
    def loss(tokens, labels):
        return head_loss(forward(tokens), net.params["embed"], labels, args.loss_rows, dtype)

    loss = compiled(loss, args.compile)

    def loss_of():
        with autocast(dtype):
            return loss(tokens, labels)

    one, optimizer = training_step(net, loss_of)
    return one, {"optimizer": optimizer, "loss_rows": args.loss_rows, "parameters": sum(p.numel() for p in net.params.values())}


def autocast(dtype):
    return torch.autocast("cpu", dtype=torch.bfloat16) if dtype == torch.bfloat16 else contextlib.nullcontext()


def compiled(f, on):
    if not on:
        return f
    if not hasattr(torch, "compile"):
        raise RuntimeError(f"torch {torch.__version__} has no torch.compile")
    return torch.compile(f)


# --- timing ------------------------------------------------------------------------------------------------------------

def time_steps(step, warmup, steps, seconds):
    """Milliseconds of each step: `steps` of them, fewer (at least 3) when they take longer than `seconds`."""
    for _ in range(warmup):
        step()
    times, begin = [], time.perf_counter()
    while len(times) < steps and (len(times) < 3 or time.perf_counter() - begin < seconds):
        t = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - t))
    return times


def product_gflops():
    """Rate of a plain product of 512: shows a torch whose BLAS is the reference one, against which no ratio means much."""
    a = torch.rand(512, 512)
    times = []
    for _ in range(6):
        t = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - t)
    return 2e-9 * 512 ** 3 / statistics.median(times[1:])


def half_quartiles(times):
    if len(times) < 2:
        return 0.0
    q = statistics.quantiles(times, n=4, method="inclusive")
    return (q[2] - q[0]) / 2


# --- profile -----------------------------------------------------------------------------------------------------------

def is_wrapper(name):
    """Events that only hold others: a step of the profiler, the optimizer's and our own marks."""
    return name.startswith(("ProfilerStep", "Optimizer.", "step"))


def longest_gap(events, begin, end):
    """(total, longest, the ops around it) in us: time of the step in which no op ran, that is Python and dispatch."""
    total = longest = 0.0
    reached, last, around = begin, "start", ("start", "end")
    for e in sorted(events, key=lambda e: e.time_range.start):
        gap = e.time_range.start - reached
        if gap > 0:
            total += gap
        if gap > longest:
            longest, around = gap, (last, e.name)
        if e.time_range.end > reached:
            reached, last = e.time_range.end, e.name
    tail = max(end - reached, 0)
    return (total + tail, tail, (last, "end")) if tail > longest else (total + tail, longest, around)


def profile(step):
    """One profiled step: shares of its wall time. The profiler itself costs time, so shares are what to read."""
    from torch.profiler import ProfilerActivity, profile as torch_profile, record_function
    with torch_profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("step_of_peer"):
            step()
    events = list(prof.events())
    whole = next(e for e in events if e.name == "step_of_peer")
    wall = whole.time_range.end - whole.time_range.start
    inner = [e for e in events if not is_wrapper(e.name) and whole.time_range.start <= e.time_range.start < whole.time_range.end]
    own = {}
    for e in inner:
        name = "a compiled graph" if "CompiledFxGraph" in e.name else e.name
        own[name] = own.get(name, 0) + e.self_cpu_time_total
    gemm = sum(t for name, t in own.items() if name.split("::")[-1].startswith(GEMMS))
    total, longest, around = longest_gap(inner, whole.time_range.start, whole.time_range.end)
    top = sorted(own.items(), key=lambda kv: -kv[1])[:5]
    return {"gemm_share": round(gemm / wall, 4), "top": [{"op": name, "share": round(t / wall, 4)} for name, t in top],
            "gap_share": round(total / wall, 4), "largest_gap_share": round(longest / wall, 4), "largest_gap_ms": round(longest / 1e3, 3),
            "largest_gap_between": list(around)}


# --- command -----------------------------------------------------------------------------------------------------------

def parse_arguments(description, add=None):
    a = argparse.ArgumentParser(description=description)
    a.add_argument("--threads", type=int, default=torch.get_num_threads())
    a.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16: autocast")
    a.add_argument("--compile", action="store_true", help="torch.compile of the forward pass and its backward pass")
    a.add_argument("--steps", type=int, default=20, help="timed steps, at most")
    a.add_argument("--warmup", type=int, default=2)
    a.add_argument("--seconds", type=float, default=20, help="stop after this time (and at least 3 steps)")
    a.add_argument("--profile", action="store_true", help="also print where a step's time goes")
    if add:
        add(a)
    args = a.parse_args()
    if min(args.threads, args.steps, args.warmup) < 1:
        a.error("--threads, --steps and --warmup must be at least 1")
    return args


def add_model_options(a, batch, length, settings, loss_rows):
    a.add_argument("--batch", type=int, default=batch, help="sequences of a batch")
    a.add_argument("--length", type=int, default=length, help="tokens of a sequence")
    a.add_argument("--settings", default=settings, help='"key=value key=value", as for tenon')
    a.add_argument("--loss-rows", type=int, default=loss_rows, help="rows of logits at a time; 0: all, torch's own cross-entropy")


def run(name, args, make_step):
    """make_step(args, dtype) -> (step, more fields of the line). Prints one JSON line, or two with --profile."""
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    try:
        step, fields = make_step(args, getattr(torch, args.dtype))
        times = time_steps(step, args.warmup, args.steps, args.seconds)
        line = {"name": name, "value": round(statistics.median(times), 4), "unit": "ms", "spread": round(half_quartiles(times), 4),
                "steps": len(times), "torch": torch.__version__, "threads": args.threads, "dtype": args.dtype,
                "compile": args.compile, "mm_gflops": round(product_gflops(), 1), **fields}
        print(json.dumps(line), flush=True)
        if args.profile:
            print(json.dumps({"name": f"{name}.profile", **profile(step)}), flush=True)
    except (RuntimeError, ValueError, ImportError, AttributeError) as error:  # a setting this torch cannot do
        sys.exit(f"error: {type(error).__name__}: {str(error).strip()[:300]}")
