"""Data sets, files of data, tokenizers, and names. A data set begins as a valid one (GOOD/d) and is changed in one place."""
import json
import os
import shutil
import struct

from artefacts import ESC, OUT, artefact, elf
from formats import (fifo, folder, gzip_zeros, idx, link, npy, read, replace, shard_edit, unix_socket, write, zstd_zeros)

SHARD = "train-00000.bin"
MOST = (1 << 63) - 1

# --- data sets ----------------------------------------------------------------------------------------------------------------


def manifest(name, change, ok="", also=""):
    def make(d, good):
        shutil.copytree(f"{good}/d", f"{d}/d")
        m = json.loads(read(f"{d}/d/dataset.json"))
        change(m)
        write(f"{d}/d/dataset.json", json.dumps(m, ensure_ascii=False))
    make.__name__ = "data_set_" + name
    artefact("data_set", "d", ok, also)(make)


def shards(m):
    return m["splits"]["train"]["shards"]


READS = "inspect* train race eval sample-data"
manifest("names_a_shard_outside", lambda m: shards(m)[0].update(file=f"../{OUT}/d/{SHARD}"))
manifest("names_a_shard_in_full", lambda m: shards(m)[0].update(file="/etc/passwd"))
manifest("names_a_shard_with_escapes", lambda m: shards(m)[0].update(file=ESC))
manifest("of_endless_shards", lambda m: shards(m)[0].update(bytes=MOST, tokens=MOST, documents=MOST))
manifest("of_negative_shards", lambda m: shards(m)[0].update(bytes=-1, tokens=-1, documents=-1))
manifest("of_many_shards", lambda m: shards(m).extend(shards(m) * 99999))
manifest("of_an_endless_sum", lambda m: m["splits"]["train"].update(tokens=MOST, documents=MOST, text_bytes=MOST))
manifest("of_an_endless_vocabulary", lambda m: m.update(vocab=MOST))
manifest("of_a_large_vocabulary", lambda m: m.update(vocab=100000000), ok="sample-data")
manifest("of_an_odd_end", lambda m: m.update(eot=1 << 40), ok="")
manifest("with_a_tokenizer_outside", lambda m: m["tokenizer"].update(file=f"../{OUT}/secret"))
manifest("with_a_program_as_tokenizer", lambda m: m["tokenizer"].update(file="x.so"))
manifest("with_escapes", lambda m: m.update(settings=ESC, fingerprint=ESC), ok=READS)
manifest("of_escapes", lambda m: (m.update(kind=ESC, item=ESC), m["tokenizer"].update(kind=ESC, hash=ESC)))
manifest("of_other_types", lambda m: m.update(splits=[1, 2], tokenizer="a", vocab="256"))


def shard(name, change, ok="sample-data", also=""):  # sampling asks the manifest alone
    def make(d, good):
        shutil.copytree(f"{good}/d", f"{d}/d")
        change(f"{d}/d/{SHARD}")
    make.__name__ = "shard_" + name
    artefact("data_set", "d", ok, also)(make)


shard("cut", lambda p: write(p, read(p)[:-2000]))
shard("cut_in_its_header", lambda p: write(p, read(p)[:100]))
shard("empty", lambda p: write(p, b""))
shard("is_a_fifo", lambda p: replace(p, fifo))
shard("is_a_folder", lambda p: replace(p, folder))
shard("is_a_socket", lambda p: replace(p, unix_socket))
shard("is_endless", lambda p: replace(p, link, "/dev/zero"))
shard("is_a_secret", lambda p: replace(p, link, f"../{OUT}/secret"))
shard("of_endless_tokens", lambda p: shard_edit(p, tokens=MOST))
shard("of_tokens_that_wrap", lambda p: shard_edit(p, tokens=1 << 63, documents=(1 << 61) - 1))
shard("with_a_table_beyond", lambda p: shard_edit(p, table_at=(1 << 64) - 8))
shard("with_items_beyond", lambda p: shard_edit(p, items_at=1 << 62))
shard("of_another_kind", lambda p: shard_edit(p, kind=2, item=5, rank=8))


@artefact("data_set", "d", "inspect train race eval sample-data")
def shard_with_a_wild_table(d, good):
    """Where documents begin is read when it is used: beyond the end, and backwards."""
    shutil.copytree(f"{good}/d", f"{d}/d")
    raw = bytearray(read(f"{d}/d/{SHARD}"))
    table = struct.unpack("<Q", raw[72:80])[0]
    for i in range(1, 12):
        struct.pack_into("<Q", raw, table + 8 * i, (MOST >> i) * (i % 2))
    write(f"{d}/d/{SHARD}", bytes(raw))


@artefact("data_set", "d", "inspect train race eval sample-data")
def shard_with_wild_tokens(d, good):
    shutil.copytree(f"{good}/d", f"{d}/d")
    raw = bytearray(read(f"{d}/d/{SHARD}"))
    raw[256:30000] = b"\xff" * (30000 - 256)
    write(f"{d}/d/{SHARD}", bytes(raw))


def whole(name, make_it, ok=""):
    def make(d, good):
        shutil.copytree(f"{good}/d", f"{d}/d")
        replace(f"{d}/d/dataset.json", make_it)
    make.__name__ = "manifest_" + name
    artefact("data_set", "d", ok)(make)


whole("is_a_fifo", fifo)
whole("is_endless", lambda p: link(p, "/dev/zero"))
whole("nested_3000", lambda p: write(p, b'{"splits":' + b"[" * 3000 + b"]" * 3000 + b"}"))
whole("with_equal_keys", lambda p: write(p, b'{"format":"tenon-dataset","format":"tenon-dataset","version":1}'))
whole("of_15_mb", lambda p: write(p, b'{"format":"tenon-dataset","a":[' + b"[]," * 5000000 + b"[]]}"))

# --- files of data ------------------------------------------------------------------------------------------------------------

TEXT = "inspect* prepare* train race eval valid"


def file(name, target, content, ok="", also="", kind="data", room_mib=0):
    def make(d, good):
        if callable(content):
            content(f"{d}/{target}")
        else:
            write(f"{d}/{target}", content)
    make.__name__ = "file_" + name
    artefact(kind, target, ok, also, room_mib)(make)


file("of_one_line_of_40_mb", "t.jsonl", lambda p: write(p, b'{"text":"' + b"ab " * 13333333 + b'"}\n'), TEXT)
file("of_nested_lines", "t.jsonl", b'{"text":' + b"[" * 100000 + b"]" * 100000 + b"}\n")
file("of_lines_with_escapes", "t.jsonl", f'{{"text": 1, "{ESC}": 1}}\n{ESC}\n')
file("of_nested_json", "t.json", b"[" * 100000 + b"]" * 100000)
file("of_flat_json", "t.json", lambda p: write(p, b"[" + b"[]," * 5000000 + b"[]]"))
file("of_short_lines", "t.txt", lambda p: write(p, b"ab\n" * 13000000), TEXT)
file("with_escapes", "t.txt", f"{ESC}\n" * 2000, TEXT)
file("of_bytes", "t.txt", bytes(range(256)) * 200, TEXT)
file("gzip_bomb", "t.txt.gz", lambda p: write(p, gzip_zeros(200)), kind="packed", room_mib=96)
file("zstd_bomb", "t.txt.zst", lambda p: write(p, zstd_zeros(4096)), kind="packed", room_mib=96)
file("zstd_bomb_of_json", "t.jsonl.zst", lambda p: write(p, zstd_zeros(4096, b'{"text":"')), kind="packed", room_mib=96)
file("zstd_window", "t.txt.zst", b"\x28\xb5\x2f\xfd\x00\xf8" + b"\xff" * 64)
file("npy_that_overflows", "t.npy", npy("(4294967296, 4294967296, 4)"))
file("npy_of_2_60", "t.npy", npy("(1152921504606846976, 4)"))
file("npy_of_objects", "t.npy", npy("(1,)", "|O", b"cos\nsystem\n(S'touch marker'\ntR."))
file("npy_of_a_long_header", "t.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}")
file("idx_that_overflows", "t-images-idx3-ubyte", idx([1 << 31, 1 << 31, 1 << 31], bytes(64)))
file("idx_of_255_dimensions", "t-images-idx3-ubyte", b"\x00\x00\x08\xff" + b"\x00\x00\x00\x01" * 255)
file("csv_of_a_wide_row", "t.csv", lambda p: write(p, b",".join([b"1"] * 2000000) + b"\n"), "inspect* prepare*")
file("csv_with_escapes", "t.csv", f"1,2,{ESC}\n3,{ESC},1\n", "inspect*")
file("csv_of_long_numbers", "t.csv", b"1" * 1000000 + b",2,0\n1e999999999,nan,1\n", "inspect*")
file("tokens_of_a_false_header", "t.bin", struct.pack("<3i", 20240520, 1, -1) + bytes(1012) + b"\xff" * 64, "inspect*")
file("is_a_fifo", "t.txt", fifo)
file("is_a_socket", "t.txt", unix_socket)
file("is_endless", "t.txt", lambda p: link(p, "/dev/zero"))
file("is_a_program", "t.txt", b"\x7fELF" + bytes(range(256)) * 8, TEXT)


@artefact("data", "t", TEXT)
def folder_of_odd_names(d, good):
    for name in (ESC, "-rf", "--help", "a\nerror: b", "..\\", " ", "*", "$(touch marker)", "`touch marker`", "a;b", "\x7f"):
        write(f"{d}/t/{name}.txt", "some text of a file\n" * 300)


@artefact("data", "t", TEXT)
def folder_of_links(d, good):
    write(f"{d}/t/a.txt", "some text of a file\n" * 300)
    write(f"{d}/t/b.txt", "more text of a file\n" * 300)
    link(f"{d}/t/loop", ".")
    link(f"{d}/t/up", "../..")
    link(f"{d}/t/self.txt", "self.txt")


@artefact("data", "t", TEXT)
def folder_with_a_fifo(d, good):
    """What is no file is passed over in a folder."""
    write(f"{d}/t/a.txt", "some text of a file\n" * 300)
    fifo(f"{d}/t/b.txt")


@artefact("data", "t", "")
def folder_too_deep(d, good):
    folder(f"{d}/t")
    here = os.getcwd()
    os.chdir(f"{d}/t")
    for _ in range(400):
        os.mkdir("a" * 30)
        os.chdir("a" * 30)
    with open("t.txt", "w") as f:
        f.write("deep\n" * 100)
    os.chdir(here)


# --- pairs of sentences -------------------------------------------------------------------------------------------------------
# A folder of tables (GOOD/p) of which one is changed.

HEAD = b"gold_label\tsentence1\tsentence2\n"
PAIR = b"entailment\tA dog runs.\tAn animal runs.\n"


def pairs(name, content, table="train", ok="", end=".tsv", room_mib=0):
    def make(d, good):
        shutil.copytree(f"{good}/p", f"{d}/p")
        os.remove(f"{d}/p/snli_{table}.tsv")
        path = f"{d}/p/snli_{table}{end}"
        if callable(content):
            content(path)
        else:
            write(path, content)
    make.__name__ = "pairs_" + name
    artefact("pairs", "p", ok, room_mib=room_mib)(make)


pairs("of_one_line_of_40_mb", lambda p: write(p, HEAD + b"entailment\t" + b"ab " * 13333333))
pairs("of_many_columns", lambda p: write(p, HEAD[:-1] + b"\tx" * 400000 + b"\n" + PAIR[:-1] + b"\t" * 400000 + b"\n"), ok="*")
pairs("of_short_lines", lambda p: write(p, HEAD + b"-\ta\tb\n" * 4000000))
pairs("of_short_lines_held_out", lambda p: write(p, HEAD + b"-\ta\tb\n" * 2000000 + b"-\tc\tb\n" * 2000000), table="dev")
pairs("of_short_sentences", lambda p: write(p, HEAD + b"entailment\ta\tb\n" * 1500000), ok="*")
pairs("of_long_words", HEAD + (b"entailment\t" + b"a" * 60000 + b"\t" + b"\"" * 60000 + b"\n") * 8, ok="*")
pairs("of_quotes", HEAD + b'entailment\t"\t"""\nentailment\t"a""b"\t""""\n', ok="*")
pairs("with_escapes", HEAD + f"{ESC}\ta\tb\n".encode())
pairs("with_escapes_in_their_head", f"gold_label\t{ESC}\tsentence2\n".encode() + PAIR)
pairs("with_zeros", HEAD + b"entailment\ta\0b\tc\n")
pairs("of_bytes", bytes(range(256)) * 2000, table="test")
pairs("is_a_program", b"\x7fELF" + bytes(range(256)) * 8, table="dev")
pairs("is_a_fifo", fifo, table="dev")
pairs("is_a_socket", unix_socket, table="dev")
pairs("is_a_folder", folder, table="test")
pairs("is_endless", lambda p: link(p, "/dev/zero"), table="dev")
pairs("is_a_secret", lambda p: link(p, f"../{OUT}/secret"), table="test")
pairs("gzip_bomb", lambda p: write(p, gzip_zeros(200)), end=".tsv.gz", room_mib=96)
pairs("zstd_bomb", lambda p: write(p, zstd_zeros(4096, HEAD)), end=".tsv.zst", room_mib=96)

# --- tokenizers ---------------------------------------------------------------------------------------------------------------


def tokenizer(name, target, content, ok="", also=""):
    def make(d, good):
        if callable(content):
            content(f"{d}/{target}", good)
        else:
            write(f"{d}/{target}", content)
    make.__name__ = "tokenizer_" + name
    artefact("tokenizer", target, ok, also)(make)


def hf(name, change, ok="", also=""):
    def make(path, good):
        t = json.loads(read(f"{good}/tok/tokenizer.json"))
        change(t)
        write(path, json.dumps(t, ensure_ascii=False))
    tokenizer(name, "tokenizer.json", make, ok, also)


def loops(t):
    t["model"]["merges"] = [["a", "b"], ["ab", "a"], ["ba", "b"]] * 5000 + [["a", ""], ["", ""]]


def many_merges(t):
    t["model"]["merges"] = t["model"]["merges"] * 2000


def marks(t):
    t["model"].update(byte_fallback=True, vocab={f"<0x{b:02X}>": b for b in range(256)}, merges=[])
    t.update(pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, added_tokens=[],
             decoder={"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "})


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text, kind=1, score=0.0):
    return field(1, field(1, text if isinstance(text, bytes) else text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind))


SPM = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + field(2, b"\x18\x02")  # type BPE
LOOP = struct.pack("<2I", 0, 0)  # rules: a trie whose every node leads back to itself


hf("of_merges_in_a_loop", loops)
hf("of_many_merges", many_merges, ok="*")
hf("of_large_ids", lambda t: t["model"]["vocab"].update({"zz": 1 << 40, "zy": (1 << 31) - 1, "zx": -5}))
hf("of_an_id_far_away", lambda t: t["model"]["vocab"].update({"zz": 900000000}))
hf("of_equal_ids", lambda t: t["model"]["vocab"].update({"zz": 5, "zy": 5}))
hf("of_byte_tokens", lambda t: (t["model"].update(byte_fallback=True), t["model"]["vocab"].update({"<0x-1>": 900, "<0xFFF>": 901, "<0x1": 902})))
hf("with_escapes", lambda t: t["model"].update(type=ESC))
hf("of_escapes", lambda t: (t["model"]["vocab"].update({ESC: MOST}),))
hf("of_added_escapes", lambda t: t.update(added_tokens=[{"id": MOST, "content": ESC, "special": True}]))
hf("of_many_added", lambda t: t.update(added_tokens=[{"id": 100 + i, "content": f"<{i}>" * 50, "special": True} for i in range(200000)]))
hf("of_a_slow_pattern", lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(([a-z ]+)+)+$"}, "behavior": "Isolated"}))
hf("of_a_large_pattern", lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "((a{1,500}){1,500}){1,500}"}, "behavior": "Isolated"}))
hf("of_a_nested_pattern", lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(" * 5000 + "a" + ")" * 5000}, "behavior": "Isolated"}))
hf("of_other_types", lambda t: t.update(model=[1], added_tokens={"a": 1}))
hf("of_marks", marks, ok="*")
hf("of_marks_in_escapes", lambda t: (marks(t), t.update(normalizer={"type": "Sequence", "normalizers": [{"type": ESC}]})))
hf("of_endless_prepends", lambda t: (marks(t), t.update(normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}] * 500})))
hf("of_marks_and_many_added", lambda t: (marks(t), t.update(normalizer={"type": "Prepend", "prepend": "\u2581"}, added_tokens=[
    {"id": 600 + i, "content": "<same>" * 50, "normalized": True} for i in range(60000)])))
hf("of_an_unknown_escape", lambda t: (marks(t), t["model"].update(unk_token=ESC)))
tokenizer("nested_3000", "tokenizer.json", b'{"model":' + b"[" * 3000 + b"]" * 3000 + b"}")
tokenizer("of_24_mb", "tokenizer.json", lambda p, g: write(p, json.dumps(
    {"model": {"type": "BPE", "vocab": {f"t{i}": i for i in range(1500000)}, "merges": []}})))
tokenizer("of_brackets", "tokenizer.json", lambda p, g: write(p, b'{"model":{"type":"BPE","vocab":{},"merges":[' + b"[]," * 6000000 + b"[]]}}"))
tokenizer("is_a_program", "tokenizer.json", lambda p, g: elf(p, g))
tokenizer("is_a_fifo", "tokenizer.json", lambda p, g: fifo(p))
tokenizer("is_endless", "tokenizer.json", lambda p, g: link(p, "/dev/zero"))
tokenizer("tiktoken_of_large_ranks", "t.tiktoken", b"YQ== 99999999999999999999\nYg== -1\n")
tokenizer("tiktoken_of_a_far_rank", "t.tiktoken", b"YQ== 900000000\n")
tokenizer("tiktoken_of_no_base64", "t.tiktoken", f"{ESC} 1\n====== 2\n".encode())
tokenizer("tiktoken_of_one_line", "t.tiktoken", lambda p, g: write(p, b"YWJj" * 5000000))
tokenizer("llama2c_of_long_tokens", "tokenizer.bin", struct.pack("<ifi", 1 << 30, 1.0, (1 << 31) - 1) + b"a")
tokenizer("llama2c_of_no_scores", "tokenizer.bin", struct.pack("<i", 8) + (struct.pack("<fi", float("nan"), 1) + b"a") * 300)
tokenizer("llama2c_is_a_program", "tokenizer.bin", lambda p, g: elf(p, g))
tokenizer("spm_of_long_lengths", "t.model", b"\x0a" + varint(1 << 62) + b"a")
tokenizer("spm_of_a_long_number", "t.model", b"\x08" + b"\xff" * 400)
tokenizer("spm_of_groups", "t.model", b"\x0b" * 100000)
tokenizer("spm_of_escapes", "t.model", SPM + piece(ESC) + field(3, field(1, ESC.encode()) + field(2, b"abc")))
tokenizer("spm_of_no_scores", "t.model", SPM + piece("a", 1, float("nan")))
tokenizer("spm_of_unused", "t.model", SPM + piece("a", 5))
tokenizer("spm_of_many_pieces", "t.model", lambda p, g: write(p, SPM + b"".join(piece(f"t{i}") for i in range(600000))))
tokenizer("spm_of_many_controls", "t.model", lambda p, g: write(p, SPM + b"".join(piece("<same>", 3) for i in range(100000))))
tokenizer("spm_of_all_splits", "t.model", lambda p, g: write(p, SPM + b"".join(piece("a" * n) for n in range(1, 1024))))
tokenizer("spm_of_rules_in_a_loop", "t.model", SPM + piece("a") + field(3, field(2, struct.pack("<I", 4) + LOOP[:4] + b"a\0")), ok="*")
tokenizer("spm_of_rules_outside", "t.model", SPM + piece("a") + field(3, field(2, struct.pack("<I", 1 << 30) + LOOP + b"\0")))
tokenizer("spm_is_a_program", "t.model", lambda p, g: elf(p, g))
tokenizer("spm_is_endless", "t.model", lambda p, g: link(p, "/dev/zero"))

# --- names --------------------------------------------------------------------------------------------------------------------
# Valid things under names that mean something to a shell, a terminal or an argument list.


def named(name, kind, target, source):
    def make(d, good):
        if os.path.isdir(f"{good}/{source}"):
            shutil.copytree(f"{good}/{source}", f"{d}/{target}", symlinks=True)
            shutil.copy(f"{good}/t.txt", f"{d}/t.txt")  # a run's data
        else:
            shutil.copy(f"{good}/{source}", f"{d}/{target}")
    make.__name__ = "name_" + name
    artefact(kind, target, "*")(make)


for _kind, _source in (("weights", "m.safetensors"), ("run", "r"), ("settings", "c.yaml"), ("study", "s.yaml"), ("database", "s.db"),
                       ("data_set", "d"), ("data", "t.txt"), ("pairs", "p"), ("tokenizer", "tok/tokenizer.json"),
                       ("message", "message.wire")):
    named("as_usual_" + _kind, _kind, os.path.basename(_source), _source)  # what the others are measured against
named("weights_with_escapes", "weights", f"{ESC}.safetensors", "m.safetensors")
named("weights_with_a_line", "weights", "a\nerror: false.safetensors", "m.safetensors")
named("weights_like_a_flag", "weights", "--json.safetensors", "m.safetensors")
named("weights_like_a_key", "weights", "seed=1.safetensors", "m.safetensors")
named("run_with_escapes", "run", f"{ESC}", "r")
named("run_like_a_flag", "run", "-r", "r")
named("settings_with_escapes", "settings", f"{ESC}.yaml", "c.yaml")
named("study_with_escapes", "study", f"{ESC}.yaml", "s.yaml")
named("database_with_escapes", "database", f"{ESC}.db", "s.db")
named("database_like_an_address", "database", "file:s.db?mode=rwc&vfs=unix-none", "s.db")
named("data_set_with_escapes", "data_set", f"{ESC}", "d")
named("data_with_escapes", "data", f"{ESC}.txt", "t.txt")
named("data_with_a_line", "data", "a\nerror: false.txt", "t.txt")
named("pairs_with_escapes", "pairs", f"{ESC}", "p")
named("tokenizer_with_escapes", "tokenizer", f"{ESC}.json", "tok/tokenizer.json")
named("message_with_escapes", "message", f"{ESC}.wire", "message.wire")


@artefact("here", "x", "*")
def folder_of_programs(d, good):
    """Commands that open nothing here, in a folder whose names they might take for theirs."""
    for name in ("gpt_tiny", "gpt", "ten", "tep", "xor_tep", "gpt.so", "ten.so", "libten.so", "libc.so.6", "libm.so.6", "libcuda.so.1",
                 "libtenon.so.0", "bench", "config", "make", "cc", "gcc"):
        elf(f"{d}/{name}", good)
        os.chmod(f"{d}/{name}", 0o755)
    link(f"{d}/x", OUT + "/folder")
    link(f"{d}/data", OUT + "/folder")
