"""Checks of the timed steps in bench/peers against the twins, in float64: the loss and every gradient of GPT-2 and of the
TEN with and without chunked losses, lengths that chunks do and do not divide, and the hand-written GRU cell against
torch's own. Ends with "N passed, N failed"; run it with an interpreter that has torch."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
import against  # noqa: E402
import gpt_twin  # noqa: E402
import step  # noqa: E402
import step_gpt2  # noqa: E402
import step_gru  # noqa: E402
import step_ten  # noqa: E402
import ten_twin  # noqa: E402

results = []


def check(name, worst, limit=1e-10):
    results.append(worst <= limit)
    print(f"{'ok    ' if results[-1] else 'FAILED'} {name}: {worst:.2g} (limit {limit:g})")


def distance(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def compare(name, net, forward, tokens, labels, rows):
    """The largest relative distance of the loss and of the gradients, each tensor by its largest entry."""
    want, _ = net.loss(tokens, labels)
    grads = torch.autograd.grad(want, list(net.params.values()))
    loss = step.head_loss(forward(net.params, tokens), net.params["embed"], labels, rows, torch.float64)
    mine = torch.autograd.grad(loss, list(net.params.values()))
    check(f"{name} loss_rows={rows}", max([distance(loss, want)] + [distance(a, b) for a, b in zip(mine, grads)]))


def models():
    for length, rows in ((16, 0), (16, 5), (13, 8)):
        rng = torch.Generator().manual_seed(2)
        tokens, labels = torch.randint(23, (2, 2, length), generator=rng)
        text = "shape=gpt2 dim=8 layers=2 heads=2 vocab=23"
        net = gpt_twin.Gpt({**against.parse_settings(text, {**gpt_twin.DEFAULTS, **against.TRAIN}), "train.context": length},
                           torch.float64, rng)
        compare(f"gpt2 T={length}", net, lambda p, t: step_gpt2.forward(p, 2, 2, t), tokens, labels, rows)
        net = ten_twin.Ten(against.parse_settings("pattern=DO dim=8 layers=2 heads=2 vocab=23 chunk=4",
                                                  {**ten_twin.DEFAULTS, **against.TRAIN}), torch.float64, rng)
        compare(f"ten T={length}", net, lambda p, t: step_ten.forward(p, "DO", 2, 4, t), tokens, labels, rows)


def cells():
    torch.manual_seed(3)
    N, H = 7, 5
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in
              ((N, H), (N, H), (3 * H, H), (3 * H, H), (3 * H,), (3 * H,))]
    dy = torch.randn(N, H, dtype=torch.float64)
    want = torch.gru_cell(*leaves)
    grads = torch.autograd.grad(want, leaves, dy)
    for name in ("hand", "plain"):
        y = step_gru.CELLS[name](*leaves)
        mine = torch.autograd.grad(y, leaves, dy)
        check(f"gru cell {name}", max([distance(y, want)] + [distance(a, b) for a, b in zip(mine, grads)]))


models()
cells()
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
