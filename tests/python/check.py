"""What the Python binding promises; ends with "N passed, N failed". Needs the installed package, numpy, and in $TENON the
command."""
import gc
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref

import numpy as np

import tenon

import files
import gradients
import runs
import surfaces

TINY = ("dim=16", "layers=2", "heads=2", "vocab=256", "train.context=32", "train.lr=1e-2", "train.warmup=0",
        "train.schedule=constant", "threads=1")
TEXT = b"the quick brown fox jumps over the lazy dog. " * 3
ROW = np.frombuffer(TEXT, np.uint8).astype(np.int32)
TOKENS, LABELS = ROW[:64].reshape(2, 32), ROW[1:65].reshape(2, 32)


def raises(code, part, f, *a, **k):
    try:
        f(*a, **k)
    except tenon.TenonError as error:
        assert error.code == code and part in str(error), f"{error.code}: {error}"
        return
    raise AssertionError(f"nothing was raised that says {part}")


def views_share_memory():
    net = tenon.open("ten", *TINY)
    w = net.parameters["embed"]
    assert w.shape == (256, 16) and w.dtype == np.float32 and not w.flags.owndata and w.flags.writeable
    before = net.loss(TOKENS, LABELS)
    kept = w.copy()
    w *= 3
    assert net.loss(TOKENS, LABELS) != before
    w[:] = kept
    assert net.loss(TOKENS, LABELS) == before
    net.parameters["embed"] = 3 * kept  # the way that works on every device
    assert np.array_equal(w, 3 * kept)
    net.parameters["embed"] = kept
    assert net.loss(TOKENS, LABELS) == before and net.device == "cpu" and len(net.grads) == len(net.parameters)
    address = w.ctypes.data
    net.loss(TOKENS[:1, :7], LABELS[:1, :7])
    assert tenon.open("ten", *TINY).parameters["embed"].ctypes.data != address == net.parameters["embed"].ctypes.data
    total = sum(p.size for p in net.parameters.values())
    ended = []
    weakref.finalize(net._handle, ended.append, True)
    del net
    gc.collect()
    assert np.array_equal(w, kept) and total > 0 and not ended  # a view keeps the model alive, the last one ends it
    del w
    gc.collect()
    assert ended


def loss_is_that_of_the_logits():
    net = tenon.open("gpt", *TINY)
    logits = net.forward(TOKENS).astype(np.float64)
    assert logits.shape == (2, 32, 256)
    p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = -np.take_along_axis(p, LABELS[..., None].astype(np.int64), -1).mean()
    assert abs(net.loss(TOKENS, LABELS) - want) < 1e-5 and abs(want - math.log(256)) < 0.5
    some = LABELS.copy()
    some[:, 5:] = -1
    want = -np.take_along_axis(p, LABELS[..., None].astype(np.int64), -1)[:, :5].mean()
    assert abs(net.loss(TOKENS, some) - want) < 1e-5
    assert abs(net.evaluate(ROW[:33]) - net.loss(ROW[:32], ROW[1:33])) < 1e-5


def command_says_the_same():
    """A run of the command: its best checkpoint, opened here, has the held-out loss the command reported."""
    command = os.environ["TENON"]
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "t.txt")
        with open(text, "wb") as f:
            f.write(b"".join(b"%d\n" % i for i in range(4000)))
        words = ["gpt_tiny", f"data={text}", f"run={folder}/run", "dim=16", "layers=1", "heads=2", "train.context=16", "train.batch=1",
                 "train.steps=3", "train.eval_batches=1", "threads=1"]
        out = subprocess.run([command, "train", *words, "--json"], check=True, capture_output=True, text=True).stdout
        heldout = float(next(l for l in out.splitlines() if "heldout_loss" in l).split('"value":')[1].split(",")[0])
        net = tenon.open(f"{folder}/run")
        assert net.settings["dim"] == "16" and net.vocab == 256
        raw = np.frombuffer(open(text, "rb").read(), np.uint8).astype(np.int32)
        losses = [net.loss(raw[i:i + 16], raw[i + 1:i + 17]) for i in range(len(raw) - len(raw) // 50 - 20, len(raw) - 17)]
        assert min(abs(x - heldout) for x in losses) < 1e-5, heldout  # one of the windows at the end is the one held out
        assert net.sample("12", max_tokens=5, seed=1) == subprocess.run(
            [command, "sample", f"{folder}/run", "--prompt=12", "max_tokens=5", "seed=1"], check=True,
            capture_output=True).stdout.decode()[2:-1]
        metrics_by_name(folder, command, heldout)
        damaged_best(folder, words)


def metrics_by_name(folder, command, heldout):
    """Those of the checkpoint, and measured anew over the whole split, as `tenon eval` says them."""
    net = tenon.open(f"{folder}/run")
    assert set(net.metrics) == {"loss", "bits_per_byte"} and net.metrics["loss"] == heldout
    out = subprocess.run([command, "eval", f"{folder}/run", "--json"], check=True, capture_output=True, text=True).stdout
    said = {line["name"]: line for line in map(json.loads, out.splitlines())}
    for name, value in net.evaluate().items():
        assert value == said[name]["value"] and not value.higher, name
    assert net.metrics["loss"].unit == "nats" and net.metrics["bits_per_byte"].unit == "bits/byte"
    net.parameters["embed"][:] *= 0.5
    assert net.evaluate()["loss"] != said["loss"]["value"]
    try:
        net.evaluate(split="train")
        raise AssertionError("there is no such split")
    except tenon.TenonError as error:
        assert "valid and test" in str(error)


def damaged_best(folder, words):
    """Another checkpoint is read, and that is a warning, in open and in load."""
    subprocess.run([os.environ["TENON"], "train", *words, f"run={folder}/two", "ckpt.every=2"], check=True, capture_output=True)
    run = f"{folder}/two"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        net = tenon.open(run)
        assert not seen, [str(w.message) for w in seen]
        with open(f"{run}/best/model.safetensors", "r+b") as f:
            f.seek(900)
            f.write(b"x")
        tenon.open(run)
        net.load(run)
        net.load(f"{run}/step-2")
    assert len(seen) == 2 and all("is damaged" in str(w.message) and "step-2 instead" in str(w.message) for w in seen), seen
    assert all(w.filename == __file__ for w in seen)


def gradient_steps_lower_the_loss():
    net = tenon.open("ten", *TINY)
    first = net.loss(TOKENS, LABELS)
    for _ in range(10):
        net.gradients(TOKENS, LABELS)
        done = net.step()
    assert done.applied and done.step == 10 and done.grad_norm > 0 and abs(done.lr - 1e-2) < 1e-7
    assert net.loss(TOKENS, LABELS) < first - 1
    net.gradients(TOKENS, LABELS)
    g = net.grads["embed"].copy()
    assert np.abs(g).max() > 0
    i = np.unravel_index(np.abs(g).argmax(), g.shape)
    w, h = net.parameters["embed"], 1e-3
    at = float(w[i])
    w[i] = at + h
    up = net.loss(TOKENS, LABELS)
    w[i] = at - h
    assert abs((up - net.loss(TOKENS, LABELS)) / (2 * h) - g[i]) < 0.05 * abs(g[i]) + 1e-3
    net.zero_gradients()
    assert not net.grads["embed"].any()
    for p, grad in ((net.parameters[k], net.grads[k]) for k in net.parameters):  # an optimizer of one's own
        assert p.shape == grad.shape
    net.set("train.lr", 1e-3)
    net.gradients(TOKENS, LABELS)
    assert abs(net.step().lr - 1e-3) < 1e-9


def files_keep_it():
    net = tenon.open("gpt", *TINY)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.safetensors"
        net.save(path)
        again = tenon.open(path)
        assert again.loss(TOKENS, LABELS) == net.loss(TOKENS, LABELS)
        net.parameters["embed"][:] = 0
        net.load(path)
        assert again.loss(TOKENS, LABELS) == net.loss(TOKENS, LABELS)


def sampling_repeats():
    net = tenon.open("ten", *TINY)
    a, b = (net.sample("the", max_tokens=20, seed=7, temperature=1.0, top_p=1.0) for _ in range(2))
    assert a == b and a.end == "length" and np.array_equal(a.tokens, b.tokens) and len(a.tokens) == 20
    assert net.sample("the", max_tokens=20, seed=8, temperature=1.0, top_p=1.0) != a
    two = net.sample("the", n=2, max_tokens=5)
    assert len(two) == 2 and two[0] != two[1]
    heard = []
    net.sample(net.tokenizer.encode("the"), max_tokens=20, seed=7, temperature=1.0, top_p=1.0, stream=heard.append)
    assert "".join(heard) == a
    assert net.sample("the", max_tokens=50, stream=lambda t: True).end == "stream"
    for _ in range(60):
        net.gradients(TOKENS, LABELS)
        net.step()
    assert net.sample("the quick ", temperature=0, max_tokens=40, stop="jumps") == "brown fox "
    try:
        net.sample("the", stream=lambda t: 1 // 0)
    except ZeroDivisionError:
        return
    raise AssertionError("an error in stream() was lost")


def tokenizers_turn_around():
    t = tenon.Tokenizer("bytes")
    assert t.vocab == 256 and t.start == -1
    assert t.decode(t.encode("h\u00e9llo")) == "h\u00e9llo" and t.encode("").size == 0 and t.decode([]) == ""
    raises(2, "300", t.decode, [300])
    raises(3, "nowhere", tenon.Tokenizer, "nowhere.json")


def mistakes_raise():
    raises(2, "nonsense", tenon.open, "nonsense")
    raises(2, "did you mean gpt_tiny", tenon.open, "gpt_tinny")
    try:
        tenon.Model("gpt_tiny")  # type: ignore[arg-type]
        raise AssertionError("a name became a pointer")
    except TypeError as error:
        assert "tenon.open" in str(error)
    raises(2, "did you mean dim", tenon.open, "gpt", dimm=3)
    raises(3, "nothing.safetensors", tenon.open, "nothing.safetensors")
    if tenon.open("gpt", *TINY, device="auto").device == "cpu":
        raises(2, "use device=cpu", tenon.open, "gpt", *TINY, device="cuda")
    net = tenon.open("gpt", *TINY)
    raises(2, "tokens[0] is 256", net.loss, [[256]], [[0]])
    raises(2, "(B,T)", net.loss, TOKENS, LABELS[:, :3])
    raises(2, "integers", net.loss, [[0.5]], [[0]])
    raises(2, "train.context", net.loss, np.zeros((1, 33)), np.zeros((1, 33)))
    raises(2, "cannot be changed", net.set, "dim", 3)
    raises(2, "temperature", net.sample, "x", temperature=-1)
    net.parameters["embed"][:] = np.nan
    raises(4, "NaN", net.sample, "x")
    net.gradients(TOKENS, LABELS)
    raises(4, "", net.step)
    code = "import os; os.environ['TENON_LIBRARY'] = '/nowhere.so'; import tenon"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert r.returncode == 1 and "run `make` in Tenon's checkout" in r.stderr, r.stderr


def samples(n, classes=3, features=6):
    """Rows (n,1,features) of which every third number is larger by 1: which one is their label (n,1)."""
    y = np.arange(n) % classes
    x = np.eye(classes)[y].repeat(features // classes, 1) + 0.1 * np.random.default_rng(1).normal(size=(n, features))
    return x[:, None, :], y[:, None]


def arrays_by_name():
    """A model that reads no tokens learns from arrays; a wrong name, shape, type or number is one line."""
    net = tenon.open("tep", *TINY[5:], inputs=6, classes=3, dim=8)
    x, y = samples(12)
    assert list(net.inputs) == ["features", "labels", "count", "sample", "weights", "targets"]
    assert net.inputs["features"].dims == ("B", "T", 6) and net.inputs["labels"].dims == ("B", 1) and net.inputs["labels"].dtype == np.int32
    assert net.inputs["labels"].below == 3 and net.inputs["labels"].pad == -1 and net.inputs["weights"].optional
    first = net.loss(features=x, labels=y)
    for _ in range(80):
        net.gradients(features=x, labels=y)
        assert net.step().applied
    last = net.loss(features=x, labels=y)
    assert last < 0.1 * first
    logits = net.forward(features=x)
    assert logits.shape == (12, 1, 3) and (logits.argmax(-1) == y).all()
    got = net.forward(features=x[:5], outputs=["logits", "steps"])
    assert np.allclose(got["logits"], logits[:5], atol=1e-6) and got["steps"].shape == (5,) and got["steps"].dtype == np.int32
    count = np.where(np.arange(12) < 5, y[:, 0], -1)[:, None]
    assert abs(net.loss(features=x, labels=count, count=[5]) - net.loss(features=x[:5], labels=y[:5])) < 1e-6
    raises(2, "no input featurs: it has features, labels", net.loss, featurs=x, labels=y)
    raises(2, "input labels of model tep is missing", net.gradients, features=x)
    raises(2, "features has the shape (12, 6), and the model takes (B,T,6)", net.loss, features=x[:, 0], labels=y)
    raises(2, "labels has the shape (5, 1), and the model takes (B,1), where B is 12", net.loss, features=x, labels=y[:5])
    raises(2, "labels is int32: its numbers must be integers", net.loss, features=x, labels=y + 0.5)
    raises(2, "features is float32", net.loss, features="many", labels=y)
    raises(2, "labels[2] is 3, outside -1 to 2", net.loss, features=x, labels=y + 1)
    raises(2, "has no output picture: it has", net.forward, features=x, outputs="picture")
    raises(2, "model tep has no input tokens", net.loss, TOKENS, LABELS)
    assert net.loss(features=x, labels=y) == last
    raises(2, "the data have no test split: ", tenon.open("xor_tep", "task.test_frac=0", inputs=2, classes=2).evaluate, split="test")
    raises(2, "tep learns from samples and cannot generate text", net.sample, "a")
    raises(2, "count has the shape (), and the model takes (1)", net.loss, features=x, labels=y, count=5)
    tokens = tenon.open("ten", *TINY)
    raises(2, "input labels of model ten is missing", tokens.loss, TOKENS)
    assert tokens.loss(TOKENS, LABELS) == tokens.loss(tokens=TOKENS, labels=LABELS)
    marks = np.zeros_like(TOKENS)
    assert abs(tokens.loss(tokens=TOKENS, labels=LABELS, reset=marks) - tokens.loss(TOKENS, LABELS)) < 1e-6
    marks[:, 16] = 1
    assert tokens.loss(tokens=TOKENS, labels=LABELS, reset=marks) != tokens.loss(TOKENS, LABELS)
    assert np.array_equal(tokens.forward(TOKENS), tokens.forward(tokens=TOKENS, outputs=["logits"])["logits"])


STEPS = """
#include <tenon/model.h>
static const tn_setting settings[] = { TN_SETTING_INT("cells", "8", TN_RANGE(1, 64), "", "cells of a surface") };
static tn_ref moved(tn_graph *g, const tn_settings *st, tn_ref x)
{
    const int64_t n = tn_settings_int(st, "cells");
    return tn_linear(g, x, tn_param(g, "w", tn_shape(n, n), tn_normal(0.1f)));
}
static tn_status learn(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_output(g, "loss", tn_mse(g, moved(g, st, tn_in(b, "surface")), tn_in(b, "target")));
    return tn_graph_status(g);
}
static tn_status later(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const tn_ref loss = tn_mse(g, moved(g, st, tn_in(b, "surface")), tn_in(b, "target"));
    tn_output(g, "loss", tn_add(g, loss, tn_scalar(g, "at", 0)));
    return tn_graph_status(g);
}
static tn_status trace(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const tn_ref one = moved(g, st, tn_in(b, "surface"));
    tn_output(g, "one", one);
    tn_output(g, "two", moved(g, st, one));
    return tn_graph_status(g);
}
static const tn_input_row inputs[] = { { "surface", TN_F32, { TN_B, "cells" } }, { "target", TN_F32, { TN_B, "cells" } } };
static const tn_step_row steps[] = { { "train", learn, .gradients = true }, { "later", later, .gradients = true }, { "eval", learn }, { "trace", trace } };
static size_t choose(const tn_settings *st, int64_t step) { (void)st; return step >= 2; }
static double at(const tn_settings *st, int64_t step) { (void)st; return (double)step; }
static const tn_schedule_row schedules[] = { { "at", at } };
static const tn_model model = { TN_MODEL_HEAD, .name = "cell", .summary = "", .settings = settings, .n_settings = 1, TN_INPUTS(inputs), TN_STEPS(steps), TN_SCHEDULES(schedules), .choose = choose };
const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
"""


def steps_by_name():
    """A shared object with rows of its own: float inputs and targets, and a step beside training and evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        net = tenon.open(make(folder, "cell", lambda source: STEPS), *TINY[5:])
        a = np.random.default_rng(3).normal(size=(32, 8)).astype(np.float32)
        for _ in range(300):
            net.gradients(surface=a, target=a[:, ::-1])
            net.step()
        assert net.loss(surface=a, target=a[:, ::-1]) < 1e-3
        out = net.run("trace", surface=a[:3])
        w = net.parameters["w"]
        assert list(out) == ["one", "two"] and np.allclose(out["one"], a[:3] @ w.T, atol=1e-5) and np.allclose(out["two"], a[:3] @ w.T @ w.T, atol=1e-5)
        assert list(net.run("trace", ["two"], surface=a)) == ["two"] and net.vocab == 0
        assert np.array_equal(net.run("trace", "two", surface=a)["two"], net.run("trace", surface=a)["two"])
        raises(2, "has no step generate: it has train, eval, later, trace", net.run, "generate", surface=a)
        raises(2, "call gradients()", net.run, "train", surface=a, target=a)
        raises(2, "surface has the shape (), and the model takes (B,8)", net.loss, surface=1, target=a)
        # Schedules and choose follow the optimizer's steps, whatever a step is the sum of.
        for parts in (1, 2):
            counted = tenon.open(f"{folder}/cell/cell.so", *TINY[5:], f"train.accumulate={parts}", "train.lr=1e-6")
            plain = counted.loss(surface=a, target=a)
            for step in range(4):
                for _ in range(parts + 1):  # one more than the settings say counts as the last of them
                    assert round(counted.gradients(surface=a, target=a) - plain) == (step if step >= 2 else 0)
                counted.step()
        net.save(f"{folder}/w.safetensors")
        again = tenon.open(f"{folder}/w.safetensors", model=f"{folder}/cell/cell.so")
        assert np.array_equal(again.run("trace", surface=a)["two"], net.run("trace", surface=a)["two"])


WORDS = """
#include <tenon/model.h>
static const tn_setting settings[] = { TN_SETTING_INT("vocab", "16", TN_RANGE(1, 64), "", "tokens") };
static tn_ref embed(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    return tn_embed(g, tn_in(b, "tokens"), tn_param(g, "embed", tn_shape(tn_settings_int(st, "vocab"), 8), tn_normal(0.3f)));
}
static tn_status learn(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_output(g, "loss", tn_mean_all(g, tn_square(g, embed(g, st, b))));
    return tn_graph_status(g);
}
static tn_status codes(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_output(g, "codes", embed(g, st, b));
    return tn_graph_status(g);
}
static const tn_input_row inputs[] = { { "tokens", TN_I32, { TN_B, TN_T }, .cut = true, .below = "vocab" } };
static const tn_step_row steps[] = { { "train", learn, .gradients = true }, { "eval", learn }, { "codes", codes } };
static const tn_model model = { TN_MODEL_HEAD, .name = "words", .summary = "", .settings = settings, .n_settings = 1, TN_INPUTS(inputs), TN_STEPS(steps) };
const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
"""


def make(folder, name, change):
    """What `tenon new model` makes, with a changed source; returns its shared object."""
    subprocess.run([os.environ["TENON"], "new", "model", name], cwd=folder, check=True, capture_output=True)
    with open(f"{folder}/{name}/{name}.c", "r+") as f:
        source = change(f.read())
        f.seek(0)
        f.write(source)
        f.truncate()
    subprocess.run(["make", "-s", "-C", name], cwd=folder, check=True, capture_output=True)
    return f"{folder}/{name}/{name}.so"


def tokens_without_labels():
    """A model that reads tokens and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        net = tenon.open(make(folder, "words", lambda source: WORDS), "train.context=32")
        tokens = np.arange(64).reshape(2, 32) % 16
        assert net.loss(tokens) == net.loss(tokens=tokens) == net.gradients(tokens)
        assert net.run("codes", tokens=tokens)["codes"].shape == (2, 32, 8)


def chunks_have_no_other_steps():
    """A model with a step of its own is trained and evaluated in chunks all the same."""
    def change(source):
        rows = 'static const tn_step_row steps[] = { { "train", chunky_build, true }, { "eval", chunky_build }, { "again", chunky_build } };\n'
        return source.replace("static const tn_model model", rows + "static const tn_model model").replace(".build = chunky_build,", "TN_STEPS(steps),")
    words = ("train.context=64", "dim=16", "layers=1", "vocab=256")
    with tempfile.TemporaryDirectory() as folder:
        so = make(folder, "chunky", change)
        whole, chunks = tenon.open(so, *words), tenon.open(so, *words, "plan.recompute=chunk", "plan.chunk=16")
        tokens, labels = np.arange(128).reshape(2, 64), np.arange(1, 129).reshape(2, 64)
        assert abs(chunks.loss(tokens, labels) - whole.loss(tokens, labels)) < 1e-5
        assert whole.run("again", tokens=tokens, labels=labels)["loss"] == np.float32(whole.loss(tokens, labels))
        raises(2, "step again: plan.recompute=chunk supports training and evaluation only", chunks.run, "again", tokens=tokens)


def example_learns():
    here = os.path.dirname(os.path.abspath(__file__))
    r = subprocess.run([sys.executable, f"{here}/../../examples/python/samples.py"], capture_output=True, text=True)
    assert r.returncode == 0 and "of 500 new points are right" in r.stdout, r.stderr


CONSTRUCTOR = """
#include <stdio.h>
__attribute__((constructor)) static void ran(void) { FILE *f = fopen("MARK", "w"); if (f) fclose(f); }
"""


def files_run_no_code():
    """A shared object is loaded where the call names it, and never because a file does. Each open is a process of its own: what is
    loaded once stays."""
    with tempfile.TemporaryDirectory() as folder:
        def python(code):
            return subprocess.run([sys.executable, "-c", "import os, tenon\n" + code], cwd=folder, capture_output=True, text=True)

        mark = os.path.join(folder, "MARK")
        subprocess.run([os.environ["TENON"], "new", "model", "cell"], cwd=folder, check=True, capture_output=True)
        with open(os.path.join(folder, "cell", "cell.c"), "a") as f:
            f.write(CONSTRUCTOR)
        subprocess.run(["make", "-s", "-C", "cell"], cwd=folder, check=True, capture_output=True)
        r = python("tenon.open('cell/cell.so', dim=8, layers=1, vocab=32).save('w.safetensors')")
        assert r.returncode == 0 and os.path.exists(mark), r.stderr
        os.remove(mark)
        r = python("tenon.open('w.safetensors')")
        assert r.returncode == 1 and not os.path.exists(mark), r.stderr
        assert "w.safetensors: it names the shared object cell/cell.so" in r.stderr and "add model=cell/cell.so to the call" in r.stderr, r.stderr
        with open(os.path.join(folder, "s.yaml"), "w") as f:
            f.write("model: ./cell/cell.so\n")
        r = python("tenon.open('s.yaml')")
        assert r.returncode == 1 and "s.yaml:1: it names" in r.stderr and not os.path.exists(mark), r.stderr
        r = python("tenon.open('w.safetensors', model='cell/cell.so')")
        assert r.returncode == 0 and os.path.exists(mark), r.stderr


# Rounds that only Ctrl-C ends: "go" when one begins to compute, "caught" when KeyboardInterrupt has come, and the model still works.
ENDLESS = """
import sys, numpy as np, tenon
net = tenon.open("ten", *sys.argv[1].split())
row = np.zeros(1 << 24, np.int32)
want = net.sample("a", max_tokens=5, seed=3)

def steps(go):
    while True:
        net.gradients(row[:32], row[:32])
        go()
        net.step()

rounds = {"sample": lambda go: (go(), net.sample("a", max_tokens=1 << 40)),
          "stream": lambda go: net.sample("a", max_tokens=1 << 40, stream=lambda piece: go()),
          "prompt": lambda go: (go(), net.sample(row, max_tokens=1)),
          "evaluate": lambda go: (go(), net.evaluate(row, length=8)),
          "steps": steps}
for line in sys.stdin:
    said = []
    def go():
        if not said:
            said.append(print("go", flush=True))
    try:
        rounds[line.strip()](go)
        print("ended", flush=True)
    except KeyboardInterrupt:
        print("caught" if net.sample("a", max_tokens=5, seed=3) == want or line.strip() == "steps" else "broken", flush=True)
"""


def ctrl_c_arrives():
    """A real SIGINT, 20 of 20 times in sample, and in what else may last."""
    child = subprocess.Popen([sys.executable, "-c", ENDLESS, " ".join(TINY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    late = threading.Timer(120, child.kill)  # where it does not arrive, nothing would end
    late.start()
    answers = []
    for kind in ["sample"] * 20 + ["stream"] * 20 + ["prompt", "evaluate"] * 3 + ["steps"] * 3:
        child.stdin.write(kind + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "go\n", kind
        child.send_signal(signal.SIGINT)
        answers.append((kind, child.stdout.readline()))
    child.stdin.close()
    late.cancel()
    assert child.wait() == 0 and all(a == "caught\n" for _, a in answers), answers


def three_threads_take_turns():
    """One model and its tokenizer on three threads at once: every answer is the one that a thread alone gets."""
    net, failures = tenon.open("gpt", *TINY), []
    shapes = [(1, 8), (2, 16), (2, 32)]

    def answers(i):
        B, T = shapes[i]
        a, b = ROW[:B * T].reshape(B, T), ROW[1:B * T + 1].reshape(B, T)
        return (net.loss(a, b), net.forward(a).sum(), net.sample("the", max_tokens=4 + i, seed=i, n=1 + i), net.evaluate(ROW, length=8 + i),
                net.tokenizer.decode(net.tokenizer.encode("fox" * (i + 1))), float(net.parameters["embed"].sum()), net.settings["dim"])

    alone = [answers(i) for i in range(3)]
    begin = threading.Barrier(3)

    def work(i):
        begin.wait()
        for _ in range(40):
            if answers(i) != alone[i]:
                failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    whole = tenon.open("gpt", *TINY)
    expected = sum(whole.gradients(TOKENS, LABELS) for _ in range(3)), whole.grads["embed"].copy()
    sums = []
    threads = [threading.Thread(target=lambda: sums.append(net.gradients(TOKENS, LABELS))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(sums) == expected[0] and np.array_equal(net.grads["embed"], expected[1])


def a_model_of_parts():
    """A shared object with data, steps and metrics of its own (tests/families/messages): its run, opened and measured by its names."""
    command, root = os.environ["TENON"], os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            return subprocess.run(words, check=True, capture_output=True, text=True, cwd=folder).stdout
        run(command, "new", "model", "messages")
        shutil.copy(f"{root}/tests/families/messages/messages.c", f"{folder}/messages")
        run("make", "-s", "-C", "messages")
        model = f"{folder}/messages/messages.so"
        run(command, "train", model, f"run={folder}/run", "threads=1", "train.steps=80", "train.eval_every=80", "train.test=off")
        said = [json.loads(l) for l in run(command, "eval", "run", f"model={model}", "--json").splitlines()]
        want = {r["name"]: r["value"] for r in said if not r["name"].startswith("samples")}
        net = tenon.open(f"{folder}/run", f"model={model}")
        assert list(net.metrics) == ["loss", "answer", "recall@1", "recall@5", "exact"] and net.metrics == want  # as the run recorded them
        got = net.evaluate()
        assert got == want and got["exact"].higher and not got["loss"].higher and got["answer"].unit == "nats"
        assert 0 < got["exact"] < 1 and got["recall@1"] > 0.8 and net.evaluate(split="test")["exact"] > 0
        assert all(n.startswith(("sender.", "receiver.")) for n in net.frozen) and len(net.frozen) == 28 and len(net.parameters) == 9
        assert net.frozen["sender.embed"].shape == (21, 32) and net.frozen["receiver.embed"].shape == (20, 64)
        kept, net.parameters["ear"] = net.parameters["ear"].copy(), 0
        deaf = net.evaluate()
        assert deaf["exact"] == 0 and deaf["recall@1"] == got["recall@1"]  # it hears nothing, and compares as before
        net.parameters["ear"] = kept
        net.save(f"{folder}/w.safetensors")
        other = tenon.open(model, "seed=0")
        other.load(f"{folder}/w.safetensors")
        assert other.evaluate() == want
        raises(2, "has no input tokens", net.loss, TOKENS, LABELS)
        # Trained on arrays of one's own: whole numbers below their bounds, anything else as it comes.
        rng, before = np.random.default_rng(3), {n: x.copy() for n, x in net.frozen.items()}
        batch = {n: rng.integers(0, i.below or 1, [8 if d == "B" else d for d in i.dims]).astype(np.int32) if i.dtype == np.int32
                 else rng.standard_normal([8 if d == "B" else d for d in i.dims]).astype(np.float32)
                 for n, i in other.inputs.items() if not i.optional}
        losses = []
        for _ in range(30):
            losses.append(other.gradients(**batch))
            other.step()
        assert losses[-1] < losses[0] and all((x == before[n]).all() for n, x in other.frozen.items())
        assert other.run("generate", **batch)


def main():
    passed = failed = 0
    for test in (views_share_memory, loss_is_that_of_the_logits, command_says_the_same, gradient_steps_lower_the_loss, files_keep_it,
                 sampling_repeats, tokenizers_turn_around, mistakes_raise, arrays_by_name, steps_by_name, tokens_without_labels,
                 chunks_have_no_other_steps, example_learns, files_run_no_code,
                 ctrl_c_arrives, three_threads_take_turns, a_model_of_parts, *files.TESTS, *gradients.TESTS, *runs.TESTS, *surfaces.TESTS):
        try:
            test()
            passed += 1
        except Exception as error:
            failed += 1
            print(f"FAILED {test.__name__}: {type(error).__name__}: {error} (line {error.__traceback__.tb_next.tb_lineno})")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
