"""Decoders of GGUF blocks against those of PyPI's `gguf`, bit by bit; a NaN must be a NaN, whichever.

    python check_gguf.py [MODEL.gguf ...]

Blocks of every type are random bytes: all scales occur, infinite and NaN among them. Of every model given, every tensor is
compared. Needs numpy, gguf and a built library (BUILD, build). Ends with "N passed, N failed".
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf import quants

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
TYPES = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K".split()
BLOCKS = 20000


def build(to):
    libs = subprocess.run(["pkg-config", "--cflags", "--libs", "yaml-0.1", "jansson", "libxxhash", "zlib", "libzstd", "libpcre2-8", "sqlite3"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{ROOT}/include", f"-I{BUILD}/include", f"-I{ROOT}/src",
                    f"{ROOT}/tests/peers/gguf_numbers.c", f"{BUILD}/libtenon.a", *libs, "-lm", "-lpthread", "-ldl", "-o", to], check=True)


def differences(ours, theirs):
    """How many of the numbers differ, and the first."""
    ours, theirs = np.frombuffer(ours, np.float32), np.ascontiguousarray(theirs, np.float32).reshape(-1)
    if ours.size != theirs.size:
        return max(ours.size, theirs.size), f"{ours.size} numbers instead of {theirs.size}"
    wrong = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~(np.isnan(ours) & np.isnan(theirs))
    at = np.flatnonzero(wrong)
    return at.size, "" if at.size == 0 else f"number {at[0]} is {ours[at[0]]!r} instead of {theirs[at[0]]!r}"


def main(models):
    passed = failed = 0
    random = np.random.default_rng(1)

    def judge(what, ours, theirs):
        nonlocal passed, failed
        n, first = differences(ours, theirs)
        passed, failed = passed + (n == 0), failed + (n != 0)
        if n:
            print(f"FAILED {what}: {n} numbers differ; {first}")

    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        program = f"{folder}/gguf_numbers"
        build(program)
        for name in TYPES:
            kind = gguf.GGMLQuantizationType[name]
            _, size = gguf.GGML_QUANT_SIZES[kind]
            raw = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
            ours = subprocess.run([program, name], input=raw.tobytes(), check=True, stdout=subprocess.PIPE).stdout
            theirs = quants.dequantize(raw.view(np.float16 if name == "F16" else np.float32 if name == "F32" else np.uint8), kind)
            judge(f"{BLOCKS} blocks of {name}", ours, theirs)
            print(f"{name:5} {np.asarray(theirs).size} numbers, {np.isnan(np.frombuffer(ours, np.float32)).sum()} of them NaN")
        for path in models:
            tensors = gguf.GGUFReader(path).tensors
            kinds = {}
            for t in tensors:
                ours = subprocess.run([program, path, t.name], check=True, stdout=subprocess.PIPE).stdout
                judge(f"{path}: {t.name}", ours, quants.dequantize(t.data, t.tensor_type))
                kinds[t.tensor_type.name] = kinds.get(t.tensor_type.name, 0) + 1
            print(f"{os.path.basename(path)}: {len(tensors)} tensors, {kinds}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
