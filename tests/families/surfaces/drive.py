"""surfaces from Python: a run of it, its metrics by name, its parameters. Needs the installed package and in $TENON the command."""
import json
import os
import shutil
import subprocess
import tempfile

import numpy as np

import tenon

HERE, TENON = os.path.dirname(os.path.abspath(__file__)), os.environ["TENON"]


def command(*words):
    return subprocess.run([TENON, *words], check=True, capture_output=True, text=True).stdout


def refused(part, f, *a, **k):
    try:
        f(*a, **k)
    except tenon.TenonError as error:
        assert error.code == 2 and part in str(error), error
        return
    raise AssertionError(f"nothing was raised that says {part}")


def drive(so, run):
    command("train", so, "train.steps=60", "curriculum=40", "train.batch=16", "train.eval_every=20", "train.select=psnr", "threads=1", f"run={run}")
    refused("does not run code that a file asks for", tenon.open, run)
    net = tenon.open(run, f"model={so}")

    # As the checkpoint has them, and measured anew: what `tenon eval` says.
    assert set(net.metrics) == {"loss", "psnr", "landing"}, net.metrics
    psnr = net.metrics["psnr"]
    assert psnr.unit == "dB" and psnr.higher and not net.metrics["loss"].higher and net.metrics["landing"].higher
    for split in ("valid", "test"):
        said = map(json.loads, command("eval", run, f"model={so}", f"split={split}", "--json").splitlines())
        said = {line["name"]: line["value"] for line in said}
        assert all(value == said[name] for name, value in net.evaluate(split=split).items()), split
    assert net.evaluate()["psnr"] == psnr > 16 and net.metrics["landing"] > 0.1

    # Parameters are views; what is written there is measured.
    w = net.parameters["layer0.up"]
    assert w.shape == (96, 64) and sum(p.size for p in net.parameters.values()) == 24896
    kept = w.copy()
    w *= -1
    assert net.evaluate()["psnr"] < psnr - 1
    w[:] = kept
    assert net.evaluate()["psnr"] == psnr
    net.save(f"{run}/w.safetensors")
    assert abs(tenon.open(f"{run}/w.safetensors", f"model={so}").evaluate()["psnr"] - psnr) < 1e-4  # batches of another size
    tokens = np.zeros((1, 4), np.int32)
    refused("model surfaces has no input tokens", net.loss, tokens, tokens)

    # Without a run: what the seed begins with, before any evaluation.
    fresh = tenon.open(so, "train.batch=16")
    assert fresh.metrics == {} and fresh.evaluate()["psnr"] < psnr

    # Trained on arrays of one's own, by the names of its inputs; its own step by name.
    rng = np.random.default_rng(1)
    cells = fresh.inputs["surface"].dims[1]
    x = rng.standard_normal((16, cells)).astype(np.float32)
    batch = dict(surface=x, target=0.5 * x, grain=np.zeros_like(x), rows=np.array([16], np.int32))
    losses = []
    for _ in range(40):
        losses.append(fresh.gradients(**batch))
        fresh.step()
    assert losses[-1] < 0.5 * losses[0], losses
    assert fresh.loss(**batch) < losses[0]
    refused("surface", fresh.loss, **{**batch, "surface": x[:, 1:]})
    assert fresh.run("trace", **batch)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    command("new", "model", "surfaces")
    shutil.copy(f"{HERE}/surfaces.c", "surfaces/surfaces.c")
    subprocess.run(["make", "-s", "-C", "surfaces"], check=True)
    drive("./surfaces/surfaces.so", f"{folder}/run")
    os.chdir("/")
print("surfaces is driven from Python")
