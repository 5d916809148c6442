"""Models from files of weights: held as the file holds them while they are only run, f32 with all its digits where they are looked at."""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

import tenon

D, VOCAB = 32, 256


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def blocks(n, seed):
    """Q8_0: 32 whole numbers of 8 bits and an f16 scale; the bytes, and the f32 numbers they stand for."""
    rng = np.random.default_rng(seed)
    scale = (rng.random((n // 32, 1)) / 100).astype(np.float16)
    q = rng.integers(-127, 128, (n // 32, 32)).astype(np.int8)
    data = b"".join(s.tobytes() + row.tobytes() for s, row in zip(scale, q))
    return data, scale.astype(np.float32) * q.astype(np.float32)


def write_quantised(path):
    """A GGUF model of one layer; returns its embedding."""
    def number(key, kind, value):
        return text(key) + struct.pack("<I" + ("f" if kind == 6 else "I"), kind, value)
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama"), number("llama.embedding_length", 4, D), number("llama.block_count", 4, 1),
            number("llama.attention.head_count", 4, 2), number("llama.feed_forward_length", 4, D), number("llama.context_length", 4, 64),
            number("llama.attention.layer_norm_rms_epsilon", 6, 1e-5)]
    shapes = [("token_embd", (D, VOCAB)), ("output_norm", (D,)), ("blk.0.attn_norm", (D,)), ("blk.0.ffn_norm", (D,))]
    shapes += [(f"blk.0.{n}", (D, D)) for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")]
    infos = data = b""
    embedding = None
    for i, (name, s) in enumerate(shapes):
        block, numbers = blocks(int(np.prod(s)), i)
        embedding = numbers.reshape(VOCAB, D) if name == "token_embd" else embedding
        infos += text(name + ".weight") + struct.pack(f"<I{len(s)}QIQ", len(s), *s, 8 if len(s) > 1 else 0, len(data))
        data += block if len(s) > 1 else np.ones(s, np.float32).tobytes()
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)
    return embedding


def quantised_weights_keep_their_digits():
    row = np.arange(60) * 7 % VOCAB
    with tempfile.TemporaryDirectory() as folder:
        embedding = write_quantised(f"{folder}/q.gguf")
        net = tenon.open(f"{folder}/q.gguf")
        rounded = net.evaluate(row, length=32)  # with weights in bf16, as the command does
        assert np.array_equal(net.parameters["embed"], embedding)
        exact = net.evaluate(row, length=32)
        assert exact != rounded and abs(exact - rounded) < 1e-2 * exact, (exact, rounded)
        other = tenon.open(f"{folder}/q.gguf")
        try:  # the decoder that calls back runs on the weights that a look would replace
            other.sample("ab", max_tokens=4, stream=lambda piece: other.parameters["embed"])
        except tenon.TenonError as error:
            assert error.code == 2 and "callback" in str(error), error
        else:
            raise AssertionError("weights were replaced under a decoder")
        assert other.evaluate(row, length=32) == rounded
        other.save(f"{folder}/x.safetensors")
        assert np.array_equal(tenon.open(f"{folder}/x.safetensors").parameters["embed"], embedding)
        other = tenon.open(f"{folder}/q.gguf")
        os.remove(f"{folder}/q.gguf")
        assert other.evaluate(row, length=32) == rounded
        try:
            other.parameters["embed"]
        except tenon.TenonError as error:
            assert error.code == 3 and "q.gguf" in str(error), error
        else:
            raise AssertionError("the file is gone, and its digits were read")
        assert other.evaluate(row, length=32) == rounded  # as if nobody had asked


PEAK = """
import re, sys, numpy as np, tenon
def peak():  # not ru_maxrss, which begins with that of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
before = peak()
net = tenon.open(sys.argv[1], threads=1)
net.evaluate(np.arange(17) % 64, length=16)
net.sample("ab", max_tokens=2)
run = peak() - before
net.gradients(np.zeros((1, 4), int), np.zeros((1, 4), int))
print(run, peak() - before)
"""


def memory_is_that_of_the_file():
    """16 million weights in bf16, 33 MB: running them takes these and a little; training them f32, gradients and moments too."""
    with tempfile.TemporaryDirectory() as folder:
        tenon.open("gpt", "dim=512", "layers=5", "heads=8", "vocab=256", "train.context=32").save(f"{folder}/whole.safetensors")
        half = f"{folder}/half.safetensors"
        subprocess.run([os.environ["TENON"], "ckpt", "convert", f"{folder}/whole.safetensors", half, "dtype=bf16"], check=True, capture_output=True)
        run, trained = map(int, subprocess.run([sys.executable, "-c", PEAK, half], check=True, capture_output=True, text=True).stdout.split())
        size = os.path.getsize(half)
        assert run < 1.2 * size + (12 << 20), f"{run >> 20} MiB for a file of {size >> 20} MiB"
        assert trained > 3 * size, f"{trained >> 20} MiB"


TESTS = (quantised_weights_keep_their_digits, memory_is_that_of_the_file)
