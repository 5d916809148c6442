#!/usr/bin/env python3
"""Tokenizers of other people's models against the libraries that made them: ids and decoded text, exactly.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    tests/peers/check_tokenizers.py [DATA]        DATA: folder of real data sets, ../shared/data by default

Builds small vocabularies here (tokenizer.json of BPE with byte fallback, with Metaspace and without; sentencepiece models of
type BPE), and asks each about real text, made text of every script, spaces in every place, emoji, control characters and ids
in random order. Needs build/libtenon.so (or TENON_LIBRARY). Ends with "N passed, N failed"."""
import gzip
import io
import json
import os
import pathlib
import random
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import tenon  # noqa: E402

DATA = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "../shared/data")
MARK = "\u2581"
WORK = tempfile.mkdtemp()
results = []


def check(name, bad, n):
    results.append(not bad)
    print(f"{'FAILED' if bad else 'ok    '} {name}: {n - len(bad)} of {n} the same" + "".join(f"\n    {b}" for b in bad[:3]))


# --- texts --------------------------------------------------------------------------------------------------------------------

FIXED = ["", " ", "  ", "   ", "a", " a", "a ", " a ", "  a  b  ", "\n", "\n\n", "\t", "a\tb", "\r\n", "\0", "a\0b", "\x01\x1f\x7f", MARK,
         MARK + "a", "a" + MARK, " " + MARK + " ", MARK * 5, "<s>", "</s>", "<unk>", "a<s>b", "<s> a", "x </s> y", "<0x0A>", "<0xFF>", "<0x",
         "don't", "3.14159", "  leading", "trailing  ", "\u00a0a\u3000b\u2003c", "\u200b\ufeff", "e\u0301 \u00e9", "\ufb01 \u2126 \u212b \u00bd \u2460 \uff21",
         "👍🏽👨‍👩‍👧‍👦🇩🇪", "日本語の文章です。", "中文没有空格", "한국어", "ภาษาไทย", "Привет", "مرحبا", "नमस्ते", "\U0010ffff\ufffd\uffff", "a" * 300,
         "ab" * 150, " " * 70, "\n" * 40, "[INST] hi [/INST]", "user<sep>defined", "<sep><sep>", " <sep> ", "<se", "foo bar<sep>", "\u1100\u1161\u11a8"]
POOLS = ["abcdefghij", "ABCXYZ", "    ", " \t\n\r", "\u00a0\u3000\u2028\u200b", "0123456789", "日本語文字", "éüßñåø", "\u0301\u0308\u0327", "👩\u200d👧🇩🇪👍🏽",
         "한각\u1100\u1161\u11a8", "ΔδЖжשم", "!?.,/-_#<>", MARK, "\0\x01\x1b\x7f", "\ufb01\u00bd\u2460\uff21\u33a5"]


def lines(path):
    if not path.exists():
        print(f"skipped: {path} is not there")
        return []
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", "replace").split("\n")


def texts():
    rng = random.Random(7)
    real = []
    for name in ("text/tinyshakespeare/input.txt", "text/wikitext-2/valid.txt.gz", "text/books/moby-dick.txt.gz", "text/names.txt"):
        real += [x for x in lines(DATA / name) if x][:40000]
    rng.shuffle(real)
    made = []
    for _ in range(1200):
        pools = rng.sample(POOLS, rng.randint(1, 4))
        made.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 40))))
    wild = ["".join(chr(c) for c in (rng.randrange(0x110000) for _ in range(rng.randint(1, 12))) if not 0xD800 <= c < 0xE000) for _ in range(400)]
    some = real[:1000] if real else (ROOT / "ARCHITECTURE.md").read_text().split("\n")
    return FIXED + made + wild + some + ["\n".join(some[i:i + 20]) for i in range(0, 400, 20)], real[1000:9000] or some


STRINGS, CORPUS = texts()
CORPUS = [x for x in CORPUS if x.strip()] + [x for x in FIXED if x.strip() and "\0" not in x and "<" not in x]

# --- tokenizers ---------------------------------------------------------------------------------------------------------------

LLAMA = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def train(name, normalizer=None, pre=None, decoder=None, fallback=True, unk=True, fuse=True, ignore=False, bos=True, alphabet=120):
    t = Tokenizer(models.BPE(unk_token="<unk>" if unk else None, byte_fallback=fallback, fuse_unk=fuse, ignore_merges=ignore))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder or decoders.Sequence(LLAMA)
    # without a pre-tokenizer every line would be one word, and its merges whole lines
    training = t.pre_tokenizer
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>"] + (BYTES if fallback else []),
                                                      limit_alphabet=alphabet, show_progress=False))
    spec = json.loads(t.to_str())
    spec["pre_tokenizer"] = json.loads(t.to_str())["pre_tokenizer"] if training else None
    # bytes are tokens, not added ones: the file of a real model has only three
    spec["added_tokens"] = [a for a in spec["added_tokens"] if a["id"] < 3]
    t = Tokenizer.from_str(json.dumps(spec))
    if training:
        t.pre_tokenizer = training
    t.add_tokens([AddedToken("<sep>", normalized=False), AddedToken("[INST]", normalized=True), AddedToken("<left>", lstrip=True, normalized=False)])
    if bos:
        t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    path = f"{WORK}/{name.replace(' ', '_')}.json"
    t.save(path)
    return path, Tokenizer.from_file(path)


def random_ids(vocab, n=400):
    rng = random.Random(11)
    return [[rng.randrange(vocab) for _ in range(rng.randint(1, 12))] for _ in range(n)]


def check_hf(name, **options):
    path, reference = train(name, **options)
    ours = tenon.Tokenizer(path)
    assert ours.vocab == reference.get_vocab_size(), (ours.vocab, reference.get_vocab_size())
    for special in (True, False):
        reference.encode_special_tokens = not special
        ids, text = [], []
        for s in STRINGS:
            want, got = reference.encode(s, add_special_tokens=False).ids, ours.encode(s, special=special).tolist()
            if want != got:
                ids.append(f"{s[:60]!r}: {got[:12]} instead of {want[:12]}")
            want, got = reference.decode(want, skip_special_tokens=False), ours.decode(want)
            if want != got and not want.startswith("<s>"):  # ours takes the space after BOS away too
                text.append(f"{s[:60]!r}: {got[:60]!r} instead of {want[:60]!r}")
        check(f"{name}, special tokens {'read' if special else 'as text'}: ids", ids, len(STRINGS))
        check(f"{name}, special tokens {'read' if special else 'as text'}: text", text, len(STRINGS))
    bad = []
    rows = [r for r in random_ids(ours.vocab) if r[0] != 1]
    for row in rows:
        want, got = reference.decode(row, skip_special_tokens=False), ours.decode(row)
        if "\ufffd" not in want and want != got:  # a run with bad bytes is replaced as a whole there
            bad.append(f"{row}: {got!r} instead of {want!r}")
    check(f"{name}: text of random ids", bad, len(rows))


def prepend(*more):
    return normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK), *more])


def metaspace(scheme, split):
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)


def huggingface():
    check_hf("llama 2", normalizer=prepend())
    check_hf("llama 2, NFC", normalizer=prepend(normalizers.NFC()))
    check_hf("gemma", normalizer=normalizers.Replace(" ", MARK), pre=pre_tokenizers.Split(" ", "merged_with_previous"), decoder=decoders.Sequence(LLAMA[:3]))
    for scheme in ("first", "always", "never"):
        for split in (True, False):
            check_hf(f"metaspace {scheme} {'split' if split else 'whole'}", pre=metaspace(scheme, split),
                     decoder=decoders.Sequence(LLAMA if split else [decoders.Metaspace(prepend_scheme=scheme), decoders.ByteFallback(), decoders.Fuse()]))
    check_hf("metaspace decoder alone", pre=metaspace("always", True), decoder=decoders.Metaspace(prepend_scheme="always"))
    check_hf("unknown fused", pre=metaspace("always", True), decoder=decoders.Metaspace(), fallback=False)
    check_hf("unknown apart", pre=metaspace("first", False), decoder=decoders.Metaspace(), fallback=False, fuse=False)
    check_hf("unknown left out", normalizer=prepend(), fallback=False, unk=False)
    check_hf("ignore merges", pre=metaspace("always", True), ignore=True, alphabet=40)


# --- sentencepiece ------------------------------------------------------------------------------------------------------------


def check_spm(name, change=None, path=None, **options):
    if not path:
        model = io.BytesIO()
        usable = [x for x in CORPUS if "\0" not in x and len(x) < 4000]
        options = {"vocab_size": 1500, "model_type": "bpe", "character_coverage": 0.995, "minloglevel": 2, **options}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(usable), model_writer=model, **options)
        proto = pb.ModelProto()
        proto.ParseFromString(model.getvalue())
        if change:
            change(proto)
        path = f"{WORK}/{name.replace(' ', '_').replace(',', '')}.model"
        pathlib.Path(path).write_bytes(proto.SerializeToString())
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ours = tenon.Tokenizer(path)
    assert ours.vocab == reference.get_piece_size()
    assert ours.start == reference.bos_id() and ours.end == reference.eos_id(), (ours.start, ours.end)
    ids, text = [], []
    for s in STRINGS:
        want, got = reference.encode(s), ours.encode(s).tolist()
        if want != got:
            ids.append(f"{s[:60]!r}: {got[:12]} instead of {want[:12]}")
        want, got = reference.decode(want), ours.decode(want)
        if want != got:
            text.append(f"{s[:60]!r}: {got[:60]!r} instead of {want[:60]!r}")
    check(f"{name}: ids", ids, len(STRINGS))
    check(f"{name}: text", text, len(STRINGS))
    bad = []
    for row in random_ids(ours.vocab):
        want, got = reference.decode(row), ours.decode(row)
        if "\ufffd" not in want and want != got:
            bad.append(f"{row}: {got!r} instead of {want!r}")
    check(f"{name}: text of random ids", bad, 400)
    rng, bad = random.Random(3), []
    for _ in range(300):
        raw = bytes(rng.choice((rng.randrange(256), 0x20, 0x61, 0xC3, 0xA9, 0xE2, 0x96, 0x81)) for _ in range(rng.randint(1, 12)))
        want, got = reference.encode(raw), ours.encode(raw).tolist()
        if want != got:
            bad.append(f"{raw!r}: {got} instead of {want}")
    check(f"{name}: ids of bytes that are not UTF-8", bad, 300)


def drop_letter(proto):
    """A letter that is no piece, but part of pieces."""
    for p in proto.pieces:
        if p.piece in ("e", "t") and p.type == 1:
            p.piece = f"never{p.piece}"


def equal_scores(proto):
    for p in proto.pieces:
        if p.type == 1:
            p.score = -float(int(-p.score) // 50)


def spm():
    plain = {"normalization_rule_name": "identity", "byte_fallback": True}
    check_spm("sentencepiece, llama", remove_extra_whitespaces=False, **plain)
    check_spm("sentencepiece, squeezed", **plain)
    check_spm("sentencepiece, no prefix", add_dummy_prefix=False, remove_extra_whitespaces=False, **plain)
    check_spm("sentencepiece, no prefix squeezed", add_dummy_prefix=False, **plain)
    check_spm("sentencepiece, unknown", normalization_rule_name="identity")
    check_spm("sentencepiece, nmt_nfkc", byte_fallback=True)
    check_spm("sentencepiece, nfkc_cf", normalization_rule_name="nfkc_cf")
    check_spm("sentencepiece, own pieces", user_defined_symbols=["<sep>", "foo bar", "[INST]", "日本", "a b", " "], control_symbols=["<ctl>", "Ж"], **plain)
    check_spm("sentencepiece, other names", bos_piece="<b>", eos_piece="<e>", unk_piece="?", unk_surface="(?)", normalization_rule_name="identity")
    check_spm("sentencepiece, no ends", bos_id=-1, eos_id=-1, **plain)
    check_spm("sentencepiece, a letter that is no piece", drop_letter, remove_extra_whitespaces=False, **plain)
    check_spm("sentencepiece, equal scores", equal_scores, **plain)
    check_spm("sentencepiece, spaces as they are", lambda p: setattr(p.normalizer_spec, "escape_whitespaces", False), **plain)
    real = DATA / "models/babyllama105/tok105.model"
    if real.exists():
        check_spm("tok105.model", path=real)
    else:
        print(f"skipped: {real} is not there")


def refused():
    for kind, word in (("unigram", "Unigram"), ("char", "Char"), ("word", "Word")):
        path = f"{WORK}/{kind}.model"
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS[:2000]), model_writer=model, vocab_size=400, model_type=kind, minloglevel=2,
                                                 hard_vocab_limit=False)
        pathlib.Path(path).write_bytes(model.getvalue())
        try:
            tenon.Tokenizer(path)
            said = "it was read"
        except tenon.TenonError as e:
            said = str(e)
        check(f"refused: {kind}", [] if word in said and "\n" not in said else [said], 1)


print(f"{len(STRINGS)} texts")
huggingface()
spm()
refused()
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(0 if all(results) else 1)
