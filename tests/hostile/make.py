#!/usr/bin/env python3
"""Makes a repository that means harm: models, runs, settings, studies, databases, data sets, tokenizers, messages and names, each in a
folder of its own. Everything is made here, from small valid things that `tenon` itself made (GOOD: see tests/long/hostile.sh).

    make.py GOOD TO [NAME ...]    writes TO/outside (what must stay as it is) and TO/repo/NAME, all or those named
    make.py --list                one line for each: name, kind, what is opened

Paths in the artefacts lead from TO/repo/NAME to TO/outside: ../../outside/secret.
"""
import os
import shutil
import sys

import data_sets  # noqa: F401  each adds its artefacts
import gguf_weights  # noqa: F401
import hf_weights  # noqa: F401
import messages  # noqa: F401
import runs  # noqa: F401
import studies  # noqa: F401
import weights  # noqa: F401
from artefacts import ARTEFACTS, elf
from formats import write


def surroundings(to, good):
    """What lies beside the repository: files that links and names lead to, a run, a database, a data set."""
    outside = os.path.join(to, "outside")
    os.makedirs(outside)
    os.makedirs(os.path.join(to, "home", ".cache"))
    elf(f"{outside}/x.so", good)
    write(f"{outside}/secret", "a secret of somebody\n" * 50)
    write(f"{outside}/folder/keep.txt", "this stays\n")
    write(f"{outside}/folder/deeper/keep.txt", "this too\n")
    write(f"{outside}/t.txt", "text that is somebody's own\n" * 200)
    for name in ("r", "d"):
        shutil.copytree(f"{good}/{name}", f"{outside}/{name}", symlinks=True)
    shutil.copy(f"{good}/s.db", f"{outside}/x.db")
    shutil.copy(f"{good}/m.safetensors", f"{outside}/m.safetensors")


def fresh(to, good, name):
    """TO/repo/NAME as it is before anything opened it."""
    folder = os.path.join(to, "repo", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    ARTEFACTS[name].make(folder, good)
    return folder


def main(arguments):
    if arguments == ["--list"]:
        for a in ARTEFACTS.values():
            print(f"{a.name:28} {a.kind:10} {ascii(a.target)}")
        print(len(ARTEFACTS))
        return
    if len(arguments) < 2:
        sys.exit(__doc__)
    good, to = map(os.path.abspath, arguments[:2])
    surroundings(to, good)
    for name in arguments[2:] or ARTEFACTS:
        fresh(to, good, name)


if __name__ == "__main__":
    main(sys.argv[1:])
