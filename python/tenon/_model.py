"""A model that is open: its tensors without copies, losses, gradients, steps, sampling; and tokenizers."""
from __future__ import annotations

import collections.abc
import ctypes as C
import functools
import os
import threading
import warnings
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, TypeVar, Union, cast, overload

import numpy as np
import numpy.typing as npt

from ._library import LongCall, TenonError, call, error, lib, texts
from ._settings import words_of

Array = npt.NDArray[Any]
Path = Union[str, "os.PathLike[str]"]
_Call = TypeVar("_Call", bound=Callable[..., Any])

_TYPES: dict[int, type[Any]] = {0: np.float32, 1: np.uint16, 2: np.float16, 3: np.float64, 4: np.int32, 5: np.int64, 6: np.uint8}  # bf16: its bits
_TYPES_BACK: dict[type[Any], int] = {np.float32: 0, np.int32: 4}  # of inputs


class _Tensor(C.Structure):
    _fields_ = [("size", C.c_size_t), ("name", C.c_char_p), ("dtype", C.c_int), ("trainable", C.c_int), ("rank", C.c_int),
                ("shape", C.c_int64 * 6), ("data", C.c_void_p), ("gradient", C.c_void_p)]


class _StepReport(C.Structure):
    _fields_ = [("size", C.c_size_t), ("step", C.c_int64), ("lr", C.c_double), ("grad_norm", C.c_double), ("applied", C.c_int)]


class _Input(C.Structure):
    _fields_ = [("size", C.c_size_t), ("name", C.c_char_p), ("dtype", C.c_int), ("rank", C.c_int), ("shape", C.c_int64 * 4), ("batch", C.c_int),
                ("time", C.c_int), ("below", C.c_int64), ("pad", C.c_double), ("optional", C.c_int), ("filled", C.c_int)]


class _Metric(C.Structure):
    _fields_ = [("size", C.c_size_t), ("name", C.c_char_p), ("unit", C.c_char_p), ("higher", C.c_int), ("value", C.c_double)]


_TEXT = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int64, C.POINTER(C.c_char), C.c_size_t)
_DONE = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int64, C.POINTER(C.c_int32), C.c_size_t, C.c_char_p)


class _SampleOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("prompt", C.c_char_p), ("prompt_bytes", C.c_size_t), ("tokens", C.POINTER(C.c_int32)),
                ("n_tokens", C.c_size_t), ("temperature", C.c_double), ("top_k", C.c_int64), ("top_p", C.c_double),
                ("seed", C.c_uint64), ("max_tokens", C.c_int64), ("samples", C.c_int64), ("stop", C.POINTER(C.c_char_p)),
                ("n_stop", C.c_size_t), ("context", C.c_int64), ("text", _TEXT), ("done", _DONE), ("user", C.c_void_p)]


class _Handle:
    """A pointer of the library with its end: closed when nothing refers to it any more, views of its tensors among that. The library
    takes one thread at a time: whoever uses the pointer holds the lock, over all calls that belong together."""

    def __init__(self, pointer: C.c_void_p, close: Callable[[C.c_void_p], None]) -> None:
        self.pointer, self._close, self.lock = pointer, close, threading.RLock()

    def __del__(self) -> None:
        self._close(self.pointer)


def _locked(method: _Call) -> _Call:
    @functools.wraps(method)
    def locked(self: Any, *arguments: Any, **named: Any) -> Any:
        with self._handle.lock:
            return method(self, *arguments, **named)
    return cast(_Call, locked)


def _view(handle: _Handle | None, address: int, shape: tuple[int, ...], dtype: type[Any]) -> Array:
    memory: Any = (C.c_char * (int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)).from_address(address)
    memory.owner = handle  # the array holds `memory`, and so the model lives as long as the array
    return np.frombuffer(memory, dtype=dtype).reshape(shape)


class _Tensors(collections.abc.Mapping[str, Array]):
    """Arrays by name: views of the model's memory, or copies of it where it is a GPU's. Assigning copies into the model."""

    def __init__(self, handle: _Handle, part: int) -> None:
        self._handle, self._part = handle, part
        self._about: dict[str, tuple[tuple[int, ...], type[Any]]] = {}

    @_locked
    def __getitem__(self, name: str) -> Array:
        shape, dtype = self._about[name]
        t = _Tensor(size=C.sizeof(_Tensor))
        call("tenon_tensor_find", self._handle.pointer, name.encode(), C.byref(t))  # not before: a file's weights are held as they are
        address = t.gradient if self._part else t.data
        if address:
            return _view(self._handle, address, shape, dtype)
        out: Array = np.empty(shape, dtype)
        call("tenon_read", self._handle.pointer, name.encode(), self._part, out.ctypes.data, out.nbytes)
        out.flags.writeable = False  # writing to a copy would be lost silently
        return out

    @_locked
    def __setitem__(self, name: str, value: npt.ArrayLike) -> None:
        shape, dtype = self._about[name]
        a = np.ascontiguousarray(np.broadcast_to(value, shape), dtype=dtype)
        call("tenon_write", self._handle.pointer, name.encode(), self._part, a.ctypes.data, a.nbytes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._about)

    def __len__(self) -> int:
        return len(self._about)

    def __repr__(self) -> str:
        shown = [f"{name} ({','.join(map(str, shape))})" for name, (shape, _) in list(self._about.items())[:4]]
        return f"{len(self)} tensors" + (": " + ", ".join(shown) + (", ..." if len(self) > 4 else "") if shown else "")


def _ids(x: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], Any]:
    """Token ids as a contiguous array of int32."""
    a = np.ascontiguousarray(x, dtype=np.int32)
    if not np.array_equal(a, np.asarray(x)):
        raise error(2, "token ids must be integers that fit 32 bits")
    return a, a.ctypes.data_as(C.POINTER(C.c_int32))


def _given(inputs: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {**{name: x for name, x in more.items() if x is not None}, **inputs}


class Step:
    """What a step did: step, lr, grad_norm, applied."""

    step: int
    lr: float
    grad_norm: float
    applied: bool

    def __init__(self, r: _StepReport) -> None:
        self.step, self.lr, self.grad_norm, self.applied = r.step, r.lr, r.grad_norm, bool(r.applied)

    def __repr__(self) -> str:
        return f"Step {self.step}: lr {self.lr:.3g}, |g| {self.grad_norm:.3g}" + ("" if self.applied else ", skipped (not finite)")


class Input:
    """What a model reads: name, dtype, dims ("B" and "T" stand for the batch and the length), below (numbers are 0 to below-1, or pad; 0: any),
    pad, optional."""

    name: str
    below: int
    pad: float
    optional: bool
    dims: tuple[str | int, ...]

    def __init__(self, i: _Input) -> None:
        self.name, self.dtype, self.below, self.pad, self.optional = i.name.decode(), np.dtype(_TYPES[i.dtype]), i.below, i.pad, bool(i.optional)
        self.dims = tuple("B" if i.batch and k == 0 else "T" if i.time and k == 1 else i.shape[k] for k in range(i.rank))

    def __repr__(self) -> str:
        return f"{self.name} {self.dtype} ({','.join(map(str, self.dims))})"

    def _array(self, x: npt.ArrayLike, sizes: dict[str, int]) -> Array:
        """As the library takes it; what B and T are goes into sizes, and must agree with what is there."""
        try:
            a = np.asarray(x)
            a = a[None] if a.ndim == 1 and self.dims == ("B", "T") else a  # one row
            b = np.ascontiguousarray(a, self.dtype)
        except (TypeError, ValueError) as why:
            raise error(2, f"input {self.name} is {self.dtype}: {why}") from None
        same = a.ndim == len(self.dims) and all(
            n == (sizes.setdefault(d, n) if isinstance(d, str) else d) for d, n in zip(self.dims, a.shape))
        if not same:
            known = "".join(f", where {d} is {n}" for d, n in sizes.items() if a.ndim == len(self.dims) and d in self.dims)
            raise error(2, f"input {self.name} has the shape {a.shape}, and the model takes ({','.join(map(str, self.dims))}){known}")
        if self.dtype == np.int32 and not np.array_equal(a, b):
            raise error(2, f"input {self.name} is int32: its numbers must be integers that fit 32 bits")
        return b


class Metric(float):
    """The value of a metric, with its `unit` and whether `higher` is better."""

    unit: str
    higher: bool

    def __new__(cls, m: _Metric) -> Metric:
        self = super().__new__(cls, m.value)
        self.unit, self.higher = m.unit.decode(), bool(m.higher)
        return self

    def __repr__(self) -> str:
        return f"{float(self):.6g}" + (f" {self.unit}" if self.unit else "")


class Sample(str):
    """A text with the tokens it was decoded from (`tokens`) and why it ended (`end`)."""

    tokens: npt.NDArray[np.int32]
    end: str


class Tokenizer:
    """Text to token ids and back: a file, a folder, or "bytes"."""

    def __init__(self, spec: Path = "bytes", _pointer: C.c_void_p | None = None) -> None:
        if _pointer is None:
            _pointer = C.c_void_p()
            call("tenon_tokenizer_open", str(spec).encode(), C.byref(_pointer))
        self._handle = _Handle(_pointer, lib.tenon_tokenizer_close)
        self.vocab: int = lib.tenon_tokenizer_vocab(_pointer)
        self.start: int
        self.end: int
        self.start, self.end = lib.tenon_tokenizer_start(_pointer), lib.tenon_tokenizer_end(_pointer)

    def __repr__(self) -> str:
        return f"Tokenizer of {self.vocab} tokens"

    @_locked
    def encode(self, text: str | bytes, special: bool = False) -> npt.NDArray[np.int32]:
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
        n = C.c_size_t()
        call("tenon_encode", self._handle.pointer, raw, len(raw), special, None, 0, C.byref(n))
        ids = np.empty(n.value, np.int32)
        if n.value:
            call("tenon_encode", self._handle.pointer, raw, len(raw), special, _ids(ids)[1], n.value, C.byref(n))
        return ids

    @_locked
    def decode(self, ids: npt.ArrayLike) -> str:
        a, p = _ids(ids)
        n = C.c_size_t()
        call("tenon_decode", self._handle.pointer, p, a.size, None, 0, C.byref(n))
        text = C.create_string_buffer(n.value + 1)
        call("tenon_decode", self._handle.pointer, p, a.size, text, n.value, C.byref(n))
        return text.raw[:n.value].decode("utf-8", "replace")


def _warn(pointer: C.c_void_p) -> None:
    """What should be known of what was read, as a warning of the caller's caller: a damaged best checkpoint, and what stands for it."""
    note = lib.tenon_note(pointer).decode("utf-8", "replace")
    if note:
        warnings.warn(note, stacklevel=3)


class Model:
    """A model that is open. `parameters`, `grads` and `frozen` are numpy arrays by name; `settings` a dict of texts."""

    def __init__(self, pointer: C.c_void_p) -> None:
        if not isinstance(pointer, C.c_void_p):
            raise TypeError("a Model comes from tenon.open or tenon.train")
        self._handle = _Handle(pointer, lib.tenon_close)
        self._tokenizer: Tokenizer | None = None
        self.parameters, self.grads, self.frozen = (_Tensors(self._handle, part) for part in (0, 1, 0))
        for i in range(lib.tenon_tensors(pointer)):
            t = _Tensor(size=C.sizeof(_Tensor))
            call("tenon_tensor_about", pointer, i, C.byref(t))
            name, shape = t.name.decode(), tuple(t.shape[:t.rank])
            (self.parameters if t.trainable else self.frozen)._about[name] = (shape, _TYPES[t.dtype])
            if t.trainable:
                self.grads._about[name] = (shape, np.float32)

    def __repr__(self) -> str:
        n = sum(int(np.prod(shape, dtype=np.int64)) for shape, _ in self.parameters._about.values())
        return f"Model {self.settings['model']}: {n:,} parameters in {len(self.parameters)} tensors, on {self.device}"

    @property
    @_locked
    def settings(self) -> dict[str, str]:
        p = self._handle.pointer
        keys = [lib.tenon_setting_key(p, i) for i in range(lib.tenon_settings(p))]
        return {k.decode(): lib.tenon_setting(p, k).decode() for k in keys}

    @property
    def device(self) -> str:
        """Where it computes: "cpu" or "cuda"."""
        return str(lib.tenon_device(self._handle.pointer).decode())

    @property
    def vocab(self) -> int:
        return int(lib.tenon_vocab(self._handle.pointer))

    def _own_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            p = C.c_void_p()
            call("tenon_tokenizer_of", self._handle.pointer, C.byref(p))
            self._tokenizer = Tokenizer(_pointer=p)
        return self._tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        with self._handle.lock:
            return self._own_tokenizer()

    @tokenizer.setter
    def tokenizer(self, t: Tokenizer | Path) -> None:
        self._tokenizer = t if isinstance(t, Tokenizer) else Tokenizer(t)

    @_locked
    def set(self, key: str, value: object) -> None:
        """A setting that steps read anew: train.lr, train.clip, ...; or a size of the inputs that is the data's: labels."""
        call("tenon_set", self._handle.pointer, key.encode(), str(value).encode())

    def load(self, path: Path) -> None:
        with self._handle.lock:  # not by @_locked, which would stand between _warn and the caller
            call("tenon_load", self._handle.pointer, str(path).encode())
            _warn(self._handle.pointer)

    @_locked
    def save(self, path: Path) -> None:
        call("tenon_save", self._handle.pointer, str(path).encode())

    @property
    @_locked
    def inputs(self) -> dict[str, Input]:
        """What the model reads, by name: a dict of Input."""
        out = {}
        for i in range(lib.tenon_inputs(self._handle.pointer)):
            raw = _Input(size=C.sizeof(_Input))
            call("tenon_input_at", self._handle.pointer, i, C.byref(raw))
            out[raw.name.decode()] = Input(raw)
        return out

    def _output(self, name: str, *where: object) -> tuple[str, Array | None]:
        t = _Tensor(size=C.sizeof(_Tensor))
        call(name, self._handle.pointer, *where, C.byref(t))
        return t.name.decode(), _view(None, t.data, tuple(t.shape[:t.rank]), _TYPES[t.dtype]).copy() if t.data else None

    def _fill(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """The batch, by name; what is not given is not filled. Plans are made once for a shape."""
        p, rows = self._handle.pointer, self.inputs
        sizes: dict[str, int] = {}
        for name in arrays:
            if name not in rows:
                call("tenon_fill", p, name.encode(), 0, None, 0)  # says which there are
        ready = {name: row._array(arrays[name], sizes) for name, row in rows.items() if name in arrays}
        if not ready:
            raise error(2, f"no input is given: the model has {', '.join(rows)}")
        call("tenon_shape", p, sizes.get("B", lib.tenon_batch(p)), sizes.get("T", lib.tenon_length(p)))
        lib.tenon_clear(p)
        for name, a in ready.items():
            call("tenon_fill", p, name.encode(), _TYPES_BACK[a.dtype.type], a.ctypes.data, a.size)

    @_locked
    def _run(self, step: str, arrays: Mapping[str, npt.ArrayLike], outputs: Sequence[str] = ()) -> float:
        self._fill(arrays)
        loss = C.c_double()
        call("tenon_run", self._handle.pointer, step.encode(), texts(list(outputs)), len(outputs), C.byref(loss))
        return loss.value

    @_locked
    def run(self, step: str, /, outputs: str | Iterable[str] | None = None, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Runs a step of the model by its name ("eval", "generate", "trace"), without gradients: its outputs, as a dict of arrays.
        outputs: a name, or names, of those that are wanted; a step may make some only then. Inputs that are not given hold their padding."""
        if step == "train":
            raise error(2, "step train adds gradients and has no outputs: call gradients()")
        names = [outputs] if isinstance(outputs, str) else list(outputs or ())
        self._run(step, inputs, names)
        if names:
            return {name: x for name, x in (self._output("tenon_output_find", name.encode()) for name in names) if x is not None}
        every = dict(self._output("tenon_output_at", i) for i in range(lib.tenon_outputs(self._handle.pointer)))
        return {name: x for name, x in every.items() if x is not None}  # chunks of a sequence do not keep all

    @overload
    def forward(self, tokens: npt.ArrayLike | None = None, outputs: str = "logits", **inputs: npt.ArrayLike) -> Array: ...

    @overload
    def forward(self, tokens: npt.ArrayLike | None = None, *, outputs: list[str] | tuple[str, ...], **inputs: npt.ArrayLike) -> dict[str, Array]: ...

    @_locked
    def forward(self, tokens: npt.ArrayLike | None = None, outputs: str | list[str] | tuple[str, ...] = "logits", **inputs: npt.ArrayLike) -> Any:
        """Logits (B,T,vocab) of tokens (B,T), or of one row; or, of inputs by name, an output, or a list of them as a dict. Inputs that are not
        given hold their padding."""
        got = self.run("eval", outputs, **_given(inputs, tokens=tokens))
        return got[outputs] if isinstance(outputs, str) else got

    def loss(self, tokens: npt.ArrayLike | None = None, labels: npt.ArrayLike | None = None, **inputs: npt.ArrayLike) -> float:
        """Mean loss, without gradients: of tokens and labels (B,T), in nats; or of the model's inputs by name."""
        return self._run("eval", _given(inputs, tokens=tokens, labels=labels))

    def gradients(self, tokens: npt.ArrayLike | None = None, labels: npt.ArrayLike | None = None, **inputs: npt.ArrayLike) -> float:
        """The same; adds to `grads`."""
        return self._run("train", _given(inputs, tokens=tokens, labels=labels))

    @_locked
    def zero_gradients(self) -> None:
        lib.tenon_zero_gradients(self._handle.pointer)

    @_locked
    def step(self) -> Step:
        """The optimizer's step (train.* settings) with the mean of the gradients since the last; they then are zero."""
        r = _StepReport(size=C.sizeof(_StepReport))
        call("tenon_step", self._handle.pointer, C.byref(r))
        return Step(r)

    @property
    @_locked
    def metrics(self) -> dict[str, Metric]:
        """Held-out metrics by name: of the last evaluate(), before it as the run's checkpoint has them; a dict of Metric, which are floats."""
        out = {}
        for i in range(lib.tenon_metrics(self._handle.pointer)):
            m = _Metric(size=C.sizeof(_Metric))
            call("tenon_metric_at", self._handle.pointer, i, C.byref(m))
            out[m.name.decode()] = Metric(m)
        return out

    @overload
    def evaluate(self, tokens: None = None, length: int | None = None, split: str = "valid") -> dict[str, Metric]: ...

    @overload
    def evaluate(self, tokens: npt.ArrayLike, length: int | None = None, split: str = "valid") -> float: ...

    @_locked
    def evaluate(self, tokens: npt.ArrayLike | None = None, length: int | None = None, split: str = "valid") -> Any:
        """Without tokens: the metrics by name on a split of the data or task that the settings name, as `tenon eval` measures them.
        With a row of tokens: its mean nats per token, in windows of `length` (train.context)."""
        if tokens is None:
            self._long_call().run("tenon_measure", self._handle.pointer, split.encode())
            return self.metrics
        a, p = _ids(np.ravel(tokens))
        call("tenon_shape", self._handle.pointer, 1, length or int(self.settings["train.context"]))
        nats = C.c_double()
        self._long_call().run("tenon_evaluate", self._handle.pointer, p, a.size, C.byref(nats), None)
        return nats.value

    def _long_call(self) -> LongCall:
        def interrupt() -> None:
            lib.tenon_interrupt(self._handle.pointer)
        return LongCall(interrupt)

    @overload
    def sample(self, prompt: str | bytes | npt.ArrayLike = "", n: None = None, stop: str | Iterable[str] = (),
               stream: Callable[[str], object] | None = None, **options: float) -> Sample: ...

    @overload
    def sample(self, prompt: str | bytes | npt.ArrayLike = "", *, n: int, stop: str | Iterable[str] = (),
               stream: Callable[[str], object] | None = None, **options: float) -> list[Sample]: ...

    @_locked
    def sample(self, prompt: str | bytes | npt.ArrayLike = "", n: int | None = None, stop: str | Iterable[str] = (),
               stream: Callable[[str], object] | None = None, **options: float) -> Any:
        """Text after a prompt (or after token ids, given as an array), n texts as a list. options: temperature, top_k,
        top_p, seed, max_tokens, context. stream(text) is called with each piece as it is drawn; True ends it."""
        o, running = _SampleOptions(), self._long_call()
        pieces: dict[int, str] = {}
        ends: dict[int, tuple[npt.NDArray[np.int32], str]] = {}
        lib.tenon_sample_init(C.byref(o))
        known = {"temperature", "top_k", "top_p", "seed", "max_tokens", "context"}
        for key, value in options.items():
            if key not in known:
                raise TypeError(f"sample() has no option {key}: it takes {', '.join(sorted(known))}")
            setattr(o, key, value)
        if isinstance(prompt, (str, bytes)):
            raw = prompt.encode() if isinstance(prompt, str) else prompt
            o.prompt, o.prompt_bytes = raw, len(raw)
        else:
            ids, o.tokens = _ids(np.ravel(prompt))
            o.n_tokens = ids.size
        stops = [stop] if isinstance(stop, str) else list(stop)
        o.stop, o.n_stop = texts(stops), len(stops)
        o.samples = 1 if n is None else n

        def text(_: Any, sample: int, data: Any, size: int) -> bool:
            piece = data[:size].decode()
            pieces[sample] = pieces.get(sample, "") + piece
            return bool(stream and running.ask(stream, piece))

        def done(_: Any, sample: int, ids: Any, count: int, why: bytes) -> int:
            ends[sample] = (np.array(ids[:count], np.int32), why.decode())
            return 0

        o.text, o.done = _TEXT(text), _DONE(done)
        try:
            running.run("tenon_sample", self._handle.pointer, self.tokenizer._handle.pointer, C.byref(o))
        except TenonError as why:
            if why.code != 130:  # stream asked for the end
                raise
        out = []
        for i in range(o.samples):
            s = Sample(pieces.get(i, ""))
            s.tokens, s.end = ends.get(i, (np.empty(0, np.int32), "stream"))
            out.append(s)
        return out[0] if n is None else out


def open(target: Path, *overrides: str, **settings: object) -> Model:
    """A run, a checkpoint, a file of weights, a preset or a model. Settings as "key=value" texts or as keywords (see tenon.train):
    device="cuda" for a GPU, "auto" for one where it is there; without it the CPU, whatever a run was trained on."""
    words = words_of(target, overrides, settings)
    p = C.c_void_p()
    call("tenon_open", os.fspath(target).encode(), texts(words), len(words), C.byref(p))
    net = Model(p)
    _warn(p)
    return net
