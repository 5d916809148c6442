"""Tests of tenon.train and Run; check.py runs them."""
import contextlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import xml.dom.minidom

import numpy as np

import tenon

SMALL = dict(dim=16, layers=1, heads=2, context=16, batch=2, eval_every=2, eval_batches=2, threads=1)


@contextlib.contextmanager
def folder():
    """A folder of its own with book.txt, which is the current one."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as path:
        os.chdir(path)
        try:
            with open("book.txt", "w") as f:
                f.writelines(f"the number {i} comes after {i - 1}\n" for i in range(1500))
            yield path
        finally:
            os.chdir(before)


def small(run, steps=6, **more):
    return tenon.train("gpt_tiny", data="book.txt", run=run, steps=steps, **{**SMALL, "progress": False, **more})


def raised(kind, part, f, *a, **k):
    try:
        f(*a, **k)
    except kind as error:
        assert part in str(error) and isinstance(error, tenon.TenonError) and not str(error).startswith("error"), str(error)
        return error
    raise AssertionError(f"{kind.__name__} was not raised: {part}")


def ten_lines():
    """examples/python/train.py as a user runs it."""
    example = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python", "train.py")
    with folder():
        r = subprocess.run([sys.executable, example, "book.txt", "4"], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        assert "Run runs/ten-1: ten_tiny, finished, step 4 of 4, best held out: loss " in r.stdout and "\nThe " not in r.stdout, r.stdout
        assert "run runs/ten-1: 4 steps" in r.stderr and "step 4/4  loss " in r.stderr, r.stderr
        assert xml.dom.minidom.parse("run.svg").documentElement.tagName == "svg"


def as_the_command_does():
    """The same settings give the same run: the command finds it finished, with the same numbers."""
    with folder():
        run = small("a", steps=6)
        words = ["gpt_tiny", "data=book.txt", "run=b", "train.steps=6"] + [
            f"{'train.' if k in ('context', 'batch', 'eval_every', 'eval_batches') else ''}{k}={v}" for k, v in SMALL.items()]
        out = subprocess.run([os.environ["TENON"], "train", *words, "--json"], check=True, capture_output=True, text=True).stdout
        said = {r["name"]: r["value"] for r in map(json.loads, out.splitlines())}
        assert said["best_step"] == run.best["step"] and said["best_loss"] == run.best["heldout"], (said, run.best)
        other = tenon.Run("b")
        for key in "loss", "heldout", "lr", "grad_norm":
            assert np.array_equal(other.metrics[key], run.metrics[key], equal_nan=True), key
        again = subprocess.run([os.environ["TENON"], "train", "a", "run=a"], check=True, capture_output=True, text=True).stderr
        assert "finished after 6 steps" in again, again


def a_run_tells():
    with folder():
        run = small("runs/a-2")
        small("runs/a-10", steps=2)
        assert run.state == "finished" and run.steps == 6 and run.settings["train.steps"] == "6" and run.settings["data"] == "book.txt"
        assert run.path.name == "a-2" and run.best["step"] in (2, 4, 6) and list(run.best)[:2] == ["step", "heldout"]
        m = run.metrics
        assert list(m["step"]) == sorted(m["step"]) and np.isfinite(m["heldout"]).sum() == 3 and math.isclose(np.nanmin(m["heldout"]), run.best["heldout"])
        assert repr(run).startswith("Run runs/a-2: gpt_tiny, finished, step 6 of 6, best held out: loss ")
        assert [r.path.name for r in tenon.runs()] == ["a-10", "a-2"] and repr(tenon.runs()).count("\n") == 1 and tenon.runs("nowhere") == []
        assert math.isclose(run.evaluate()["loss"], run.model().evaluate()["loss"]) and "nats" in repr(run.evaluate()["loss"])
        assert run.sample("the", max_tokens=5, seed=1) == run.model().sample("the", max_tokens=5, seed=1) and len(run.sample("a", n=2, max_tokens=2)) == 2
        for said, part in ((run.model(), "Model gpt: "), (run.model().parameters, "tensors: embed (256,16)"), (tenon.Tokenizer(), "256 tokens")):
            assert part in repr(said), repr(said)


def plots_draw():
    with folder():
        run, other = small("a"), small("b", seed=1)
        plot = run.plot()
        assert xml.dom.minidom.parseString(plot).documentElement.tagName == "svg" and plot._repr_svg_() == str(plot)
        assert "held-out loss" in plot and "bits per byte" in repr(plot) and "<svg" not in repr(plot) and max(map(len, repr(plot).splitlines())) <= 80
        assert "<svg" in run._repr_html_() and "Run a: " in run._repr_html_()
        both = tenon.plot(run, other)
        assert ">a<" in both and ">b<" in both and both.count("<path") >= 4, both
        once = small("c", steps=20, eval_every=0, **{"log.every": 2})
        assert "training loss" in once.plot() and "training loss" in once._repr_html_()
        assert "lr" in run.plot("lr", log=True)
        raised(ValueError, "a has no metric lrr: it has step", run.plot, "lrr")
        curve = tenon.Plot([tenon.Series("mine", [1, 2, 3], [3, np.nan, 1])], title="a & b")
        assert "a &amp; b" in curve and "mine" in curve.text and "ring: " not in curve
        marked = tenon.Plot([tenon.Series("mine", [1, 2, 3], [3, 1, 2], ring=2)], ring="best step")
        assert "ring: best step" in marked and marked.count('fill="none"') == 1 and "best step" in marked.text
        raised(ValueError, "ring[0] is 4: the series has 3 points", lambda: tenon.Plot([tenon.Series("mine", [1, 2, 3], [3, 1, 2], ring=4)]))
        shutil.copytree("a", "over")
        with open("over/metrics.jsonl", "w") as f:
            f.writelines(json.dumps({"step": s, "loss": 1.0, "heldout": 2 + abs(s - 3)}) + "\n" for s in range(1, 9))
        drawn = tenon.Run("over").plot()
        assert "<title>over, best step: 2 at 3</title>" in drawn, drawn


def stopped_and_resumed():
    """By a function, by an exception and by a real Ctrl-C; each time the run goes on to the numbers of one that was not stopped."""
    with folder():
        whole, seen = small("whole"), []
        states = set()
        cut = small("cut", progress=lambda p: seen.append(p) or states.add(tenon.Run("cut").state) or p.step == 3)
        assert states == {"running"}, states
        begun = small("begun", progress=lambda p: True) # before its first step
        assert begun.resume(progress=False).best == whole.best
        assert [p.step for p in seen] == [0, 1, 2, 3] and cut.state == "unfinished" and cut.steps == 3, seen
        assert seen[2].evaluated and seen[2].run == "cut" and math.isnan(seen[1].heldout) and "step 2/6  loss " in repr(seen[2])

        def fails(p):
            if p.step == 4:
                raise RuntimeError("of the caller")
        try:
            cut.resume(progress=fails)
            raise AssertionError("nothing was raised")
        except RuntimeError as error:
            assert str(error) == "of the caller" and cut.steps == 4
        assert cut.resume(progress=False) is cut and cut.state == "finished" and cut.best == whole.best
        for key in "loss", "heldout":
            assert np.array_equal(cut.metrics[key], whole.metrics[key], equal_nan=True)
        started = threading.Event()

        def send():
            started.wait(60)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=send, daemon=True).start()
        try:
            small("long", steps=1000000, schedule="constant", progress=lambda p: started.set() if p.step >= 2 else None)
            raise AssertionError("nothing was raised")
        except KeyboardInterrupt as error:
            assert "tenon.Run('long').resume() continues it" in str(error), error
        run = tenon.Run("long")
        at = run.steps
        assert run.state == "unfinished" and 2 <= at < 1000000
        assert run.resume(progress=lambda p: p.step == at + 1).steps == at + 1


def shown_on_stderr():
    with folder():
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            small("a", progress=True)
            small("a", progress=True)
        lines = out.getvalue().splitlines()
        assert lines[0] == "run a: 6 steps" and lines[1].startswith("step 2/6  loss ") and len(lines) == 5, lines
        assert lines[4] == "run a: 6 steps, finished already (fresh=True starts over)" and max(map(len, lines)) <= 80


def names_of_settings():
    with folder():
        run = small("a", steps=2, **{"train.warmup": 3}, ckpt_every=1, lr=None, train_beta2=0.5)
        s = run.settings
        assert (s["train.warmup"], s["ckpt.every"], s["train.lr"], s["train.beta2"], s["train.context"]) == ("3", "1", "0.001", "0.5", "16")
        assert tenon.settings("gpt_tiny")["train.schedule"].choices == "cosine|wsd|constant"
        assert tenon.train("xor_tep", "task.size=64", task="xor", epochs=1, batch=16, run="x", progress=False).settings["task.name"] == "xor"
        raised(ValueError, "unknown setting stepz: did you mean steps?", tenon.train, "gpt_tiny", data="book.txt", stepz=3)
        raised(ValueError, "unknown setting ckpt_evry: did you mean ckpt_every?", tenon.train, "gpt_tiny", data="book.txt", ckpt_evry=3)
        raised(ValueError, "did you mean cosine?", tenon.train, "gpt_tiny", data="book.txt", schedule="cosin")
        raised(ValueError, "data is not set", tenon.train, "gpt_tiny")
        error = raised(FileNotFoundError, "nofile.txt", tenon.train, "gpt_tiny", data="nofile.txt")
        assert error.code == 3 and isinstance(error, OSError)
        raised(FileNotFoundError, "runs/none is not a run", tenon.Run, "runs/none")
        raised(FileNotFoundError, "runs/none", tenon.open, "runs/none")
        raised(ArithmeticError, "not finite", small, "bad", lr=1, clip=0, nonfinite="stop", steps=2000, optimizer="sgd", warmup=0, momentum=0.99)


TESTS = (ten_lines, as_the_command_does, a_run_tells, plots_draw, stopped_and_resumed, shown_on_stderr, names_of_settings)
