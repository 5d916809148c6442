"""The list of artefacts, to which weights.py, gguf_weights.py, hf_weights.py, messages.py, runs.py, studies.py and data_sets.py add theirs."""
import os
import shutil
import subprocess

ESC = "\x1b]0;owned\x07\x1b[31mred\x9b2J"  # sets a title, a colour; the last begins with a C1 byte
OUT = "../../outside"
ARTEFACTS = {}


class Artefact:
    """kind: which commands of commands.txt open it; target: the name that they are given; make(folder, good) makes it in an
    empty folder; ok: commands that may end with 0; also: "command=code" for further codes that docs/ promise; room_mib: memory beside
    that of P6, for packed files (docs/data.md: they may unpack to 64 MiB, or 250 times their size)."""

    def __init__(self, name, kind, target, make, ok, also, room_mib):
        self.name, self.kind, self.target, self.make, self.ok, self.room_mib = name, kind, target, make, ok.split(), room_mib
        self.also = [tuple(word.split("=")) for word in also.split()]


def artefact(kind, target, ok="", also="", room_mib=0):
    def add(make):
        assert make.__name__ not in ARTEFACTS, make.__name__
        ARTEFACTS[make.__name__] = Artefact(make.__name__, kind, target, make, ok, also, room_mib)
        return make
    return add


def elf(path, good):
    """A shared object whose constructor leaves $HOME/marker."""
    made = f"{good}/x.so"
    source = ('#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void run(void) {\n'
              'char p[4096]; snprintf(p, sizeof p, "%s/marker", getenv("HOME")); FILE *f = fopen(p, "w"); if (f) fclose(f); }\n')
    if not os.path.exists(made):
        subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-x", "c", "-o", made, "-"], input=source.encode(), check=True)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(made, path)
