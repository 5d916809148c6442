"""Training runs: tenon.train makes or resumes one, Run is one on the disk."""
from __future__ import annotations

import ctypes as C
import dataclasses
import fcntl
import html
import json
import math
import os
import pathlib
import re
import sys
import time
import warnings
from typing import Any, Callable, Sequence, TextIO, overload

import numpy as np
import numpy.typing as npt

from ._library import LongCall, MissingFileError, TenonError, UsageError, lib, texts
from ._model import Metric, Model, Sample
from ._model import open as open_model
from ._plot import Plot, Series
from ._settings import words_of

_MARK = "# A run of tenon:"  # begins the config.yaml of a run


class _Progress(C.Structure):
    _fields_ = [("size", C.c_size_t), ("run", C.c_char_p), ("step", C.c_int64), ("steps", C.c_int64), ("best_step", C.c_int64),
                ("metric", C.c_char_p), ("higher", C.c_int), ("evaluated", C.c_int), ("loss", C.c_double), ("heldout", C.c_double),
                ("best", C.c_double), ("lr", C.c_double), ("grad_norm", C.c_double), ("rate", C.c_double), ("seconds", C.c_double)]


_PROGRESS = C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(_Progress))
_NOTE = C.CFUNCTYPE(None, C.c_void_p, C.c_char_p, C.c_int)


class _TrainOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("target", C.c_char_p), ("overrides", C.POINTER(C.c_char_p)), ("n", C.c_size_t), ("fresh", C.c_int),
                ("progress", _PROGRESS), ("note", _NOTE), ("user", C.c_void_p)]


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is. heldout and best: the metric at the last and at the best evaluation, NaN before the first; rate: tokens or samples a
    second."""
    run: str
    step: int
    steps: int
    loss: float
    heldout: float
    best: float
    best_step: int
    metric: str
    higher: bool
    evaluated: bool
    lr: float
    grad_norm: float
    rate: float
    seconds: float

    @classmethod
    def _of(cls, p: _Progress) -> Progress:
        return cls(p.run.decode("utf-8", "replace"), p.step, p.steps, p.loss, p.heldout, p.best, p.best_step, p.metric.decode(), bool(p.higher),
                   bool(p.evaluated), p.lr, p.grad_norm, p.rate, p.seconds)

    def __repr__(self) -> str:
        text = f"step {self.step}/{self.steps}  loss {self.loss:.4f}"
        if not math.isnan(self.heldout):
            text += f"  held out{'' if self.metric == 'loss' else ' ' + self.metric} {self.heldout:.4f}"
        return text


class _Screen:
    """Progress for a person: evaluations as lines, and on a terminal one line that moves."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._moves, self._shown, self._started = out, out.isatty(), 0.0, False

    def __call__(self, p: Progress) -> None:
        if not self._started:
            self._started = True
            how = "" if p.step == 0 else f", resuming at step {p.step}" if p.step < p.steps else ", finished already (fresh=True starts over)"
            self.say(f"run {p.run}: {p.steps} steps{how}")
            return
        left = p.seconds / p.step * (p.steps - p.step)
        line = f"{p!r}  {p.rate:,.0f}/s  eta {int(left) // 60}:{int(left) % 60:02d}"
        if p.evaluated:
            self.say(line)
        elif self._moves and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            self._out.write(f"\r\x1b[K{line[:79]}")
            self._out.flush()

    def say(self, line: str) -> None:
        self._out.write(("\r\x1b[K" if self._moves else "") + line + "\n")
        self._out.flush()


def train(target: str | os.PathLike[str] | None = None, *overrides: str, progress: bool | Callable[[Progress], object] = True,
          fresh: bool = False, **settings: object) -> Run:
    """Trains a preset, a model, a settings file or a model of your own as `tenon train` does, and returns the Run. A run with the same settings
    is resumed, or returned as it is where it is finished; fresh=True starts over.

        run = tenon.train("ten_tiny", data="book.txt", steps=200, lr=3e-3)

    Settings are keywords: a key of the command as it is (data, dim, seed), without "train." (steps, lr, batch), or with underscores for dots
    (ckpt_every is ckpt.every); or texts, "train.lr=3e-3". tenon.settings("ten_tiny") lists them.

    progress: True prints evaluations to stderr; a function is called after every step with a Progress, and ends the run when it returns True.
    Ctrl-C saves the run and raises KeyboardInterrupt; the same call, or Run.resume, continues it."""
    words = words_of(target, overrides, settings)
    o, running, last = _TrainOptions(), LongCall(), [""]
    shown = progress if callable(progress) else _Screen(sys.stderr) if progress else None
    lib.tenon_train_init(C.byref(o))
    o.target = None if target is None else os.fspath(target).encode()
    o.overrides, o.n, o.fresh = texts(words), len(words), fresh

    def step(_: Any, p: Any) -> int:
        last[0] = last[0] or p.contents.run.decode("utf-8", "replace")
        return int(running.left or (shown is not None and running.ask(shown, Progress._of(p.contents))))

    def note(_: Any, text: bytes, warning: int) -> None:
        line = text.decode("utf-8", "replace")
        if warning:
            warnings.warn(line, stacklevel=2)
        elif isinstance(shown, _Screen):
            running.ask(shown.say, f"note: {line}")

    o.progress, o.note = _PROGRESS(step), _NOTE(note)
    try:
        running.run("tenon_train", C.byref(o))
    except KeyboardInterrupt:
        if not last[0]:
            raise
        raise KeyboardInterrupt(f"{last[0]} is saved: tenon.Run({last[0]!r}).resume() continues it") from None
    except TenonError as why:
        if why.code != 130:  # progress asked for the end
            raise
    own = [w for w in words if w.startswith("model=")]
    if target is not None and str(target).endswith(".so"):
        own = [f"model={os.fspath(target)}"]
    return Run(last[0], *own)


def _config(path: pathlib.Path) -> dict[str, str]:
    """config.yaml of a run: sections of plain keys, each with a comment that says where it is from."""
    out: dict[str, str] = {}
    sections: list[str] = []
    for line in (path / "config.yaml").read_text(encoding="utf-8").splitlines():
        m = re.match(r'( *)([\w-]+):(?: +("(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\'|[^#]*?))? *(?:#.*)?$', line)
        if not m:
            continue
        del sections[len(m[1]) // 2:]
        sections.append(m[2])
        if m[3]:
            value = json.loads(m[3]) if m[3][0] == '"' else m[3][1:-1].replace("''", "'") if m[3][0] == "'" else m[3]
            out[".".join(sections)] = value
    return out


class Run:
    """A training run on the disk: `path`, `state`, `steps` done, `settings`, `metrics` by name, `best`. Everything is read when it is asked
    for, so that a run in training shows how far it is. A run of your own model needs model="./mine.so"."""

    def __init__(self, path: str | os.PathLike[str], *overrides: str, **settings: object) -> None:
        self.path = pathlib.Path(path)
        self._words = words_of(None, overrides, settings)
        self._model: tuple[object, Model] | None = None
        if not (self.path / "config.yaml").exists():
            raise MissingFileError(3, f"{self.path} is not a run: it has no config.yaml (tenon.train makes runs, tenon.runs() lists them)")

    @property
    def settings(self) -> dict[str, str]:
        """Its settings, as texts by key."""
        return _config(self.path)

    def _latest(self) -> dict[str, Any]:
        try:
            found = json.loads((self.path / "latest" / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def steps(self) -> int:
        """Steps done: of the last checkpoint, or the last line of its metrics."""
        lines = self.metrics.get("step")
        return max(int(self._latest().get("step", 0)), int(lines[-1]) if lines is not None and len(lines) else 0)

    @property
    def state(self) -> str:
        """"running" (in some process), "finished", "stopped early" or "unfinished": resume() continues it."""
        d = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(d, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "running"
        except OSError:  # a file system without locks
            pass
        finally:
            os.close(d)
        latest, settings = self._latest(), self.settings
        if latest and latest.get("step", 0) >= int(settings.get("train.steps", 0)):
            return "finished"
        patience = int(settings.get("train.stop_patience", 0))
        return "stopped early" if patience and latest.get("best", {}).get("stale", 0) >= patience else "unfinished"

    @property
    def metrics(self) -> dict[str, npt.NDArray[np.float64]]:
        """The columns of metrics.jsonl as arrays of one length: step, loss, heldout, lr, ...; NaN where a line has none."""
        rows = []
        try:
            with open(self.path / "metrics.jsonl", encoding="utf-8") as f:
                for line in f:
                    try:
                        rows.append(json.loads(line))
                    except ValueError:  # a line that is being written
                        break
        except FileNotFoundError:
            pass
        keys = dict.fromkeys(k for row in rows for k, v in row.items() if isinstance(v, (int, float)))
        return {k: np.array([row.get(k, math.nan) for row in rows], np.float64) for k in keys}

    @property
    def best(self) -> dict[str, float]:
        """Its best evaluation: step, heldout (the loss) and the other metrics by name; empty before the first."""
        found = self._latest().get("best", {})
        return {k: v for k, v in found.items() if k not in ("stale", "by") and isinstance(v, (int, float))} if "step" in found else {}

    def model(self, *overrides: str, **settings: object) -> Model:
        """Its best checkpoint as a Model; as tenon.open does."""
        return open_model(self.path, *self._words, *overrides, **settings)

    def _opened(self) -> Model:
        try:
            at: object = os.readlink(self.path / "best")
        except OSError:
            at = None
        if self._model is None or self._model[0] != at:
            self._model = (at, self.model())
        return self._model[1]

    @overload
    def sample(self, prompt: str = "", n: None = None, **options: Any) -> Sample: ...

    @overload
    def sample(self, prompt: str = "", *, n: int, **options: Any) -> list[Sample]: ...

    def sample(self, prompt: str = "", n: int | None = None, **options: Any) -> Any:
        """Text that continues a prompt, by its best checkpoint; the options are those of Model.sample."""
        return self._opened().sample(prompt, **options) if n is None else self._opened().sample(prompt, n=n, **options)

    def evaluate(self, split: str = "valid") -> dict[str, Metric]:
        """Its best checkpoint on the whole "valid" or "test" split: metrics by name, as `tenon eval` measures them."""
        return self._opened().evaluate(split=split)

    def resume(self, *overrides: str, progress: bool | Callable[[Progress], object] = True, **settings: object) -> Run:
        """Continues it to its train.steps, or to others: resume(steps=400). Returns itself."""
        words = [*self._words, *words_of(self.path, [*self._words, *overrides], settings)[len(self._words):]]
        train(self.path, f"run={self.path}", *words, progress=progress)
        return self

    def plot(self, *keys: str, log: bool = False) -> Plot:
        """Its held-out loss over the steps with the training loss behind it; or these columns of `metrics`. A Plot is SVG text."""
        return plot(self, keys=keys, log=log)

    def __repr__(self) -> str:
        settings, best = self.settings, self.best
        text = f"Run {self.path}: {settings.get('preset') or settings.get('model', '?')}, {self.state}, step {self.steps} of {settings.get('train.steps', '?')}"
        scores = ", ".join(f"{'loss' if k == 'heldout' else k} {best[k]:.4f}" for k in list(best)[1:4])
        return text + (f", best held out: {scores} (step {best['step']:.0f})" if scores else "")

    def _repr_html_(self) -> str:
        try:
            drawn = str(self.plot())
        except UsageError:  # nothing to draw yet
            drawn = ""
        return f"<div>{html.escape(repr(self))}</div>{drawn}"


def plot(*runs: Run, keys: Sequence[str] = (), log: bool = False) -> Plot:
    """The curves of runs in one plot, as `tenon plot` draws them: held-out loss, a ring at its best step, with the training loss pale behind it, or
    the training loss alone where there are not two evaluations yet; or columns of their metrics by name."""
    tables = [(run.path.name, run.metrics) for run in runs]
    for run, (_, columns) in zip(runs, tables):
        unknown = [k for k in keys if k not in columns]
        if unknown:
            raise UsageError(2, f"{run.path} has no metric {unknown[0]}: it has {', '.join(columns) or 'none yet'}")
    tables = [(name, columns) for name, columns in tables if len(columns.get("step", ()))]
    if not tables:
        raise UsageError(2, "nothing to draw: no run has metrics yet")
    if keys:
        many = len(runs) > 1
        lines = [_line(f"{name} {k}" if many else k, columns, columns[k]) for name, columns in tables for k in keys]
        return Plot(lines, title="" if many else str(runs[0].path), x_label="step", y_label=", ".join(keys), log=log)
    evaluated = any(np.isfinite(columns.get("heldout", np.empty(0))).sum() >= 2 for _, columns in tables)
    bits = all("bits_per_byte" in columns for _, columns in tables)
    lines, pale = [], []  # the pale ones are drawn first
    for name, columns in tables:
        heldout = columns.get("heldout", np.full(len(columns["step"]), math.nan))
        shown = columns["bits_per_byte"] if bits else heldout
        scale = np.nanmean(shown / heldout) if bits else 1.0  # a nat of the one loss is as much as a nat of the other
        line = _line(name, columns, shown if evaluated else columns["loss"] * scale)
        best = int(np.argmin(line.y)) + 1 if evaluated and np.size(line.y) else 0
        lines.append(line._replace(ring=best if best < np.size(line.y) else 0))
        if evaluated:
            pale.append(_line(name, columns, columns["loss"] * scale)._replace(behind=len(tables) + len(lines)))
    title = "held-out loss (pale: training loss)" if evaluated else "training loss"
    return Plot([*pale, *lines], title=title, x_label="step", y_label="bits per byte" if bits else "nats", log=log, ring="best step")


def _line(name: str, columns: dict[str, npt.NDArray[np.float64]], y: npt.NDArray[np.float64]) -> Series:
    there = np.isfinite(y)
    return Series(name, columns["step"][there], y[there])


class Runs(list[Run]):
    """Runs, which show one line each."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "no runs"


def runs(folder: str | os.PathLike[str] = "runs") -> Runs:
    """The runs of a folder, those that changed last first, as `tenon runs` has them."""
    def is_run(path: pathlib.Path) -> bool:
        try:
            with open(path / "config.yaml", encoding="utf-8", errors="replace") as f:
                return f.read(len(_MARK)) == _MARK
        except OSError:
            return False

    def newest(path: pathlib.Path) -> tuple[int, str]:
        files = (path / name for name in ("config.yaml", "metrics.jsonl"))
        return (-max(f.stat().st_mtime_ns for f in files if f.exists()), path.name)
    there = pathlib.Path(folder)
    return Runs(Run(p) for p in sorted(filter(is_run, there.iterdir() if there.is_dir() else []), key=newest))
