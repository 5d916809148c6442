"""Gradients by inputs with frozen weights, and hidden states: a part of check.py."""
import numpy as np

import tenon

TOKENS = np.random.default_rng(2).integers(0, 64, (2, 32)).astype(np.int32)
LABELS = np.roll(TOKENS, -1, 1)


def gradients_by_inputs():
    net = tenon.open("gpt", "dim=16", "layers=2", "heads=2", "vocab=64", "train.context=32", "threads=1", "qk_norm=true", "head_dim=12")
    x = net.parameters["embed"][TOKENS]
    assert np.array_equal(net.forward(embeddings=x), net.forward(TOKENS))
    got = net.run("eval", ["loss", "d.embeddings"], embeddings=x, labels=LABELS)
    assert got["loss"] == np.float32(net.loss(TOKENS, LABELS)) and got["d.embeddings"].shape == x.shape
    way = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    ends = [net.run("eval", "loss", embeddings=x + h * way, labels=LABELS)["loss"] for h in (1e-3, -1e-3)]
    slope = float((got["d.embeddings"] * way).sum())
    assert abs((ends[0] - ends[1]) / 2e-3 - slope) < 2e-2 * abs(slope) + 1e-3
    assert not any(g.any() for g in net.grads.values())  # weights get none
    states = net.forward(TOKENS, ["hidden.0", "hidden.2"])
    assert np.array_equal(states["hidden.0"], x) and states["hidden.2"].shape == x.shape and not np.array_equal(states["hidden.2"], x)
    try:
        net.run("eval", "d.tokens", tokens=TOKENS, labels=LABELS)
        raise AssertionError("tokens have no gradient")
    except tenon.TenonError as error:
        assert error.code == 2 and "d.tokens: model gpt reads no floats as tokens" in str(error)


TESTS = (gradients_by_inputs,)
