"""Hostile files for bounds.sh: bounds.py FOLDER BYTES makes them and prints a line for each command to run:

    name | exit code | file that counts | command on it | the same command on a tiny file of the format

FOLDER is made and becomes the commands' working directory. A file has about BYTES bytes, unless its point is to be small."""
import json
import os
import random
import struct
import sys
import zlib

folder, size = sys.argv[1], int(sys.argv[2])
os.makedirs(folder)
os.chdir(folder)
rows = []


def put(name, data):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def row(name, code, file, command, tiny):
    rows.append(f"{name}|{code}|{file}|{command}|{tiny}")


def fill(piece, most=size):
    """piece(i) joined until it has about `most` bytes"""
    parts, n, i = [], 0, 0
    while n < most:
        p = piece(i)
        parts.append(p)
        n += len(p)
        i += 1
    return "".join(parts)


def tensors(header, data=b""):
    if not isinstance(header, str):
        header = json.dumps(header)
    return struct.pack("<Q", len(header)) + header.encode() + data


def model_file(settings, more=None, data=b"", model="gpt"):
    return tensors({"__metadata__": {"format": "tenon-model 1", "model": model, "settings": settings}, **(more or {})}, data)


random.seed(1)
put("text.txt", "A line of text to learn from, and one more.\n" * 200)

# --- weights: 200 bytes that describe a model, and headers of many entries ---------------------------------------------------
put("tiny.safetensors", model_file("dim=8 layers=1 heads=1 vocab=256"))
small = {
    "wide": "dim=16384 heads=64 layers=2 vocab=256",
    "deep": "dim=256 layers=1024 vocab=256",
    "words": "dim=64 layers=1 vocab=10000000",
    "long": "dim=8 layers=1 vocab=256 shape=gpt2 train.context=100000000",
}
for name, settings in small.items():
    put(f"{name}.safetensors", model_file(settings))
    row(f"sample {name}", 3, f"{name}.safetensors", f"sample {name}.safetensors tokenizer=bytes", "sample tiny.safetensors tokenizer=bytes")
    row(f"eval {name}", 3, f"{name}.safetensors", f"eval {name}.safetensors data=text.txt train.context=16 train.batch=1",
        "eval tiny.safetensors data=text.txt train.context=16 train.batch=1")
put("ten.safetensors", model_file("dim=8192 layers=64 vocab=256", model="ten"))
row("sample ten", 3, "ten.safetensors", "sample ten.safetensors tokenizer=bytes", "sample tiny.safetensors tokenizer=bytes")
embed = struct.pack("<64f", *[0.5] * 64)
put("one.safetensors", model_file("dim=8192 heads=64 layers=24 vocab=256", {"embed": {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]}}, embed))
row("sample one tensor", 3, "one.safetensors", "sample one.safetensors tokenizer=bytes", "sample tiny.safetensors tokenizer=bytes")

headers = {
    "entries": fill(lambda i: f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},')[:-1],
    "objects": '"a":[' + fill(lambda i: "{},")[:-1] + "]",
    "arrays": '"a":[' + fill(lambda i: "[],")[:-1] + "]",
    "metadata": '"__metadata__":{' + fill(lambda i: f'"{i:x}":"",')[:-1] + "}",
    "deep header": '"a":' + "[" * size,
    "one name": '"' + "n" * size + '":1',
}
for name, inside in headers.items():
    file = name.replace(" ", "_") + ".safetensors"
    put(file, tensors("{" + inside + "}"))
    for verb in ("ckpt inspect", "sample"):
        code = 0 if name == "entries" and size < 5 << 20 and verb != "sample" else 3
        row(f"{verb} {name}", code, file, f"{verb} {file}", f"{verb} tiny.safetensors")
put("tiny.bin", struct.pack("<7i", 8, 8, 1, 1, 1, 256, 8))
put("huge.bin", struct.pack("<7i", 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 1, 1, 0x7FFFFFFF, 0x7FFFFFFF))
put("large.bin", struct.pack("<7i", 65536, 1000000, 1024, 1, 1, 10000000, 1000000000) + b"\0" * 100)
for name in ("huge", "large"):
    row(f"llama2.c {name}", 3, f"{name}.bin", f"sample {name}.bin tokenizer=bytes", "sample tiny.bin tokenizer=bytes")

put("tiny.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 0))


def gguf_text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(keys, tensors, n, k, data=b""):
    head = b"GGUF" + struct.pack("<IQQ", 3, n, k) + keys + tensors
    return head + bytes(-len(head) % 32) + data


entry = lambda i: gguf_text(f"{i:x}") + struct.pack("<IQIQ", 1, 1, 0, 32 * i)
few = min(size // 64, 64000)
ggufs = {
    "keys": gguf(b"".join(gguf_text(f"{i:x}") + b"\0\0\0\0\0" for i in range(16000)), b"", 0, 16000),
    "counts": gguf(b"", b"", 64000, 16000),
    "words": gguf(gguf_text("a") + struct.pack("<IIQ", 9, 8, size // 8) + bytes(size // 8 * 8), b"", 0, 1),
    "tensors": gguf(b"", b"".join(entry(i) for i in range(few)), few, 0, bytes(32 * few)),
    "bytes": gguf(gguf_text("a") + struct.pack("<IIQ", 9, 0, size) + bytes(size), b"", 0, 1),
}
for name, data in ggufs.items():
    put(f"{name}.gguf", data)
    for verb in ("ckpt inspect", "sample"):
        row(f"{verb} gguf {name}", 3, f"{name}.gguf", f"{verb} {name}.gguf", f"{verb} tiny.gguf")

# --- runs --------------------------------------------------------------------------------------------------------------------
def run(folder, settings, state="{}", manifest="{}", weights=None):
    put(f"{folder}/config.yaml", settings)
    put(f"{folder}/step-1/model.safetensors", weights or tensors({}))
    put(f"{folder}/step-1/state.json", state)
    put(f"{folder}/step-1/manifest.json", manifest)


run("run-tiny", "model: gpt\ndim: 8\n")
run("run-state", "model: gpt\ndim: 8\n", '{"a":[' + fill(lambda i: "{},", min(size, 15 << 20))[:-1] + "]}",
    '{"a":[' + fill(lambda i: "{},", min(size, 15 << 20))[:-1] + "]}")
row("manifest.json of a run", 3, "run-state/step-1/manifest.json", "ckpt verify run-state/step-1", "ckpt verify run-tiny/step-1")
row("manifest.json, sampled", 3, "run-state/step-1/manifest.json", "sample run-state", "sample run-tiny")

# --- tokenizers --------------------------------------------------------------------------------------------------------------
def alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    return [chr(b) if b in keep else chr(256 + [x for x in range(256) if x not in keep].index(b)) for b in range(256)]


chars = alphabet()
letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
bytes_vocab = ",".join(json.dumps(c, ensure_ascii=False) + f":{i}" for i, c in enumerate(chars))


def word(i):
    s = ""
    while True:
        s += letters[i % 62]
        i //= 62
        if not i:
            return s


def tokenizer(vocab=None, merges="", added="", root=""):
    return ('{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},' + root + '"added_tokens":[' + added +
            '],"model":{"type":"BPE","vocab":{' + (vocab or bytes_vocab) + '},"merges":[' + merges + "]}}")


ascii_words = [a + b for a in letters for b in letters]
pair_vocab = bytes_vocab + "," + ",".join(f'"{w}":{256 + i}' for i, w in enumerate(ascii_words))
many = bytes_vocab + "," + fill(lambda i: f'"{"zz" + word(i)}":{256 + i},', min(size, 26 << 20))[:-1]
put("tok-tiny/tokenizer.json", tokenizer(bytes_vocab + ',"zzzz":256'))
for name, code, text in [
    ("merges", 2, tokenizer(pair_vocab, fill(lambda i: '"%s %s",' % (letters[i % 62], letters[i // 62 % 62]))[:-1])),
    ("objects", 3, tokenizer(root='"normalizer":[' + fill(lambda i: "{},")[:-1] + "],")),
    ("unknown", 2, tokenizer(bytes_vocab + ',"zzzz":256', root='"x":[' + fill(lambda i: "{},")[:-1] + "],")),
    ("vocab", 2, tokenizer(many)),
    ("added", 3, tokenizer(added=fill(lambda i: f'{{"id":{300 + i},"content":"<{i}>"}},')[:-1])),
    ("added_objects", 3, tokenizer(added='{"id":300,"content":"<>","x":[' + fill(lambda i: "{},")[:-1] + "]},{}")),
    ("far", 3, tokenizer(bytes_vocab + ',"zzz":2097151')),
    ("trie", 3, tokenizer(added=fill(lambda i: '{"id":%d,"content":"%s"},' % (300 + i, word(i) + "x" * 1000), min(size, 60 << 20))[:-1])),
]:
    put(f"tok-{name}/tokenizer.json", text)
    row(f"tokenizer.json {name}", code, f"tok-{name}/tokenizer.json", f"sample model tokenizer=tok-{name}/tokenizer.json", "sample model tokenizer=tok-tiny/tokenizer.json")
import base64

b64 = lambda b: base64.b64encode(b).decode()
put("tiny.tiktoken", "".join(f"{b64(bytes([i]))} {i}\n" for i in range(256)))
put("many.tiktoken", "".join(f"{b64(bytes([i]))} {i}\n" for i in range(256)) + fill(lambda i: f"{b64(struct.pack('>I', i + (1 << 25)))} {256 + i}\n", min(size, 30 << 20)))
row("tiktoken", 2, "many.tiktoken", "sample model tokenizer=many.tiktoken#gpt2", "sample model tokenizer=tiny.tiktoken#gpt2")
put("same.tiktoken", "".join(f"{b64(bytes([i]))} {i}\n" for i in range(256)) + "".join(f"{b64(b'a' * (i + 2))} {256 + i}\n" for i in range(1020)))
row("tiktoken of one letter", 2, "same.tiktoken", "sample model tokenizer=same.tiktoken#gpt2", "sample model tokenizer=tiny.tiktoken#gpt2")

# --- text --------------------------------------------------------------------------------------------------------------------
put("tiny.jsonl", '{"text":"a line"}\n' * 40)
put("line.jsonl", '{"text":"' + "a" * size + '"}\n{"text":"b"}\n')
put("objects.jsonl", '{"text":"a","x":[' + fill(lambda i: "{},")[:-1] + ']}\n{"text":"b"}\n')
put("escapes.jsonl", '{"text":"' + "\\u0041" * (size // 6) + '"}\n{"text":"b"}\n')
for name in ("line", "objects", "escapes"):
    row(f"jsonl {name}", 0, f"{name}.jsonl", f"data prepare {name}.jsonl out=p-{name} threads=1", "data prepare tiny.jsonl out=p0 threads=1")
put("list.json", '["a",{"text":"b","x":[' + fill(lambda i: "{},")[:-1] + "]}]")
put("tiny.json", '["a","b","c"]')
row("json list", 0, "list.json", "data prepare list.json out=p-list threads=1", "data prepare tiny.json out=p0 threads=1")
put("lines.txt", "ab\n" * (size // 3))
put("blank.txt", "a\n\n" * (size // 3))
row("doc_sep=line", 0, "lines.txt", "data prepare lines.txt out=p-lines threads=1 doc_sep=line", "data prepare text.txt out=p0 threads=1 doc_sep=line")
row("doc_sep=blank", 0, "blank.txt", "data prepare blank.txt out=p-blank threads=1 doc_sep=blank", "data prepare text.txt out=p0 threads=1 doc_sep=blank")
row("lines.jsonl trained on", 0, "short.jsonl", "train ten dim=8 layers=1 train.context=8 train.batch=1 train.steps=1 threads=1 data=short.jsonl run=r1",
    "train ten dim=8 layers=1 train.context=8 train.batch=1 train.steps=1 threads=1 data=tiny.jsonl run=r0")
put("short.jsonl", '"ab"\n' * (size // 5))
row("prepared lines trained on", 0, "p-lines/train-00000.bin", "train ten dim=8 layers=1 train.context=8 train.batch=1 train.steps=1 threads=1 data=p-lines run=r2",
    "train ten dim=8 layers=1 train.context=8 train.batch=1 train.steps=1 threads=1 data=p0 run=r0")

# --- tables, arrays, data sets -----------------------------------------------------------------------------------------------
put("tiny.csv", "1,2,0\n" * 20)
put("wide.csv", "1," * (min(size, 2 << 20) // 2 - 8) + "0\n")
put("wider.csv", "1," * (min(size, 15 << 20) // 2) + "0\n")
put("line.csv", "1" * size + ",0\n")
for name, code in (("wide", 0), ("wider", 3 if size > 2 << 20 else 0), ("line", 3)):
    row(f"csv {name}", code, f"{name}.csv", f"data prepare {name}.csv out=c-{name}", "data prepare tiny.csv out=c0")


def npy(shape, data=b""):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


put("tiny.npy", npy("(4, 2)", b"\0" * 64))
put("tiny-labels.npy", npy("(4,)", b"\0" * 32))
put("wide.npy", npy("(1000000, 16777216)", b"\0" * 64))
put("deep.npy", npy("(100000000000, 2)", b"\0" * 64))
put("wide.idx", struct.pack(">BBBBIIII", 0, 0, 14, 3, 60000, 4096, 4096, 0)[:16] + b"\0" * 64)
put("tiny.idx", struct.pack(">BBBBII", 0, 0, 14, 2, 4, 1) + b"\0" * 32)
for name in ("wide.npy", "deep.npy"):
    row(name, 3, name, f"data prepare {name} out=n-{name} labels=tiny-labels.npy", "data prepare tiny.npy out=n0 labels=tiny-labels.npy")
row("wide.idx", 3, "wide.idx", "data prepare wide.idx out=n-idx labels=tiny-labels.npy", "data prepare tiny.idx out=n0 labels=tiny-labels.npy")
put("set-tiny/dataset.json", "{}")
put("set-objects/dataset.json", '{"format":"tenon-dataset","x":[' + fill(lambda i: "{},", min(size, 15 << 20))[:-1] + "]}")
put("set-shards/dataset.json", '{"format":"tenon-dataset","version":1,"kind":"tokens","item":"u8","vocab":256,"eot":-1,"settings":"","fingerprint":"",'
    '"tokenizer":{"kind":"bytes","hash":"","file":""},"splits":{"train":{"documents":0,"tokens":0,"text_bytes":0,"shards":[' +
    fill(lambda i: '{"file":"train-%05d.bin","bytes":1,"documents":0,"tokens":0,"hash":""},' % i, min(size, 15 << 20))[:-1] + "]}}}")
for name in ("objects", "shards"):
    row(f"dataset.json {name}", 3, f"set-{name}/dataset.json", f"data inspect set-{name}", "data inspect set-tiny")

# --- settings, studies, metrics ----------------------------------------------------------------------------------------------
put("tiny.yaml", "model: ten\ndim: 8\n")
put("large.yaml", "model: ten\n" + "# a comment\n" * (size // 12))
put("flow.yaml", "model: ten\ndim: " + "[" * 60000)
put("keys.yaml", "model: ten\n" + fill(lambda i: f"k{i}: 1\n", 65000))
for name in ("large", "flow", "keys"):
    row(f"settings {name}", 2 if name == "keys" else 3, f"{name}.yaml", f"config show {name}.yaml", "config show tiny.yaml")
put("study-tiny.yaml", "study: a\n")
put("study-keys.yaml", "study: a\nspace:\n" + fill(lambda i: f" k{i}: 1\n", 65000))
row("study", 2, "study-keys.yaml", "lab run study-keys.yaml --plan", "lab run study-tiny.yaml --plan")



chain = lambda i: "".join("ab"[i >> k & 1] for k in range(i.bit_length() - 1)).encode()
words = [bytes([i]) for i in range(256)] + [chain(i) for i in range(4, 1 << 17)]
put("closed.tiktoken", "".join(f"{b64(w)} {i}\n" for i, w in enumerate(words)))
row("tiktoken, all splits", 3, "closed.tiktoken", "sample model tokenizer=closed.tiktoken#gpt2", "sample model tokenizer=tiny.tiktoken#gpt2")
scores = lambda n: struct.pack("<i", 8) + b"".join(struct.pack("<fi", 0, 1) + b"a" for i in range(n))
put("tiny-scores.bin", scores(300))
put("scores.bin", scores(min(size, 18 << 20) // 9))
row("tokenizer.bin", 2 if size < 5 << 20 else 3, "scores.bin", "sample model tokenizer=scores.bin", "sample model tokenizer=tiny-scores.bin")
field = lambda tag, data: bytes([tag]) + (bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])) + data
piece = lambda text, kind=1: field(0x0A, field(0x0A, text) + bytes([0x18, kind]))
pieces = lambda n: piece(b"<unk>", 2) + field(0x12, b"\x18\x02") + b"".join(piece(word(i).encode()) for i in range(n))
put("tiny.model", pieces(300))
put("many.model", pieces(min(size, 12 << 20) // 10))
put("splits.model", pieces(1) + b"".join(piece(w) for w in words[256:] if len(w) > 1))
put("rules.model", pieces(300) + field(0x1A, field(0x12, (1 << 10).to_bytes(4, "little") + bytes(1 << 10) + bytes(1 << 10))))
row("sentencepiece", 2 if size < 5 << 20 else 3, "many.model", "sample model tokenizer=many.model", "sample model tokenizer=tiny.model")
row("sentencepiece, all splits", 3, "splits.model", "sample model tokenizer=splits.model", "sample model tokenizer=tiny.model")
row("sentencepiece, rules", 2, "rules.model", "sample model tokenizer=rules.model", "sample model tokenizer=tiny.model")

# --- packed: bounds.sh packs them --------------------------------------------------------------------------------------------
put("zeros.safetensors", tensors({"a": {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}}, b"\0" * (4 * size)))
row("packed zeros", 3, "zeros.safetensors.zst", "ckpt inspect zeros.safetensors.zst", "ckpt inspect tiny.safetensors.zst")
print("\n".join(rows))
