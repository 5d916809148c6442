"""Writers of the formats that Tenon reads, without any of its checks: what they write may be wrong in any way."""
import ctypes
import json
import os
import socket
import struct
import zlib


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def replace(path, thing, *arguments):
    """The file, link or folder at `path` becomes what thing(path, ...) makes."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path):
        for name in os.listdir(path):
            replace(os.path.join(path, name), lambda _: None)
        os.rmdir(path)
    thing(path, *arguments)


def link(path, target):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


def fifo(path):
    os.mkfifo(path)


def folder(path):
    os.makedirs(path)


def unix_socket(path):
    """Bound by a short name, because addresses have 108 bytes."""
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.basename(path))
    os.chdir(here)


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_128bits.restype = Hash128
_xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh128(data):
    h = _xxhash.XXH3_128bits(data, len(data))
    return f"{h.high:016x}{h.low:016x}"


# --- weights ------------------------------------------------------------------------------------------------------------------


def safetensors(header, data=b"", length=None):
    """header: a dict, or its JSON as it is to be; length: what the file claims its header has."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_parts(path):
    raw = read(path)
    n = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + n]), raw[8 + n:]


def model(settings, name="gpt", tensors=None, data=b"", **more):
    meta = {"format": "tenon-model 1", "model": name, "settings": settings, **more}
    return safetensors({"__metadata__": meta, **(tensors or {})}, data)


TINY = ("shape=llama dim=16 layers=1 heads=1 kv_heads=auto ffn=auto vocab=256 tied=true train.context=16")


def llama2c(dim, ffn, layers, heads, kv, vocab, context, floats=0):
    return struct.pack("<7i", dim, ffn, layers, heads, kv, vocab, context) + struct.pack("<f", 0.01) * floats


def gguf_text(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_key(key, value):
    """int: u32, float: f32, str: a text, list: of u32 or texts, bytes: type and value as they are."""
    if isinstance(value, bytes):
        return gguf_text(key) + value
    if isinstance(value, list):
        items = b"".join(gguf_text(x) if isinstance(x, str) else struct.pack("<I", x) for x in value)
        return gguf_text(key) + struct.pack("<IIQ", 9, 8 if value and isinstance(value[0], str) else 4, len(value)) + items
    kind, raw = (8, gguf_text(value)) if isinstance(value, str) else (6, struct.pack("<f", value)) if isinstance(value, float) else (4, struct.pack("<I", value))
    return gguf_text(key) + struct.pack("<I", kind) + raw


def gguf_tensor(name, dims, kind=0, offset=0, rank=None):
    """dims: innermost first."""
    return gguf_text(name) + struct.pack("<I", len(dims) if rank is None else rank) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def gguf(keys, tensors, data=b"", version=3, counts=None, magic=b"GGUF", alignment=32):
    """keys: a dict; tensors: made by gguf_tensor; counts: (tensors, keys) as the header claims them."""
    n, k = counts or (len(tensors), len(keys))
    head = magic + struct.pack("<IQQ", version, n, k) + b"".join(gguf_key(*item) for item in keys.items()) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def gguf_model(dim=8, ffn=8, layers=1, heads=2, kv=2, vocab=256, arch="llama", real=None, without=(), more=(), **keys):
    """A small valid model of 0.01; `real` has the true sizes where keys claim others. keys: of the architecture, _ for a dot."""
    size = {"dim": dim, "ffn": ffn, "layers": layers, "heads": heads, "kv": kv, "vocab": vocab, **(real or {})}
    d, f, w = size["dim"], size["ffn"], size["dim"] // size["heads"] * size["kv"]
    shapes = [("token_embd.weight", (d, size["vocab"])), ("output_norm.weight", (d,))]
    for i in range(size["layers"]):
        shapes += [(f"blk.{i}.{name}", s) for name, s in
                   (("attn_norm.weight", (d,)), ("attn_q.weight", (d, d)), ("attn_k.weight", (d, w)), ("attn_v.weight", (d, w)),
                    ("attn_output.weight", (d, d)), ("ffn_norm.weight", (d,)), ("ffn_gate.weight", (d, f)), ("ffn_up.weight", (d, f)),
                    ("ffn_down.weight", (f, d)))]
    shapes += list(more)
    tensors, data = [], b""
    for name, s in shapes:
        if name in without:
            continue
        tensors.append(gguf_tensor(name, s, offset=len(data)))
        n = s[0] * (s[1] if len(s) > 1 else 1)
        data += struct.pack("<f", 0.01) * n
        data += bytes(-len(data) % 32)
    meta = {"general.architecture": arch, f"{arch}.embedding_length": dim, f"{arch}.block_count": layers, f"{arch}.attention.head_count": heads,
            f"{arch}.attention.head_count_kv": kv, f"{arch}.feed_forward_length": ffn, f"{arch}.context_length": 16,
            f"{arch}.attention.layer_norm_rms_epsilon": 1e-5, f"{arch}.rope.freq_base": 10000.0}
    meta.update((key if "." in key else f"{arch}.{key.replace('__', '.')}", value) for key, value in keys.items())
    return gguf(meta, tensors, data)


# --- checkpoints --------------------------------------------------------------------------------------------------------------


def sign(checkpoint, change=None, files=None):
    """manifest.json of what the folder now holds, with all its checksums right; change(manifest) before its own."""
    m = json.loads(read(f"{checkpoint}/manifest.json"))
    m["metrics"] = {"loss": None, "heldout": None}  # numbers could be written in other digits
    for name in list(m["files"]):
        path = f"{checkpoint}/{name}"
        if os.path.isfile(path):
            m["files"][name] = {"bytes": os.path.getsize(path), "xxh3": xxh128(read(path))}
    if files:
        m["files"].update(files)
    if change:
        change(m)
    del m["self"]
    m["self"] = xxh128(json.dumps(m, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    write(f"{checkpoint}/manifest.json", json.dumps(m, indent=2, ensure_ascii=False))


# --- packed files -------------------------------------------------------------------------------------------------------------


def zstd_zeros(megabytes, lead=b""):
    """A frame of blocks that each repeat one byte: 128 KiB of it cost 4 bytes."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x38"  # no sizes said; a window of 128 KiB
    if lead:
        frame += struct.pack("<I", len(lead) << 3)[:3] + lead
    block = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"\x00"
    last = struct.pack("<I", (1 << 17) << 3 | 1 << 1 | 1)[:3] + b"\x00"
    return frame + block * (8 * megabytes - 1) + last


def gzip_zeros(megabytes):
    z = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(1 << 20)
    return b"".join(z.compress(piece) for _ in range(megabytes)) + z.flush()


# --- arrays -------------------------------------------------------------------------------------------------------------------


def npy(shape, descr="<f4", data=b""):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def idx(dims, data=b"", kind=8):
    return struct.pack(">BBBB", 0, 0, kind, len(dims)) + b"".join(struct.pack(">I", d) for d in dims) + data


# --- data sets ----------------------------------------------------------------------------------------------------------------


def shard_edit(path, **fields):
    """Changes numbers of a shard's header and makes its checksum right again."""
    at = {"version": (8, "<I"), "kind": (12, "<I"), "item": (16, "<I"), "rank": (20, "<I"), "vocab": (24, "<Q"), "classes": (32, "<Q"),
          "documents": (40, "<Q"), "tokens": (48, "<Q"), "text_bytes": (56, "<Q"), "items_at": (64, "<Q"), "table_at": (72, "<Q"),
          "file_bytes": (80, "<Q")}
    raw = bytearray(read(path))
    for name, value in fields.items():
        struct.pack_into(at[name][1], raw, at[name][0], value)
    raw[240:256] = bytes.fromhex(xxh128(bytes(raw[:240])))
    write(path, bytes(raw))


def wire(z, shared, width, bits=8, group=32, scale="f16", private=0, models=0, encoder=bytes(range(16)), version=1, magic=b"TNWZ", slots=None, payload=None):
    """A wire message as docs/wire.md has it: a second implementation, in Python's own numbers."""
    top = 2 ** (bits - 1) - 1
    scales, stream, kind = b"", 0, 0 if bits == 16 else 1 if scale == "f16" else 2
    for i in range(0, len(z) if bits != 16 else 0, group):
        largest = max(abs(v) for v in z[i:i + group])
        exact = largest / top if largest else 1.0
        form = "<e" if kind == 1 else "<f"
        raw = struct.pack(form, exact)
        if struct.unpack(form, raw)[0] < exact:
            raw = (int.from_bytes(raw, "little") + 1).to_bytes(len(raw), "little")
        scales += raw
        for k, v in enumerate(z[i:i + group], i):
            q = max(-top - 1, min(top, round(v / struct.unpack(form, raw)[0])))
            stream |= (q & (2 ** bits - 1)) << k * bits
    if payload is None:
        payload = b"".join(struct.pack("<e", v) for v in z) if bits == 16 else scales + stream.to_bytes((len(z) * bits + 7) // 8, "little")
    head = struct.pack("<4sHBB16sIIIHHI", magic, version, bits, kind, encoder, shared + models * private if slots is None else slots, shared, private, models,
                       0 if bits == 16 else group, width)
    return head + struct.pack("<I", zlib.crc32(head)) + payload + struct.pack("<I", zlib.crc32(head + payload))


def journal(super_name, page_size=4096):
    """A hot rollback journal of SQLite without records that names a super-journal: whoever rolls it back removes that file."""
    name = super_name.encode()
    head = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + struct.pack(">5I", 0, 0, 1, 512, page_size)
    check = sum(name) & 0xffffffff
    lock_page = (1 << 30) // page_size + 1
    return head.ljust(512, b"\0") + struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), check) + head[:8]
