"""Finds and loads libtenon.so, and calls it with errors as exceptions.

Looked at in this order: the file $TENON_LIBRARY names; the build folder of the checkout this package lies in or was
installed from; the system's libraries (`make install`)."""
import ctypes as C
import ctypes.util
import os
import pathlib
import queue
import threading

API_VERSION = 1


class TenonError(Exception):
    """What went wrong, where, and what to do. `code` is the status of the library (2 usage, 3 bad file, 4 diverged, ...)."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def _places():
    if os.environ.get("TENON_LIBRARY"):
        return [os.environ["TENON_LIBRARY"]]
    folders = [pathlib.Path(__file__).resolve().parents[2] / "build"]
    try:
        from ._place import BUILD
        folders.append(pathlib.Path(BUILD))
    except ImportError:
        pass
    found = [str(f / "libtenon.so") for f in folders if (f / "libtenon.so").exists()]
    installed = ctypes.util.find_library("tenon")
    return found + ([installed] if installed else []) + ["/usr/local/lib/libtenon.so.0"]


def _load():
    tried = []
    for place in _places():
        try:
            return C.CDLL(place, mode=C.RTLD_GLOBAL)  # a model of your own (a .so) finds its calls in it
        except OSError as error:
            tried.append(f"  {error}")
    raise ImportError("libtenon.so was not found: run `make` in Tenon's checkout (then its build folder is found), `make install`, "
                      "or set TENON_LIBRARY to the file. Tried:\n" + "\n".join(tried))


lib = _load()
P, I64, SIZE, TEXT = C.c_void_p, C.c_int64, C.c_size_t, C.c_char_p
IDS = C.POINTER(C.c_int32)
# name: (result, arguments); a result None is a status, "void" nothing.
_FUNCTIONS = {
    "tenon_version": (TEXT,), "tenon_api_version": (C.c_int,), "tenon_error": (TEXT,),
    "tenon_open": (None, TEXT, C.POINTER(TEXT), SIZE, P), "tenon_close": ("void", P), "tenon_interrupt": ("void", P),
    "tenon_setting": (TEXT, P, TEXT), "tenon_settings": (SIZE, P), "tenon_setting_key": (TEXT, P, SIZE),
    "tenon_set": (None, P, TEXT, TEXT), "tenon_load": (None, P, TEXT), "tenon_save": (None, P, TEXT),
    "tenon_device": (TEXT, P), "tenon_note": (TEXT, P), "tenon_read": (None, P, TEXT, C.c_int, P, SIZE), "tenon_write": (None, P, TEXT, C.c_int, P, SIZE),
    "tenon_tensors": (SIZE, P), "tenon_tensor_at": (None, P, SIZE, P), "tenon_vocab": (I64, P), "tenon_batch": (I64, P), "tenon_length": (I64, P),
    "tenon_shape": (None, P, I64, I64), "tenon_zero_gradients": ("void", P), "tenon_step": (None, P, P), "tenon_evaluate": (None, P, IDS, SIZE, P, P),
    "tenon_inputs": (SIZE, P), "tenon_input_at": (None, P, SIZE, P), "tenon_fill": (None, P, TEXT, C.c_int, P, SIZE), "tenon_clear": ("void", P),
    "tenon_run": (None, P, TEXT, C.POINTER(TEXT), SIZE, P), "tenon_outputs": (SIZE, P), "tenon_output_at": (None, P, SIZE, P),
    "tenon_output_find": (None, P, TEXT, P),
    "tenon_measure": (None, P, TEXT), "tenon_metrics": (SIZE, P), "tenon_metric_at": (None, P, SIZE, P),
    "tenon_tokenizer_open": (None, TEXT, P), "tenon_tokenizer_of": (None, P, P), "tenon_tokenizer_close": ("void", P),
    "tenon_tokenizer_vocab": (I64, P), "tenon_tokenizer_start": (C.c_int32, P), "tenon_tokenizer_end": (C.c_int32, P),
    "tenon_encode": (None, P, TEXT, SIZE, C.c_int, IDS, SIZE, P), "tenon_decode": (None, P, IDS, SIZE, P, SIZE, P),
    "tenon_sample_init": ("void", P), "tenon_sample": (None, P, P, P),
}
for _name, (_result, *_arguments) in _FUNCTIONS.items():
    _f = getattr(lib, _name, None)
    if _f is None:
        raise ImportError(f"{lib._name} has no {_name}: it is another version of Tenon than this package; build and install both again")
    _f.restype = None if _result == "void" else C.c_int if _result is None else _result
    _f.argtypes = _arguments
if lib.tenon_api_version() != API_VERSION:
    raise ImportError(f"{lib._name} has interface {lib.tenon_api_version()}, this package needs {API_VERSION}: install both from one version")


def call(name, *arguments):
    code = getattr(lib, name)(*arguments)
    if code:
        raise TenonError(code, lib.tenon_error().decode("utf-8", "replace"))


class LongCall:
    """A call that may last, on a thread of its own. The caller waits in Python, where signals are seen: what they raise (Ctrl-C:
    KeyboardInterrupt) first ends the call and then reaches the caller. Exceptions inside a function that C calls would be lost.

    A signal may raise between any two steps of the caller, so that it never knows how far the thread is: `_gate` decides whether the call
    begins at all, and one that has begun is waited for."""

    def __init__(self, net):
        self._net, self._mail, self._answers = net, queue.SimpleQueue(), queue.SimpleQueue()
        self._gate, self._left, self._begun, self._finished = threading.Lock(), False, False, threading.Event()

    def ask(self, function, *arguments):
        """For functions that C calls: function(*arguments) on the caller's thread. True where the call is to end."""
        self._mail.put((function, arguments))
        while not self._left:
            try:
                return self._answers.get(timeout=0.05)
            except queue.Empty:
                pass
        return True

    def _answer(self, function, arguments):
        end = True
        try:
            end = bool(function(*arguments))
        finally:
            self._answers.put(end)

    def _end(self):
        while not self._finished.is_set():
            try:
                with self._gate:
                    self._left = True
                    if not self._begun:
                        return
                lib.tenon_interrupt(self._net)  # again and again: it may not have begun to listen
                self._finished.wait(0.02)
            except BaseException:  # a second Ctrl-C; the first is on its way to the caller
                pass

    def _work(self, failed, name, arguments):
        with self._gate:
            if self._left:
                return
            self._begun = True
        try:
            call(name, *arguments)
        except BaseException as error:
            failed.append(error)
        self._finished.set()
        self._mail.put(None)

    def run(self, name, *arguments):
        failed = []
        try:
            threading.Thread(target=self._work, args=(failed, name, arguments), daemon=True).start()
            while (job := self._mail.get()) is not None:
                self._answer(*job)
        except BaseException:
            self._end()
            raise
        if failed:
            raise failed[0]
