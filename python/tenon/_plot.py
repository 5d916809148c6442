"""Line plots, drawn by the library as the command draws them."""
from __future__ import annotations

import ctypes as C
import os
from typing import Any, Iterable, NamedTuple

import numpy as np
import numpy.typing as npt

from ._library import call, lib, texts

_WRITE = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(C.c_char), C.c_size_t)
_DOUBLES = C.POINTER(C.c_double)


class _PlotOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("title", C.c_char_p), ("x_label", C.c_char_p), ("y_label", C.c_char_p), ("count", C.c_size_t),
                ("name", C.POINTER(C.c_char_p)), ("x", C.POINTER(_DOUBLES)), ("y", C.POINTER(_DOUBLES)), ("n", C.POINTER(C.c_size_t)),
                ("behind", C.POINTER(C.c_size_t)), ("log_y", C.c_int), ("text", C.c_int), ("width", C.c_int), ("height", C.c_int),
                ("write", _WRITE), ("user", C.c_void_p), ("ring", C.POINTER(C.c_size_t)), ("ring_name", C.c_char_p)]


class Series(NamedTuple):
    """A line of a plot. behind: 1 + the series that it is drawn behind, as a pale line; ring: 1 + the point with a ring; 0: none."""
    name: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    behind: int = 0
    ring: int = 0


def _draw(series: list[Series], title: str, x_label: str, y_label: str, log: bool, ring: str, text: bool) -> str:
    o, n, out = _PlotOptions(), len(series), bytearray()
    x, y = ([np.ascontiguousarray(a, dtype=np.float64) for a in column] for column in ([s.x for s in series], [s.y for s in series]))
    lib.tenon_plot_init(C.byref(o))
    o.title, o.x_label, o.y_label, o.ring_name = (t.encode() or None for t in (title, x_label, y_label, ring))
    o.count, o.name, o.log_y, o.text = n, texts([s.name for s in series]), log, text
    o.x, o.y = ((_DOUBLES * max(n, 1))(*[a.ctypes.data_as(_DOUBLES) for a in column]) for column in (x, y))
    o.n = (C.c_size_t * max(n, 1))(*[min(a.size, b.size) for a, b in zip(x, y)])
    o.behind, o.ring = ((C.c_size_t * max(n, 1))(*column) for column in ([s.behind for s in series], [s.ring for s in series]))

    def write(_: Any, data: Any, size: int) -> None:
        out.extend(data[:size])
    o.write = _WRITE(write)
    call("tenon_plot", C.byref(o))
    return out.decode()


class Plot(str):
    """A plot: its SVG as text, which notebooks show; at a prompt of Python it is drawn in characters. ring: what a ring means."""

    _drawn: str

    def __new__(cls, series: Iterable[Series], title: str = "", x_label: str = "", y_label: str = "", log: bool = False,
                ring: str = "") -> Plot:
        rows = list(series)
        self = super().__new__(cls, _draw(rows, title, x_label, y_label, log, ring, False))
        front = [s for s in rows if not s.behind]  # characters have no pale lines
        self._drawn = _draw(front, title.partition(" (pale: ")[0], x_label, y_label, log, ring, True)
        return self

    def __repr__(self) -> str:
        return self._drawn.rstrip("\n")

    def _repr_svg_(self) -> str:
        return str(self)

    @property
    def text(self) -> str:
        """The plot in characters, for a terminal."""
        return self._drawn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SVG to a file."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self)
