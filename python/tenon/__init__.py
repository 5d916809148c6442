"""Tenon from Python: models, tensors without copies, training steps, sampling. A thin layer over <tenon/tenon.h>.

    import tenon
    net = tenon.open("runs/ten-1")                  # or a preset: tenon.open("gpt_tiny", vocab=256)
    net.parameters["embed"][:] *= 0.5               # numpy views of the model's own memory
    loss = net.gradients(tokens, labels)            # (B,T) arrays of token ids; label -1 is not counted
    net.grads["embed"]                              # views, too
    net.step()
    print(net.sample("Once upon a time", max_tokens=50, seed=1))

A model that reads something else than tokens takes its inputs by name, as arrays: net.inputs says which.

    net = tenon.open("tep", inputs=4, classes=2)
    loss = net.gradients(features=x, labels=y)
    y = net.forward(features=x, outputs="logits")
    out = tenon.open("./mine.so").run("generate")   # a step of the model's own

With device="cuda" it computes on a GPU, where tensors are copied: net.parameters[name] is a copy that cannot be written to, and
net.parameters[name] = array writes, there as here.
"""
import collections.abc
import ctypes as C
import functools
import threading
import warnings

import numpy as np

from ._library import LongCall, TenonError, call, lib

__version__ = lib.tenon_version().decode()
__all__ = ["open", "Model", "Tokenizer", "Input", "Metric", "Sample", "Step", "TenonError", "__version__"]

_TYPES = {0: np.float32, 1: np.uint16, 2: np.float16, 3: np.float64, 4: np.int32, 5: np.int64, 6: np.uint8}  # bf16: its bits
_TYPES_BACK = {np.float32: 0, np.int32: 4}  # of inputs


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

    def __init__(self, pointer, close):
        self.pointer, self._close, self.lock = pointer, close, threading.RLock()

    def __del__(self):
        self._close(self.pointer)


def _locked(method):
    @functools.wraps(method)
    def locked(self, *arguments, **named):
        with self._handle.lock:
            return method(self, *arguments, **named)
    return locked


def _view(handle, address, shape, dtype):
    memory = (C.c_char * (int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)).from_address(address)
    memory.owner = handle  # the array holds `memory`, and so the model lives as long as the array
    return np.frombuffer(memory, dtype=dtype).reshape(shape)


class _Tensors(collections.abc.Mapping):
    """Arrays by name: views of the model's memory, or copies of it where it is a GPU's. Assigning copies into the model."""

    def __init__(self, handle, part):
        self._handle, self._part, self._place = handle, part, {}

    @_locked
    def __getitem__(self, name):
        address, shape, dtype = self._place[name]
        if address:
            return _view(self._handle, address, shape, dtype)
        out = np.empty(shape, dtype)
        call("tenon_read", self._handle.pointer, name.encode(), self._part, out.ctypes.data, out.nbytes)
        out.flags.writeable = False  # writing to a copy would be lost silently
        return out

    @_locked
    def __setitem__(self, name, value):
        _, shape, dtype = self._place[name]
        a = np.ascontiguousarray(np.broadcast_to(value, shape), dtype=dtype)
        call("tenon_write", self._handle.pointer, name.encode(), self._part, a.ctypes.data, a.nbytes)

    def __iter__(self):
        return iter(self._place)

    def __len__(self):
        return len(self._place)


def _ids(x):
    """Token ids as a contiguous array of int32."""
    a = np.ascontiguousarray(x, dtype=np.int32)
    if not np.array_equal(a, np.asarray(x)):
        raise TenonError(2, "token ids must be integers that fit 32 bits")
    return a, a.ctypes.data_as(C.POINTER(C.c_int32))


def _given(inputs, **more):
    return {**{name: x for name, x in more.items() if x is not None}, **inputs}


class Step:
    """What a step did: step, lr, grad_norm, applied."""

    def __init__(self, r):
        self.step, self.lr, self.grad_norm, self.applied = r.step, r.lr, r.grad_norm, bool(r.applied)


class Input:
    """What a model reads: name, dtype, dims ("B" and "T" stand for the batch and the length), below (numbers are 0 to below-1, or pad; 0: any),
    pad, optional."""

    def __init__(self, i):
        self.name, self.dtype, self.below, self.pad, self.optional = i.name.decode(), np.dtype(_TYPES[i.dtype]), i.below, i.pad, bool(i.optional)
        self.dims = tuple("B" if i.batch and k == 0 else "T" if i.time and k == 1 else i.shape[k] for k in range(i.rank))

    def __repr__(self):
        return f"{self.name} {self.dtype} ({','.join(map(str, self.dims))})"

    def _array(self, x, sizes):
        """As the library takes it; what B and T are goes into sizes, and must agree with what is there."""
        try:
            a = np.asarray(x)
            a = a[None] if a.ndim == 1 and self.dims == ("B", "T") else a  # one row
            b = np.ascontiguousarray(a, self.dtype)
        except (TypeError, ValueError) as error:
            raise TenonError(2, f"input {self.name} is {self.dtype}: {error}") from None
        same = a.ndim == len(self.dims) and all(
            n == (sizes.setdefault(d, n) if isinstance(d, str) else d) for d, n in zip(self.dims, a.shape))
        if not same:
            known = "".join(f", where {d} is {n}" for d, n in sizes.items() if a.ndim == len(self.dims) and d in self.dims)
            raise TenonError(2, f"input {self.name} has the shape {a.shape}, and the model takes ({','.join(map(str, self.dims))}){known}")
        if self.dtype == np.int32 and not np.array_equal(a, b):
            raise TenonError(2, f"input {self.name} is int32: its numbers must be integers that fit 32 bits")
        return b


class Metric(float):
    """The value of a metric, with its `unit` and whether `higher` is better."""

    def __new__(cls, m):
        self = super().__new__(cls, m.value)
        self.unit, self.higher = m.unit.decode(), bool(m.higher)
        return self


class Sample(str):
    """A text with the tokens it was decoded from (`tokens`) and why it ended (`end`)."""


class Tokenizer:
    """Text to token ids and back: a file, a folder, or "bytes"."""

    def __init__(self, spec="bytes", _pointer=None):
        if _pointer is None:
            _pointer = C.c_void_p()
            call("tenon_tokenizer_open", str(spec).encode(), C.byref(_pointer))
        self._handle = _Handle(_pointer, lib.tenon_tokenizer_close)
        self.vocab = lib.tenon_tokenizer_vocab(_pointer)
        self.start, self.end = lib.tenon_tokenizer_start(_pointer), lib.tenon_tokenizer_end(_pointer)

    @_locked
    def encode(self, text, special=False):
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
        n = C.c_size_t()
        call("tenon_encode", self._handle.pointer, raw, len(raw), special, None, 0, C.byref(n))
        ids = np.empty(n.value, np.int32)
        if n.value:
            call("tenon_encode", self._handle.pointer, raw, len(raw), special, _ids(ids)[1], n.value, C.byref(n))
        return ids

    @_locked
    def decode(self, ids):
        a, p = _ids(ids)
        n = C.c_size_t()
        call("tenon_decode", self._handle.pointer, p, a.size, None, 0, C.byref(n))
        text = C.create_string_buffer(n.value + 1)
        call("tenon_decode", self._handle.pointer, p, a.size, text, n.value, C.byref(n))
        return text.raw[:n.value].decode("utf-8", "replace")


def _warn(pointer):
    """What should be known of what was read, as a warning of the caller's caller: a damaged best checkpoint, and what stands for it."""
    note = lib.tenon_note(pointer).decode("utf-8", "replace")
    if note:
        warnings.warn(note, stacklevel=3)


class Model:
    """A model that is open. `parameters`, `grads` and `frozen` are numpy arrays by name; `settings` a dict of texts."""

    def __init__(self, pointer):
        self._handle, self._tokenizer = _Handle(pointer, lib.tenon_close), None
        self.parameters, self.grads, self.frozen = (_Tensors(self._handle, part) for part in (0, 1, 0))
        for i in range(lib.tenon_tensors(pointer)):
            t = _Tensor(size=C.sizeof(_Tensor))
            call("tenon_tensor_at", pointer, i, C.byref(t))
            name, shape = t.name.decode(), tuple(t.shape[:t.rank])
            (self.parameters if t.trainable else self.frozen)._place[name] = (t.data, shape, _TYPES[t.dtype])
            if t.trainable:
                self.grads._place[name] = (t.gradient, shape, np.float32)

    @property
    @_locked
    def settings(self):
        p = self._handle.pointer
        keys = [lib.tenon_setting_key(p, i) for i in range(lib.tenon_settings(p))]
        return {k.decode(): lib.tenon_setting(p, k).decode() for k in keys}

    @property
    def device(self):
        """Where it computes: "cpu" or "cuda"."""
        return lib.tenon_device(self._handle.pointer).decode()

    @property
    def vocab(self):
        return lib.tenon_vocab(self._handle.pointer)

    @property
    @_locked
    def tokenizer(self):
        if self._tokenizer is None:
            p = C.c_void_p()
            call("tenon_tokenizer_of", self._handle.pointer, C.byref(p))
            self._tokenizer = Tokenizer(_pointer=p)
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, t):
        self._tokenizer = t if isinstance(t, Tokenizer) else Tokenizer(t)

    @_locked
    def set(self, key, value):
        """A setting that steps read anew: train.lr, train.clip, ...; or a size of the inputs that is the data's: labels."""
        call("tenon_set", self._handle.pointer, key.encode(), str(value).encode())

    def load(self, path):
        with self._handle.lock:  # not by @_locked, which would stand between _warn and the caller
            call("tenon_load", self._handle.pointer, str(path).encode())
            _warn(self._handle.pointer)

    @_locked
    def save(self, path):
        call("tenon_save", self._handle.pointer, str(path).encode())

    @property
    @_locked
    def inputs(self):
        """What the model reads, by name: a dict of Input."""
        out = {}
        for i in range(lib.tenon_inputs(self._handle.pointer)):
            raw = _Input(size=C.sizeof(_Input))
            call("tenon_input_at", self._handle.pointer, i, C.byref(raw))
            out[raw.name.decode()] = Input(raw)
        return out

    def _output(self, name, *where):
        t = _Tensor(size=C.sizeof(_Tensor))
        call(name, self._handle.pointer, *where, C.byref(t))
        return t.name.decode(), _view(None, t.data, tuple(t.shape[:t.rank]), _TYPES[t.dtype]).copy() if t.data else None

    def _fill(self, arrays):
        """The batch, by name; what is not given is not filled. Plans are made once for a shape."""
        p, rows, sizes = self._handle.pointer, self.inputs, {}
        for name in arrays:
            if name not in rows:
                call("tenon_fill", p, name.encode(), 0, None, 0)  # says which there are
        ready = {name: row._array(arrays[name], sizes) for name, row in rows.items() if name in arrays}
        if not ready:
            raise TenonError(2, f"no input is given: the model has {', '.join(rows)}")
        call("tenon_shape", p, sizes.get("B", lib.tenon_batch(p)), sizes.get("T", lib.tenon_length(p)))
        lib.tenon_clear(p)
        for name, a in ready.items():
            call("tenon_fill", p, name.encode(), _TYPES_BACK[a.dtype.type], a.ctypes.data, a.size)

    @_locked
    def _run(self, step, arrays, outputs=()):
        self._fill(arrays)
        loss, names = C.c_double(), [name.encode() for name in outputs]
        call("tenon_run", self._handle.pointer, step.encode(), (C.c_char_p * max(len(names), 1))(*names), len(names), C.byref(loss))
        return loss.value

    @_locked
    def run(self, step, /, outputs=None, **inputs):
        """Runs a step of the model by its name ("eval", "generate", "trace"), without gradients: its outputs, as a dict of arrays.
        outputs: a name, or names, of those that are wanted; a step may make some only then. Inputs that are not given hold their padding."""
        if step == "train":
            raise TenonError(2, "step train adds gradients and has no outputs: call gradients()")
        names = [outputs] if isinstance(outputs, str) else list(outputs or ())
        self._run(step, inputs, names)
        if names:
            return dict(self._output("tenon_output_find", name.encode()) for name in names)
        every = dict(self._output("tenon_output_at", i) for i in range(lib.tenon_outputs(self._handle.pointer)))
        return {name: x for name, x in every.items() if x is not None}  # chunks of a sequence do not keep all

    @_locked
    def forward(self, tokens=None, outputs="logits", **inputs):
        """Logits (B,T,vocab) of tokens (B,T), or of one row; or, of inputs by name, an output, or a list of them as a dict. Inputs that are not
        given hold their padding."""
        got = self.run("eval", outputs, **_given(inputs, tokens=tokens))
        return got[outputs] if isinstance(outputs, str) else got

    def loss(self, tokens=None, labels=None, **inputs):
        """Mean loss, without gradients: of tokens and labels (B,T), in nats; or of the model's inputs by name."""
        return self._run("eval", _given(inputs, tokens=tokens, labels=labels))

    def gradients(self, tokens=None, labels=None, **inputs):
        """The same; adds to `grads`."""
        return self._run("train", _given(inputs, tokens=tokens, labels=labels))

    @_locked
    def zero_gradients(self):
        lib.tenon_zero_gradients(self._handle.pointer)

    @_locked
    def step(self):
        """The optimizer's step (train.* settings) with the mean of the gradients since the last; they then are zero."""
        r = _StepReport(size=C.sizeof(_StepReport))
        call("tenon_step", self._handle.pointer, C.byref(r))
        return Step(r)

    @property
    @_locked
    def metrics(self):
        """Held-out metrics by name: of the last evaluate(), before it as the run's checkpoint has them; a dict of Metric, which are floats."""
        out = {}
        for i in range(lib.tenon_metrics(self._handle.pointer)):
            m = _Metric(size=C.sizeof(_Metric))
            call("tenon_metric_at", self._handle.pointer, i, C.byref(m))
            out[m.name.decode()] = Metric(m)
        return out

    @_locked
    def evaluate(self, tokens=None, length=None, split="valid"):
        """Without tokens: the metrics by name on a split of the data or task that the settings name, as `tenon eval` measures them.
        With a row of tokens: its mean nats per token, in windows of `length` (train.context)."""
        if tokens is None:
            LongCall(self._handle.pointer).run("tenon_measure", self._handle.pointer, split.encode())
            return self.metrics
        a, p = _ids(np.ravel(tokens))
        call("tenon_shape", self._handle.pointer, 1, length or int(self.settings["train.context"]))
        nats = C.c_double()
        LongCall(self._handle.pointer).run("tenon_evaluate", self._handle.pointer, p, a.size, C.byref(nats), None)
        return nats.value

    @_locked
    def sample(self, prompt="", n=None, stop=(), stream=None, **options):
        """Text after a prompt (or after token ids, given as an array), n texts as a list. options: temperature, top_k,
        top_p, seed, max_tokens, context. stream(text) is called with each piece as it is drawn; True ends it."""
        o, pieces, ends, running = _SampleOptions(), {}, {}, LongCall(self._handle.pointer)
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
        o.stop, o.n_stop = (C.c_char_p * max(len(stops), 1))(*[s.encode() for s in stops]), len(stops)
        o.samples = 1 if n is None else n

        def text(_, sample, data, size):
            piece = data[:size].decode()
            pieces[sample] = pieces.get(sample, "") + piece
            return bool(stream and running.ask(stream, piece))

        def done(_, sample, ids, count, why):
            ends[sample] = (np.array(ids[:count], np.int32), why.decode())
            return 0

        o.text, o.done = _TEXT(text), _DONE(done)
        try:
            running.run("tenon_sample", self._handle.pointer, self.tokenizer._handle.pointer, C.byref(o))
        except TenonError as error:
            if error.code != 130:  # stream asked for the end
                raise
        out = []
        for i in range(o.samples):
            s = Sample(pieces.get(i, ""))
            s.tokens, s.end = ends.get(i, (np.empty(0, np.int32), "stream"))
            out.append(s)
        return out[0] if n is None else out


def open(target, *overrides, **settings):
    """A run, a checkpoint, a file of weights, a preset or a model. Settings as "key=value" or, without dots, as keywords:
    device="cuda" for a GPU, "auto" for one where it is there; without it the CPU, whatever a run was trained on."""
    words = [*overrides, *(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in settings.items())]
    p = C.c_void_p()
    call("tenon_open", str(target).encode(), (C.c_char_p * max(len(words), 1))(*[w.encode() for w in words]), len(words), C.byref(p))
    net = Model(p)
    _warn(p)
    return net
