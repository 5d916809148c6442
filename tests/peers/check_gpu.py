"""Checks of the GPU peers in bench/peers against the twins: loss and every gradient of GPT-2, and of the TEN and ten_b in every form, the
head whole, by rows and in Triton; the lattice; and that the first steps train at the rate that their file tells our side. On the CPU the chunked and per-token forms run in float64 and the Triton ones through Triton's
interpreter in float32 (a minute); with --cuda the Triton ones run on the GPU. Ends with "N passed, N failed"."""
import json
import os
import pathlib
import sys
import tempfile
import types

CUDA = "--cuda" in sys.argv
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"
import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
import against  # noqa: E402
import gpt_twin  # noqa: E402
import gpu_gpt2  # noqa: E402
import gpu_lattice  # noqa: E402
import gpu_step  # noqa: E402
import gpu_ten  # noqa: E402

SMALL = {"ten": "dim=32 layers=2 heads=2 k=6 vocab=23", "ten_b": "preset=ten_b dim=16 layers=2 k=8 heads=2 vocab=23"}
results = []


def check(name, worst, limit):
    results.append(worst <= limit)
    print(f"{'ok    ' if results[-1] else 'FAILED'} {name}: {worst:.2g} (limit {limit:g})", flush=True)


def distance(a, b):
    return ((a.double().cpu() - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def compare(kind, form, length, rows, dtype, limit):
    """The largest relative distance of loss and gradients from the twin's in float64, each tensor by its largest entry."""
    net_class, defaults = gpu_ten.NETS[kind][:2]
    net, tokens, labels = gpu_step.make_net(net_class, defaults, SMALL[kind], 2, length, torch.float64, steps=1)
    want, _ = net.loss(tokens[0], labels[0])
    grads = torch.autograd.grad(want, list(net.params.values()))
    device = "cuda" if CUDA and form == "triton" else "cpu"
    params = {name: p.to(dtype).detach().requires_grad_() for name, p in gpu_step.device_params(net, device).items()}
    x = gpu_ten.make_body(kind, form, params, net.settings, dtype)(tokens[0].to(device))
    if rows == "triton":
        import triton_blocks
        loss = triton_blocks.head_loss(x, params["embed"], labels[0].to(device), net.settings["vocab"])
    else:
        loss = gpu_step.head_loss(x, params["embed"], labels[0].to(device), net.settings["vocab"], rows)
    mine = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    mine["embed"] = mine["embed"][:net.settings["vocab"]]
    far = [distance(loss, want)] + [distance(mine[name], g) for name, g in zip(net.params, grads)]
    check(f"{kind} {form} T={length} head={rows} {dtype}", max(far), limit)


def compare_gpt2():
    net, tokens, labels = gpu_step.make_net(gpt_twin.Gpt, gpt_twin.DEFAULTS, "shape=gpt2 dim=16 layers=2 heads=2 vocab=23", 2, 30, torch.float64, 1)
    want, _ = net.loss(tokens[0], labels[0])
    grads = torch.autograd.grad(want, list(net.params.values()))
    params = gpu_step.device_params(net, "cpu")
    x = gpu_step.make_body(params, "AA", gpu_gpt2.begin, gpu_gpt2.make_layer(2), torch.float64, "none")(tokens[0])
    loss = gpu_step.head_loss(x, params["embed"], labels[0], 23, 0)
    mine = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    mine["embed"] = mine["embed"][:23]
    check("gpt2", max([distance(loss, want)] + [distance(mine[name], g) for name, g in zip(net.params, grads)]), 1e-9)


def compare_lattice():
    """The lattice with gradients by hand against autograd through torch.gru_cell. Flows that leave, fold, are clamped and are projected."""
    o = types.SimpleNamespace(width=5, height=4, start=0.0, flow_steps=7, drift=0.12, eps=1e-3, compile=False)
    p = {name: x.double() for name, x in gpu_lattice.make_params(16, 3, 2).items()}
    p["move2.w"] *= 30
    e0, target = torch.rand(3, 20, 2, dtype=torch.float64), torch.rand(3, 20, 2, dtype=torch.float64)
    sides = []
    for o.form in ("eager", "hand"):
        mine = {name: x.clone().requires_grad_() for name, x in p.items()}
        loss, surface = gpu_lattice.make_step(o, mine, e0, target, torch.float64)()
        sides.append([loss.detach(), surface.detach(), *(x.grad for x in mine.values())])
    check("lattice, gradients by hand", max(distance(a, b) for a, b in zip(*sides)), 1e-9)


def file_settings(path):
    """key=value words of a reference file, as `tenon check --against` reads them."""
    data = pathlib.Path(path).read_bytes()
    head = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return dict(word.split("=", 1) for word in head["__metadata__"]["settings"].split())


def compare_rate():
    """The first steps of the peers against the twin's training at the rate of their file, whose schedule must be none."""
    net, tokens, labels = gpu_step.make_net(gpt_twin.Gpt, gpt_twin.DEFAULTS, "shape=gpt2 dim=16 layers=2 heads=2 vocab=23", 2, 30, torch.float64, 6)
    params = gpu_step.device_params(net, "cpu")
    body = gpu_step.make_body(params, "AA", gpu_gpt2.begin, gpu_gpt2.make_layer(2), torch.float64, "none")
    loss_of = gpu_step.make_loss(body, "whole", params["embed"], 23, False)
    with tempfile.TemporaryDirectory() as folder:
        losses = gpu_step.first_steps(gpu_step.make_step(net, params, loss_of), "gpt", net, tokens, labels, f"{folder}/first")
        said = file_settings(f"{folder}/first")
    check("the file's rate is that of gpu_step", abs(float(said["train.lr"]) - gpu_step.TRAIN["train.lr"]), 0)
    net.settings["train.lr"] = float(said["train.lr"])
    want = against.make_reference(net, tokens, labels, 6)["output.losses"]
    check("first losses at the file's rate", distance(torch.tensor(losses), want), 1e-6)


torch.manual_seed(1)
compare_gpt2()
compare_rate()
compare_lattice()
for kind in SMALL:
    for length, rows in ((40, 0), (128, 50), (37, 16)):
        compare(kind, "eager", length, rows, torch.float64, 1e-9)
    compare(kind, "loop", 20, 0, torch.float64, 1e-9)
    compare(kind, "triton", 80, "triton", torch.float32, 1e-2 if CUDA else 2e-3)  # products in tf32 on the GPU
    if CUDA:
        compare(kind, "triton", 1100, "triton", torch.float32, 2e-2)
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
