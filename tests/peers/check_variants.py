"""The study's own networks against ours: trains both from the same weights on the same batches, step by step, in float32, and
prints both losses and the largest distance. Fails where it is more than the limit.

    PYTHON tests/peers/check_variants.py [--script FILE] [--tenon build/tenon] [NAME ...]                (bench/peers/README.md)

The script is the PyTorch program behind the study of TEN's quality. It is imported as it stands and is not part of this tree: its
models, initial values, groups of the optimizer and schedule are the ones that run. Only what needs a GPU is replaced: its scan's
kernel by a loop in float64, and nothing is compiled or autocast. No dropout.
Keep: our side is the line of docs/variants.md and the sizes; the translation of names changes no number.
"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import warnings

import torch

TREE = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(TREE / "bench" / "peers"))
import against  # noqa: E402

MAIN = ("mix", "outerD", "diag_g256", "hybrid_nr", "diag_s256", "tenb", "tenb_i123", "gpt", "gpt2")
RATES = {"hybrid_nr": 1.5e-3, "diag_s256": 1.5e-3, "tenb": 1.5e-3, "tenb_i123": 1.5e-3, "gpt": 1.5e-3, "gpt2": 1.5e-3}  # others: 3e-3


def read_lines():
    """{name: (model, settings)} of the table of networks in docs/variants.md: one line of settings for each of the study's."""
    rows = re.findall(r"^\| (\w+) \| `(\w+) ?([^`]*)` \|$", (TREE / "docs" / "variants.md").read_text(), re.M)
    return {name: (model, text) for name, model, text in rows}


# The first steps of the study's own schedule, and a whole cosine: the script reaches the peak at the last step of its warm-up, ours
# one later, and its cosine ends one step behind the last; so its (steps, warm-up) are these settings of ours.
SCHEDULES = {"study": ((1200, 100), (1200, 99)), "cosine": (None, None)}


# --- the script ------------------------------------------------------------------------------------------------------

def scan_rows(lr, li, xr, xi, cr, ci, yr, yi, dr, di, rev):
    """What the kernel computes, token by token: c_t = lam_t c_{t-1} + x_t; backwards a_t = x_t + conj(lam_{t+1}) a_{t+1} and
    a_t conj(c_{t-1}). All (B,T,K), lr and li also (K)."""
    lam = torch.complex(lr.double(), li.double()).expand(xr.shape)
    x, T = torch.complex(xr.double(), xi.double()), xr.shape[1]
    state = torch.zeros_like(x[:, 0])
    for t in reversed(range(T)) if rev else range(T):
        if rev:
            state = x[:, t] + (lam[:, t + 1].conj() * state if t + 1 < T else 0)
            before = torch.complex(cr[:, t - 1].double(), ci[:, t - 1].double()) if t else torch.zeros_like(state)
            product = state * before.conj()
            dr[:, t], di[:, t] = product.real, product.imag
        else:
            state = lam[:, t] * state + x[:, t]
        yr[:, t], yi[:, t] = state.real, state.imag


def load_script(path):
    """The module, with its kernel replaced. Torch for the CPU comes without triton: its decorator is all the import needs."""
    if importlib.util.find_spec("triton") is None:
        language = types.SimpleNamespace(constexpr=object)
        stub = types.ModuleType("triton")
        stub.jit, stub.language = (lambda f: f), language
        sys.modules.update({"triton": stub, "triton.language": language})
    spec = importlib.util.spec_from_file_location("ten_variants", path)
    module = importlib.util.module_from_spec(spec)
    arguments, sys.argv = sys.argv, sys.argv[:1]  # it looks there for what to do
    spec.loader.exec_module(module)
    sys.argv = arguments
    module._launch = scan_rows
    return module


# --- names -----------------------------------------------------------------------------------------------------------

FRAME = {"emb.weight": "embed", "pos": "position", "nf.w": "norm_f.w", "nf.weight": "norm_f.w", "nf.bias": "norm_f.b"}
LAYER = {"n1.w": "norm1.w", "n1.weight": "norm1.w", "n1.bias": "norm1.b", "n2.w": "norm2.w", "n2.weight": "norm2.w",
         "n2.bias": "norm2.b", "ffn.w1.weight": "ffn.w1", "ffn.w1.bias": "ffn.b1", "ffn.wout.weight": "ffn.w2",
         "ffn.wout.bias": "ffn.b2"}
MIXER = {"qkv.weight": "w_qkv", "qkv.bias": "b_qkv", "wout.weight": "w_out", "wout.bias": "b_out", "win.weight": "w_in",
         "wg.weight": "w_g", "wg.bias": "b_g", "R": "resonance", "al": "alpha", "om": "omega", "nu": "nu", "lgam": "log_gamma",
         "conv": "conv", "D": "skip", "wri.weight": "w_ri", "wri.bias": "b_ri",
         "hn": "gain", "Ds": "skip"}


def outer_rows(mixer, scope, bias, x):
    """Theirs drive decay, strength and rotation, whether these are used or not; ours are those that are."""
    decay, strength, turn = x.chunk(3)
    out, rows = [], ([decay] if mixer.dec == "dd" else []) + ([strength] if mixer.wr != "dt" else [])
    if rows:
        out.append((f"{scope}.{'b' if bias else 'w'}_ab", torch.cat(rows)))
    if bias and mixer.dec != "dd":
        out.append((f"{scope}.decay", decay))
    if mixer.rotm == "dd":
        out.append((f"{scope}.{'b' if bias else 'w'}_turn", turn))
    return out


def ours(script, net, model, name, x):
    """[(our name, tensor)] of one of theirs; x is its value or gradient."""
    if name in FRAME:
        return [(FRAME[name], x)]
    _, index, rest = name.split(".", 2)
    layer = f"layer{index}"
    if rest in LAYER:
        return [(f"{layer}.{LAYER[rest]}", x)]
    mixer, leaf = net.blocks[int(index)].mix, rest.removeprefix("mix.")
    scope = f"{layer}.{'attn' if model == 'gpt' else 'mixer'}"
    if isinstance(mixer, script.Outer) and leaf.startswith("wab"):
        return outer_rows(mixer, scope, leaf == "wab.bias", x)
    if leaf == "eta":  # there, and unused, where nothing turns
        return [] if mixer.rotm == "none" else [(f"{scope}.eta", x)]
    if leaf == "hn":
        x = x.view(mixer.H, mixer.P)
    if isinstance(mixer, script.Diag) and not mixer.gated and leaf == "win.weight":
        return list(zip((f"{scope}.w_in", f"{scope}.w_z"), x.chunk(2)))
    return [(f"{scope}.{MIXER[leaf]}", x)]


def translated(script, net, model, pick):
    """{our name: tensor} over all parameters for which pick(parameter) is not None."""
    return {n: y.detach().clone() for name, p in net.named_parameters() if pick(p) is not None
            for n, y in ours(script, net, model, name, pick(p))}


# --- training --------------------------------------------------------------------------------------------------------

def settings_of(config, text, lr, schedule):
    """Ours for a configuration of theirs; the case's own words come last and win."""
    words = {"dim": config.d, "layers": config.L, "heads": 4 if config.mixer == "tenb" else config.heads, "ffn": config.f, "vocab": config.V, "train.context": config.T,
             "train.dropout": 0, "compute": "f32", "device": "cpu", "train.lr": lr, "train.lr_min_frac": 0.05,
             "train.steps": schedule[0], "train.warmup": schedule[1], "train.beta1": 0.9, "train.beta2": 0.95, "train.eps": 1e-8,
             "train.decay": 0.1, "train.clip": 1}
    if "outer" in (config.mixer, config.hkind):
        words.update({"chunk": config.chunk, "head_dim": config.on})
    words.update({ours: config[theirs] for theirs, ours in (("K", "k"), ("window", "window")) if config.get(theirs)})
    words.update(word.split("=", 1) for word in text.split())
    return words


def train_theirs(script, net, tokens, labels, lr, schedule):
    """Their losses, and the gradients of the first batch."""
    optimizer, p, losses, grads = script.make_opt(net, lr), torch.zeros(()), [], None
    for it in range(tokens.shape[0]):
        for group in optimizer.param_groups:
            group["lr"] = script.sched(it, *schedule, lr) * group["mul"]
        loss = net(tokens[it], labels[it], p)
        loss.backward()
        losses.append(loss.item())
        if it == 0:
            grads = {name: q.grad.clone() for name, q in net.named_parameters() if q.grad is not None}
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return losses, grads


def train_ours(tenon, path, threads):
    """Our losses and the worst row of gradients, as `tenon check --against` prints them."""
    run = subprocess.run([tenon, "check", f"--against={path}", "--json", f"threads={threads}"], capture_output=True, text=True)
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    losses = [r.get("value", math.nan) for r in rows if "step" in r]
    if not losses:
        sys.exit(f"error: {tenon} check --against={path}: {run.stderr.strip() or run.stdout.strip()}")
    worst = max((r for r in rows if r["name"].startswith("grad.")), key=lambda r: r.get("value", math.inf))
    return losses, worst


def compare(script, name, which, args):
    model, text = args.lines[name]
    lr = RATES.get(name, 3e-3)
    sizes = {"chunk": args.chunk, **({"window": args.window} if name.startswith("hybrid") else {})}
    config = script.make_cfg(name, args.vocab, args.length, args.dim, args.layers, **sizes)
    if args.heads:
        config.update(heads=args.heads, oh=args.heads, on=args.dim // args.heads, op=args.dim // args.heads)
    schedule, our_schedule = SCHEDULES[which]
    if schedule is None:
        schedule, our_schedule = (args.steps, 0), (args.steps + 1, 0)
    torch.manual_seed(args.seed)
    net = script.LM(config)
    rng = torch.Generator().manual_seed(args.seed)
    if args.data:
        tokens, labels = against.read_batches(args.data, args.steps, args.batch, args.length, args.vocab)
    else:
        tokens, labels = against.make_batches(args.steps, args.batch, args.length, args.vocab, rng)
    out = {"input.tokens": tokens.int(), "input.labels": labels.int()}
    out.update((f"param.{n}", x) for n, x in translated(script, net, model, lambda p: p).items())
    theirs, grads = train_theirs(script, net, tokens, labels, lr, schedule)
    out.update((f"grad.{n}", x) for key, g in grads.items() for n, x in ours(script, net, model, key, g))
    out["output.loss"] = torch.tensor(theirs[0], dtype=torch.float64)
    out["output.losses"] = torch.tensor(theirs, dtype=torch.float64)
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep / f"{name}-{which}.safetensors" if args.keep else pathlib.Path(folder) / "ref.safetensors"
        against.write_file(path, model, settings_of(config, text, lr, our_schedule), out)
        mine, gradient = train_ours(args.tenon, path, args.threads)
    distance = max((abs(a - b) for a, b in zip(theirs, mine)), key=lambda d: (math.isnan(d), d))
    if args.verbose:
        for step, (a, b) in enumerate(zip(theirs, mine)):
            print(f"    step {step + 1:3}  script {a:.6f}  tenon {b:.6f}  {b - a:+.1e}")
    good = distance <= args.limit and len(mine) == args.steps
    count = sum(p.numel() for p in net.parameters())
    print(f"{'ok    ' if good else 'FAILED'} {name:10} {which:7} {count:9} parameters  {args.steps} steps  script {theirs[0]:.5f} -> {theirs[-1]:.5f}"
          f"  tenon {mine[0]:.5f} -> {mine[-1]:.5f}  largest distance {distance:.1e}  gradient {gradient.get('value', math.nan):.1e}"
          f" ({gradient['name'][5:]})", flush=True)
    return good


def parse_arguments():
    a = argparse.ArgumentParser(description="Trains the study's networks and ours from the same weights and compares the losses.")
    a.add_argument("name", nargs="*", help=f"of docs/variants.md (default: {' '.join(MAIN)}), or all")
    a.add_argument("--script", type=pathlib.Path, default=TREE.parent / "shared" / "reference" / "ten_variants.py")
    a.add_argument("--tenon", default=os.environ.get("TENON", str(TREE / "build" / "tenon")))
    a.add_argument("--schedule", choices=(*SCHEDULES, "both"), default="both")
    a.add_argument("--dim", type=int, default=64)
    a.add_argument("--layers", type=int, default=4)
    a.add_argument("--vocab", type=int, default=256)
    a.add_argument("--heads", type=int, default=0, help="0: those of the study, 64 wide")
    a.add_argument("--length", type=int, default=128, help="tokens of a sequence, a multiple of --chunk")
    a.add_argument("--chunk", type=int, default=64, help="tokens of a block of the outer-product layers")
    a.add_argument("--window", type=int, default=48, help="of the attention in hybrid_nr")
    a.add_argument("--batch", type=int, default=4)
    a.add_argument("--steps", type=int, default=50)
    a.add_argument("--data", help="a folder of `tenon data prepare`, instead of made-up tokens")
    a.add_argument("--limit", type=float, default=1e-3)
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--keep", type=pathlib.Path, help="leave the files for `tenon check --against` in this folder")
    a.add_argument("--verbose", action="store_true", help="every step")
    args = a.parse_args()
    if not args.script.exists():
        a.error(f"{args.script} is not there: --script says where ten_variants.py is")
    return args


def main():
    args = parse_arguments()
    warnings.filterwarnings("ignore", message=".*autocast.*")
    torch.set_num_threads(args.threads)
    script = load_script(args.script)
    args.lines = {name: line for name, line in read_lines().items() if name in script.VAR}
    names = list(args.lines) if args.name == ["all"] else args.name or MAIN
    if unknown := [name for name in names if name not in args.lines]:
        sys.exit(f"error: {unknown[0]}: {' '.join(args.lines)}, or all")
    schedules = SCHEDULES if args.schedule == "both" else (args.schedule,)
    results = [compare(script, name, which, args) for name in names for which in schedules]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
