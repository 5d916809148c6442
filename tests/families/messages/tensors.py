"""tensors.py A B: of two checkpoints of a run, how many tensors are the same bit for bit, and how many have moved; those of frozen parts
must be the former, all others the latter."""
import json
import struct
import sys


def read(folder):
    with open(f"{folder}/model.safetensors", "rb") as f:
        raw = f.read()
    n, = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    part = {k: [8 + n + at for at in v["data_offsets"]] for k, v in head.items() if k != "__metadata__"}
    return {k: (head[k]["shape"], raw[begin:end]) for k, (begin, end) in part.items()}


a, b = map(read, sys.argv[1:])
frozen = {k for k in a if k.startswith(("sender.", "receiver."))}
assert a.keys() == b.keys(), "other tensors"
for k in a:
    assert (a[k] == b[k]) == (k in frozen), k
assert a["sender.embed"][0] == [21, 32] and a["receiver.embed"][0] == [20, 64] and a["receiver.layer1.attn.w_qkv"][0] == [192, 64]
print(len(frozen), "stay,", len(a) - len(frozen), "moved")
