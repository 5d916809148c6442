"""Finds and loads libtenon.so, and calls it with errors as exceptions.

Looked at in this order: the file $TENON_LIBRARY names; the build folder of the checkout this package lies in or was
installed from; the system's libraries (`make install`)."""
from __future__ import annotations

import ctypes as C
import ctypes.util
import errno
import importlib
import os
import pathlib
import queue
import threading
from typing import Any, Callable

API_VERSION = 1


class TenonError(Exception):
    """What went wrong, where, and what to do. `code` is the status of the library (2 usage, 3 bad file, 4 diverged, ...).
    What is raised is one of its subclasses, each also the exception that Python has for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class UsageError(TenonError, ValueError):
    """A wrong setting, value, shape or argument."""


class MissingFileError(TenonError, FileNotFoundError):
    """A file or folder that is not there."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.errno = errno.ENOENT


class BadFileError(TenonError, ValueError):
    """A file that is cut short or malformed."""


class DivergedError(TenonError, ArithmeticError):
    """A number that is not finite."""


class OutOfMemoryError(TenonError, MemoryError):
    """Memory was refused, or a plan does not fit."""


class DiskError(TenonError, OSError):
    """A write that failed."""


_ERRORS: dict[int, type[TenonError]] = {2: UsageError, 3: BadFileError, 4: DivergedError, 5: OutOfMemoryError, 6: DiskError}
# What the command says, and what is the same here.
_WORDS = (("  (command line)", ""), ("`tenon config show`", "tenon.settings()"), ("--fresh", "fresh=True"))
_MISSING = ("No such file or directory", "is not a run")


def error(code: int, text: str) -> TenonError:
    """The exception of a status."""
    for command, here in _WORDS:
        text = text.replace(command, here)
    if code == 3 and any(words in text for words in _MISSING):
        return MissingFileError(code, text)
    return _ERRORS.get(code, TenonError)(code, text)


def _places() -> list[str]:
    if os.environ.get("TENON_LIBRARY"):
        return [os.environ["TENON_LIBRARY"]]
    folders = [pathlib.Path(__file__).resolve().parents[2] / "build"]
    try:
        folders.append(pathlib.Path(importlib.import_module("tenon._place").BUILD))  # written by setup.py
    except ImportError:
        pass
    found = [str(f / "libtenon.so") for f in folders if (f / "libtenon.so").exists()]
    installed = ctypes.util.find_library("tenon")
    return found + ([installed] if installed else []) + ["/usr/local/lib/libtenon.so.0"]


def _load() -> C.CDLL:
    tried = []
    for place in _places():
        try:
            return C.CDLL(place, mode=C.RTLD_GLOBAL)  # a model of your own (a .so) finds its calls in it
        except OSError as why:
            tried.append(f"  {why}")
    raise ImportError("libtenon.so was not found: run `make` in Tenon's checkout (then its build folder is found), `make install`, "
                      "or set TENON_LIBRARY to the file. Tried:\n" + "\n".join(tried))


lib = _load()
P, I64, SIZE, TEXT = C.c_void_p, C.c_int64, C.c_size_t, C.c_char_p
IDS = C.POINTER(C.c_int32)
EACH = C.CFUNCTYPE(C.c_int, P, TEXT, TEXT, TEXT, TEXT)  # of tenon_settings_of: key, value, choices, help
# name: (result, arguments); a result None is a status, "void" nothing.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "tenon_version": (TEXT,), "tenon_api_version": (C.c_int,), "tenon_error": (TEXT,),
    "tenon_open": (None, TEXT, C.POINTER(TEXT), SIZE, P), "tenon_close": ("void", P), "tenon_interrupt": ("void", P),
    "tenon_setting": (TEXT, P, TEXT), "tenon_settings": (SIZE, P), "tenon_setting_key": (TEXT, P, SIZE),
    "tenon_set": (None, P, TEXT, TEXT), "tenon_load": (None, P, TEXT), "tenon_save": (None, P, TEXT),
    "tenon_device": (TEXT, P), "tenon_note": (TEXT, P), "tenon_read": (None, P, TEXT, C.c_int, P, SIZE), "tenon_write": (None, P, TEXT, C.c_int, P, SIZE),
    "tenon_tensors": (SIZE, P), "tenon_tensor_about": (None, P, SIZE, P), "tenon_tensor_find": (None, P, TEXT, P),
    "tenon_vocab": (I64, P), "tenon_batch": (I64, P), "tenon_length": (I64, P),
    "tenon_shape": (None, P, I64, I64), "tenon_zero_gradients": ("void", P), "tenon_step": (None, P, P), "tenon_evaluate": (None, P, IDS, SIZE, P, P),
    "tenon_inputs": (SIZE, P), "tenon_input_at": (None, P, SIZE, P), "tenon_fill": (None, P, TEXT, C.c_int, P, SIZE), "tenon_clear": ("void", P),
    "tenon_run": (None, P, TEXT, C.POINTER(TEXT), SIZE, P), "tenon_outputs": (SIZE, P), "tenon_output_at": (None, P, SIZE, P),
    "tenon_output_find": (None, P, TEXT, P),
    "tenon_measure": (None, P, TEXT), "tenon_metrics": (SIZE, P), "tenon_metric_at": (None, P, SIZE, P),
    "tenon_tokenizer_open": (None, TEXT, P), "tenon_tokenizer_of": (None, P, P), "tenon_tokenizer_close": ("void", P),
    "tenon_tokenizer_vocab": (I64, P), "tenon_tokenizer_start": (C.c_int32, P), "tenon_tokenizer_end": (C.c_int32, P),
    "tenon_encode": (None, P, TEXT, SIZE, C.c_int, IDS, SIZE, P), "tenon_decode": (None, P, IDS, SIZE, P, SIZE, P),
    "tenon_sample_init": ("void", P), "tenon_sample": (None, P, P, P),
    "tenon_train_init": ("void", P), "tenon_train": (None, P), "tenon_settings_of": (None, TEXT, C.POINTER(TEXT), SIZE, EACH, P),
    "tenon_plot_init": ("void", P), "tenon_plot": (None, P),
}
for _name, (_result, *_arguments) in _FUNCTIONS.items():
    _f = getattr(lib, _name, None)
    if _f is None:
        raise ImportError(f"{lib._name} has no {_name}: it is another version of Tenon than this package; build and install both again")
    _f.restype = None if _result == "void" else C.c_int if _result is None else _result
    _f.argtypes = _arguments
if lib.tenon_api_version() != API_VERSION:
    raise ImportError(f"{lib._name} has interface {lib.tenon_api_version()}, this package needs {API_VERSION}: install both from one version")


def call(name: str, *arguments: Any) -> None:
    code = getattr(lib, name)(*arguments)
    if code:
        raise error(code, lib.tenon_error().decode("utf-8", "replace"))


def texts(words: list[str]) -> Any:
    """An array of C texts."""
    return (C.c_char_p * max(len(words), 1))(*[w.encode() for w in words])


class LongCall:
    """A call that may last, on a thread of its own. The caller waits in Python, where signals are seen: what they raise (Ctrl-C:
    KeyboardInterrupt) first ends the call and then reaches the caller. Exceptions inside a function that C calls would be lost.
    interrupt(): asks the library to end it; a call whose functions look at `left` needs none.

    A signal may raise between any two steps of the caller, so that it never knows how far the thread is: `_gate` decides whether the call
    begins at all, and one that has begun is waited for."""

    def __init__(self, interrupt: Callable[[], None] = lambda: None) -> None:
        self.left = False
        self._interrupt, self._finished, self._gate, self._begun = interrupt, threading.Event(), threading.Lock(), False
        self._mail: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def ask(self, function: Callable[..., Any], *arguments: Any) -> bool:
        """For functions that C calls: function(*arguments) on the caller's thread. True where the call is to end."""
        self._mail.put((function, arguments))
        while not self.left:
            try:
                return self._answers.get(timeout=0.05)
            except queue.Empty:
                pass
        return True

    def _answer(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        end = True
        try:
            end = bool(function(*arguments))
        finally:
            self._answers.put(end)

    def _end(self) -> None:
        while not self._finished.is_set():
            try:
                with self._gate:
                    self.left = True
                    if not self._begun:
                        return
                self._interrupt()  # again and again: it may not have begun to listen
                self._finished.wait(0.02)
            except BaseException:  # a second Ctrl-C; the first is on its way to the caller
                pass

    def _work(self, failed: list[BaseException], name: str, arguments: tuple[Any, ...]) -> None:
        with self._gate:
            if self.left:
                return
            self._begun = True
        try:
            call(name, *arguments)
        except BaseException as why:
            failed.append(why)
        self._finished.set()
        self._mail.put(None)

    def run(self, name: str, *arguments: Any) -> None:
        failed: list[BaseException] = []
        try:
            threading.Thread(target=self._work, args=(failed, name, arguments), daemon=True).start()
            while (job := self._mail.get()) is not None:
                self._answer(*job)
        except BaseException:
            self._end()
            raise
        if failed:
            raise failed[0]
