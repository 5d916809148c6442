"""What the PyTorch twins share: settings, parameters by name, common blocks, training, and the reference file.

A twin computes a model of src/models in plain eager PyTorch, from the same settings and under the same parameter names,
and writes what it found into a file that `tenon check MODEL --against FILE` reads (docs/against.md). It aims at being
easy to compare with the C text, not at speed; dropout and document resets are not covered.
Keep: the file holds float32 weights and everything else in it is computed from exactly these.
"""
import argparse
import contextlib
import ctypes
import fnmatch
import json
import math
import pathlib
import shlex
import sys

import torch
import torch.nn.functional as F

FORMAT = "tenon-against 1"

# Defaults are those of a comparison (constant rate, no warm-up, float32), not those of a training run.
TRAIN = {
    "train.steps": "auto", "train.context": "auto", "train.lr": 1e-3, "train.lr_min_frac": 0.1, "train.warmup": 0,
    "train.schedule": "constant", "train.cooldown_frac": 0.2, "train.decay": 0.1, "train.beta1": 0.9,
    "train.beta2": 0.95, "train.eps": 1e-8, "train.clip": 1.0, "compute": "f32",
}


# --- settings --------------------------------------------------------------------------------------------------------

def parse_settings(text, defaults):
    """"key=value key='a value'" over defaults; a default's type is the key's, "auto" stands for a whole number."""
    settings = dict(defaults)
    for word in shlex.split(text):
        key, equals, value = word.partition("=")
        if key not in defaults or not equals:
            raise ValueError(f"{word}: the keys are {', '.join(sorted(defaults))}, each as key=value")
        kind = int if defaults[key] == "auto" else type(defaults[key])
        try:
            settings[key] = "auto" if value == "auto" and defaults[key] == "auto" else kind(value)
        except ValueError:
            raise ValueError(f"{word}: not a value of type {kind.__name__}") from None
    if settings["compute"] != "f32":
        raise ValueError("compute must be f32: the twins do not imitate the rounding of other types")
    return settings


def settings_text(settings):
    """Without the keys left at auto: the reader works those out itself, and the shapes show whether it agrees."""
    quoted = {key: f'"{value}"' if " " in str(value) else value for key, value in settings.items()}
    return " ".join(f"{key}={value}" for key, value in quoted.items() if value != "auto")


def learning_rate(s, step):
    """Steps count from 0; step train.steps - 1 has the last rate."""
    peak, warmup, steps = s["train.lr"], s["train.warmup"], s["train.steps"]
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if s["train.schedule"] == "constant":
        down = 0.0
    elif s["train.schedule"] == "cosine":
        span, done = steps - 1 - warmup, step - warmup
        down = 0.0 if done <= 0 else 1.0 if done >= span else 0.5 - 0.5 * math.cos(math.pi * done / span)
    elif s["train.schedule"] == "wsd":
        start = max(warmup, steps - math.floor(s["train.cooldown_frac"] * steps + 0.5))
        down = 0.0 if step < start else (step - start + 1) / (steps - start)
    else:
        raise ValueError(f"train.schedule={s['train.schedule']}: constant, cosine or wsd")
    return peak * (1 - (1 - s["train.lr_min_frac"]) * down)


# --- parameters and blocks -------------------------------------------------------------------------------------------

def zeros(rng, shape):
    return torch.zeros(shape)


def ones(rng, shape):
    return torch.ones(shape)


def normal(std):
    return lambda rng, shape: std * torch.randn(shape, generator=rng)


def uniform(low, high):
    return lambda rng, shape: low + (high - low) * torch.rand(shape, generator=rng)


class Net:
    """A model: forward(tokens) gives logits (B,T,vocab). Its first call makes the parameters, in the order of use."""

    def __init__(self, settings, dtype, rng):
        self.settings, self.dtype, self.rng = settings, dtype, rng
        self.params, self.decays, self.lr_factor = {}, {}, {}
        self.path = []

    @contextlib.contextmanager
    def scope(self, name):
        self.path.append(name)
        yield
        self.path.pop()

    def param(self, name, shape, init, decay=True, lr=1.0):
        name = ".".join(self.path + [name])
        if name not in self.params:
            value = init(self.rng, shape).float().to(self.dtype)
            self.params[name] = value.requires_grad_()
            self.decays[name] = decay and len(shape) >= 2
            self.lr_factor[name] = lr
        return self.params[name]

    def rmsnorm(self, x, name, eps=1e-6):
        return rms(x, eps) * self.param(f"{name}.w", (x.shape[-1],), ones)

    def layernorm(self, x, name, eps=1e-5):
        w = self.param(f"{name}.w", (x.shape[-1],), ones)
        b = self.param(f"{name}.b", (x.shape[-1],), zeros)
        return F.layer_norm(x, (x.shape[-1],), w, b, eps=eps)

    def swiglu(self, u, ffn, out_std):
        d = u.shape[-1]
        a, b = F.linear(u, self.param("w1", (2 * ffn, d), normal(0.02))).chunk(2, -1)
        return F.linear(F.silu(a) * b, self.param("w2", (d, ffn), normal(out_std)))

    def gelu(self, u, ffn, out_std):
        d = u.shape[-1]
        w1, b1 = self.param("w1", (ffn, d), normal(0.02)), self.param("b1", (ffn,), zeros)
        h = F.gelu(F.linear(u, w1, b1), approximate="tanh")
        return F.linear(h, self.param("w2", (d, ffn), normal(out_std)), self.param("b2", (d,), zeros))

    def loss(self, tokens, labels):
        """Mean over the labels that count (-1 does not), and the logits."""
        logits = self.forward(tokens)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1), logits


def rms(x, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


# --- reference -------------------------------------------------------------------------------------------------------

def make_batches(count, batch, length, vocab, rng):
    """tokens, labels (count,batch,length): three tokens of four follow from the one before, so there is something to
    learn. The first label of each sequence is -1, so that labels that do not count are part of every comparison."""
    follow = torch.randperm(vocab, generator=rng)
    text = torch.randint(vocab, (count, batch, length + 1), generator=rng)
    regular = torch.rand((count, batch, length + 1), generator=rng) < 0.75
    for t in range(1, length + 1):
        text[..., t] = torch.where(regular[..., t], follow[text[..., t - 1]], text[..., t])
    tokens, labels = text[..., :-1].clone(), text[..., 1:].clone()
    labels[..., 0] = -1
    return tokens, labels


def read_batches(folder, count, batch, length, vocab):
    """The same from the beginning of a data set of `tenon data prepare` (src/data/shard.h)."""
    with open(pathlib.Path(folder) / "dataset.json") as f:
        about = json.load(f)
    shard = (pathlib.Path(folder) / about["splits"]["train"]["shards"][0]["file"]).read_bytes()
    tokens, at = (int.from_bytes(shard[k:k + 8], "little") for k in (48, 64))
    small = about["item"] == "u16"
    text = torch.frombuffer(bytearray(shard), dtype=torch.int16 if small else torch.int32, count=tokens, offset=at).long() & (0xFFFF if small else 0xFFFFFFFF)
    wanted = count * batch * (length + 1)
    if len(text) < wanted or about["vocab"] > vocab:
        sys.exit(f"{folder} has {len(text)} tokens of {about['vocab']} kinds where {wanted} of at most {vocab} are needed")
    text = text[:wanted].view(count, batch, length + 1)
    tokens, labels = text[..., :-1].clone(), text[..., 1:].clone()
    labels[..., 0] = -1
    return tokens, labels


def make_optimizer(net):
    s = net.settings
    groups = [{"params": [p], "weight_decay": s["train.decay"] if net.decays[name] else 0.0,
               "lr_factor": net.lr_factor[name]} for name, p in net.params.items()]
    return torch.optim.AdamW(groups, betas=(s["train.beta1"], s["train.beta2"]), eps=s["train.eps"])


def clip_gradients(params, limit):
    """Scales by min(1, limit / norm); torch's own function adds 1e-6 to the norm."""
    norm = torch.sqrt(sum(p.grad.square().sum() for p in params))
    if limit > 0 and norm > limit:
        for p in params:
            p.grad *= limit / norm


def apply_step(net, optimizer, step):
    clip_gradients(net.params.values(), net.settings["train.clip"])
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(net.settings, step) * group["lr_factor"]
    optimizer.step()
    optimizer.zero_grad()


def make_reference(net, tokens, labels, steps, logits=False, grads_of="*"):
    """The tensors of the file. tokens, labels (S,B,T), or features (S,B,T,F) for tokens; steps = 0: one batch, no training."""
    inputs = (tokens, labels) if steps else (tokens[0], labels[0])
    out = {"input.features": inputs[0].float()} if tokens.is_floating_point() else {"input.tokens": inputs[0].int()}
    out["input.labels"] = inputs[1].int()
    losses, optimizer = [], None
    for step in range(max(steps, 1)):
        loss, z = net.loss(tokens[step], labels[step])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out["output.loss"] = torch.tensor(losses[0], dtype=torch.float64)
            if logits:
                out["output.logits"] = z.detach().float()
            for name, p in net.params.items():
                out[f"param.{name}"] = p.detach().float().clone()
                if fnmatch.fnmatch(name, grads_of):
                    out[f"grad.{name}"] = p.grad.float().clone()
            optimizer = make_optimizer(net)
        if steps:
            apply_step(net, optimizer, step)
    if steps:
        out["output.losses"] = torch.tensor(losses, dtype=torch.float64)
    return out


FILE_TYPES = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}


def write_file(path, model, settings, tensors):
    """A safetensors file: the length of a JSON header, the header, the numbers. Written here so that torch is all one needs."""
    header, at = {"__metadata__": {"format": FORMAT, "model": model, "settings": settings_text(settings)}}, 0
    tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    for name, t in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": FILE_TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            if t.numel():
                f.write((ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr()))


# --- command ---------------------------------------------------------------------------------------------------------

def parse_arguments(model):
    a = argparse.ArgumentParser(description=f"Writes a reference file of the model {model}, computed by PyTorch.")
    a.add_argument("--out", required=True, help="the file to write (safetensors)")
    a.add_argument("--settings", default="", help='"key=value key=value", as for tenon')
    a.add_argument("--batch", type=int, default=2, help="sequences of a batch")
    a.add_argument("--length", type=int, default=32, help="tokens of a sequence")
    a.add_argument("--steps", type=int, default=0, help="also train this many steps and store their losses")
    a.add_argument("--dtype", choices=("float32", "float64"), default="float64", help="of the computation")
    a.add_argument("--seed", type=int, default=1, help="of weights and data")
    a.add_argument("--logits", action="store_true", help="store the logits of the first batch")
    a.add_argument("--no-grads", action="store_true", help="store no gradients")
    a.add_argument("--grads-of", default="*", metavar="PATTERN", help="store these gradients only, such as 'layer0.*'")
    return a.parse_args()


def build(make_net, defaults, args, make_data=None):
    settings = parse_settings(args.settings, {**defaults, **TRAIN})
    for key, value in (("train.steps", max(args.steps, 1)), ("train.context", args.length)):
        settings[key] = value if settings[key] == "auto" else settings[key]
    if min(args.batch, args.length) < 1 or args.steps < 0:
        raise ValueError("--batch and --length must be at least 1, --steps at least 0")
    rng = torch.Generator().manual_seed(args.seed)
    count = max(args.steps, 1)
    data = make_data(count, args.batch, settings, rng) if make_data else make_batches(count, args.batch, args.length, settings["vocab"], rng)
    return make_net(settings, getattr(torch, args.dtype), rng), data


def main(model, make_net, defaults, make_data=None):
    """make_data(count, batch, settings, rng) gives the batches of a model that does not learn from tokens."""
    args = parse_arguments(model)
    try:
        net, (tokens, labels) = build(make_net, defaults, args, make_data)
        tensors = make_reference(net, tokens, labels, args.steps, args.logits, "" if args.no_grads else args.grads_of)
        write_file(args.out, model, net.settings, tensors)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    last = f", {tensors['output.losses'][-1]:.6f} in step {args.steps}" if args.steps else ""
    count = sum(p.numel() for p in net.params.values())
    print(f"{args.out}: {count} parameters, loss {tensors['output.loss']:.6f}{last}")
