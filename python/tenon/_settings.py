"""Settings as Python has them: keyword arguments become the "key=value" texts of the command."""
from __future__ import annotations

import ctypes as C
import difflib
import os
from typing import Any, Iterable, Mapping, NamedTuple

from ._library import EACH, TenonError, call, error, texts


class Setting(NamedTuple):
    """A setting: its value as text, what it may be ("" where that is a number or any text), and what it is."""
    value: str
    choices: str
    help: str


def settings(target: str | os.PathLike[str] | None = None, *overrides: str) -> dict[str, Setting]:
    """The settings that a preset, model, file or run has, by key."""
    out: dict[str, Setting] = {}

    def each(_: Any, key: bytes, value: bytes, choices: bytes | None, text: bytes) -> int:
        out[key.decode()] = Setting(value.decode(), (choices or b"").decode(), text.decode())
        return 0
    name = None if target is None else os.fspath(target).encode()
    call("tenon_settings_of", name, texts(list(overrides)), len(overrides), EACH(each), None)
    return out


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _key(name: str, keys: Iterable[str]) -> str | None:
    """The key that a keyword names: itself, one of train.*, one whose dots are written as underscores, or NAME.name."""
    known = set(keys)
    spelled = {key.replace(".", "_"): key for key in known}
    for key in (name, "train." + name, spelled.get(name, ""), name + ".name"):
        if key in known:
            return key
    return None


def words_of(target: object, overrides: Iterable[str], given: Mapping[str, object]) -> list[str]:
    """The texts for the library. None leaves a setting as it is."""
    words = list(overrides)
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        return words
    first = [*words, *(f"{k}={_text(named[k])}" for k in ("model", "preset") if k in named)]
    try:
        keys = list(settings(target if isinstance(target, (str, os.PathLike)) else None, *first))
    except TenonError:  # a file of weights; or what the call itself will say
        keys = []
    for name, value in named.items():
        key = name if "." in name else _key(name, keys)
        near = [] if key else difflib.get_close_matches(name, [*(k.rpartition(".")[2] for k in keys), *(k.replace(".", "_") for k in keys)], 1, 0.75)
        if near:
            raise error(2, f"unknown setting {name}: did you mean {near[0]}?")
        words.append(f"{key or name}={_text(value)}")
    return words
