#!/usr/bin/env python3
"""Writes the golden files of tests/token with the reference libraries. Run by hand, from the repository's root:

    pip install tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3
    tests/token/make_golden.py [DATA]        DATA: folder of real data sets, ../shared/data by default

strings.txt holds the strings, one a line (printable ASCII as it is, all else and the backslash as \\xNN); NAME.ids their ids,
one line a string. The mini vocabularies are trained here on the strings and on this repository's own documents. Ids of
published vocabularies (gpt2, qwen2.5, tok512) are ids only: their files are read from DATA by the tests that use them.
"""
import base64
import gzip
import io
import json
import os
import random
import struct
import sys

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../../shared/data")

TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "llama3": WORDS + "|" + PREFIX + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL,
    "qwen2": WORDS + "|" + PREFIX + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL,
    "o200k": (PREFIX + UPPER + "*" + LOWER + "+" + WORDS + "?|" + PREFIX + UPPER + "+" + LOWER + "*" + WORDS
              + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL),
}

FIXED = [
    "", " ", "a", "A", "\n", "\t", "\0", "Hello, world!", "  two  spaces  ", "it's he'll I'D WE'RE they'Ve 'm 's 'S",
    "don't 't'd'll'x '''s", "'ſ 'ſs x'ſ", "CamelCase HTTPServer iPhone eBay McDonald's NASA's DžLj Ωmega",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 2026-11-15", "٣٤٥ ४५६ Ⅷ ½ ² x² ₃", "0x1F 1e-10 #42 v2.0.1",
    "line\nline\n\nline\n\n\nline", "line\r\nline\r\n\r\nend\r\n", "trailing   ", "trailing\n", "trailing \n ", "trailing\n  \n",
    "tab\tsep\t\tdouble\t \tmix", "a\u00a0b\u00a0\u00a0c", "全角　空白　　二つ", "a\u2003b\u2028c\u2029d\u0085e", "\u200b zero\u200bwidth \ufeffBOM",
    "\x0b\x0c vertical \x1c\x1d\x1e\x1f", "日本語の文章です。", "中文没有空格,但是有标点。", "한국어 문장입니다.", "ภาษาไทยไม่มีช่องว่าง",
    "Привет, мир!", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "வணக்கம்", "Tiếng Việt", "Åse Ünal Łódź ñandú",
    "cafe\u0301 caf\u00e9", "e\u0301\u0327 e\u0327\u0301 \u0301alone", "A\u030a \u212b \u00c5", "\u1100\u1161\u11a8 \uac01 \u1100\u1161", "q\u0307\u0323 q\u0323\u0307",
    "\u0958 \u0915\u093c", "\u2126 \u03a9 \ufb01 fi", "\u0344 \u0308\u0301", "a" + "\u0301" * 20, "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034dA",
    "👍", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈 🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "❤️ ♥ ☺️", "😀😃😄 text 😀", "1️⃣2️⃣", "🧑🏿‍🚀🧑🏻‍🔬", "\U0001f9d1\u200d", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; i++) { a[i] += b[i]; }", "<html>\n  <body class=\"x\">&amp;</body>\n</html>",
    "SELECT * FROM t WHERE a='b' -- c", "{\"a\": [1, 2, {\"b\": null}]}", "if(x!=y&&z||!w){}", "http://example.org/path?q=1&r=2#frag", "a/b//c\n/d /\n/", "C:\\dir\\file",
    "__init__ snake_case kebab-case", "$x = @{1..3}; %h", "///\r\n//\n/ //", "!!!\n\n???\r\n...", "x!\n\ny", "== Heading ==\n", "--------", "=" * 40, "-" * 33, " " * 50, "\n" * 30, "\t" * 17, "a" * 70, "ab" * 40, "no" * 33,
    "αβγΔΕΖ ʰʲ ªº ˆ˜", "ǅ ǈ ᾈ ᾉ", "ΑΒγ ΑΒΓ αβΓ", "中A文B", "あAア亜", "\u0301A \u0301a A\u0301B", "ʰA Aʰ AʰB", "a\u093fA", "Ⅻ ⅻ ①",
    "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>", "<|endoftext|", "<|end<|endoftext|>", " <|endoftext|> ",
    "<|im_start|>user\nhi<|im_end|>\n", "<tool_call>{}</tool_call>", "<|begin_of_text|>x<|eot_id|>", "x  <left>  y", "x  <right>  y", "caf\u00e9<e\u0301>x<\u00e9>y",
    "\U00010400\U00010428 \U0001d49c \U0001d7d9", "\U0001e922\U0001e943", "\ue000\uf8ff\U000f0000", "\U0010ffff\ufffd\ufffe\uffff", "\u0378\u0530 unassigned", "\u1c89\u1c8a \ua7cb \U00010d40",
]
BROKEN = [  # not UTF-8
    b"\xff", b"\x80\x80", b"ab\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xe2(\xa1", b"\xf0\x9f\x98", b"\xf0\x9f\x98 ok", b"\xf0(\x8c\xbc", b"\xc0\xaf",
    b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xb0\x80\xed", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"caf\xe9 latin1", b"\xfe\xfe\xff\xff",
    b"good \xe2\x9c\x93 bad \xe2\x9c good", b"\xf1\x80\x80", b"\xf1\x80\xf1\x80\x80", b"\xef\xbf\xbd\xef\xbf", b"x\xccy \xcc\x81",
]
POOLS = ["abcXYZ", "'", " ", "  \t\n\r", "\u00a0\u3000\u2028", "0123456789", "日本語", "éüßſ", "\u0301\u0308\u0327", "👩\u200d👧🇩🇪👍🏽",
         "한각\u1100\u1161\u11a8", "DžʰªΔδ", "!?.,/-_#"]


def strings():
    random.seed(20)
    made = []
    for _ in range(110):
        pools = random.sample(POOLS, random.randint(2, 4))
        made.append("".join(random.choice(random.choice(pools)) for _ in range(random.randint(4, 24))))
    all_of = [s.encode() for s in FIXED + made] + BROKEN
    assert len(set(all_of)) == len(all_of)
    return all_of


def escape(b):
    return "".join(chr(c) if 32 <= c < 127 and c != 92 else f"\\x{c:02x}" for c in b)


def write(name, text):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(text)


def write_ids(name, encode, cases):
    write(name + ".ids", "".join(" ".join(map(str, encode(s))) + "\n" for s in cases))


def text(b):
    return b.decode("utf-8", "replace")


def corpus(cases):
    docs = [open(os.path.join(HERE, "../..", n)).read() for n in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    return docs + [text(s) for s in cases if b"<" not in s] * 2


def train_hf(pattern, vocab, specials, docs, normalizer=None):
    t = Tokenizer(models.BPE(ignore_merges=pattern == "llama3"))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(docs, trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False,
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def save_compact(t, name):
    write(name, json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    return Tokenizer.from_file(os.path.join(HERE, name))


def hf_pair(name, t, cases):
    """NAME.ids with special tokens read, NAME_plain.ids with them as text."""
    write_ids(name, lambda s: t.encode(text(s), add_special_tokens=False).ids, cases)
    t.encode_special_tokens = True
    write_ids(name + "_plain", lambda s: t.encode(text(s), add_special_tokens=False).ids, cases)
    t.encode_special_tokens = False


def minis(cases):
    docs = corpus(cases)
    t = train_hf("llama3", 640, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], docs)
    t.add_tokens([AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    hf_pair("mini_llama3", save_compact(t, "mini_llama3.json"), cases)
    t = train_hf("qwen2", 640, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], docs, normalizers.NFC())
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<e\u0301>", normalized=True)])
    hf_pair("mini_qwen2", save_compact(t, "mini_qwen2.json"), cases)
    ranks = mini_ranks(docs)
    write("mini.tiktoken", "".join(f"{base64.b64encode(k).decode()} {i}\n" for k, i in ranks.items()))
    for name in ("gpt2", "cl100k", "llama3", "o200k"):
        e = tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})
        write_ids("mini_tiktoken_" + name, lambda s: e.encode(text(s), allowed_special="all"), cases)


def mini_ranks(docs):
    t = train_hf("o200k", 600, [], docs)
    alphabet = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    back = {chr(c): c for c in alphabet}
    back.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in alphabet)})
    vocab = sorted(t.get_vocab().items(), key=lambda x: x[1])
    return {bytes(back[c] for c in k): i for i, (k, _) in enumerate(vocab)}


def mini_sentencepiece(cases):
    """A sentencepiece model in llama2.c's format; the ids are those of sentencepiece itself."""
    model = io.BytesIO()
    good = [s for s in corpus(cases) if s.strip() and "\0" not in s]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for s in good for line in s.split("\n") if line]), model_writer=model, vocab_size=560, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.99,
        minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    out, longest = b"", 0
    for i in range(sp.get_piece_size()):
        piece = {1: "\n<s>\n", 2: "\n</s>\n"}.get(i, sp.id_to_piece(i).replace("\u2581", " ")).encode()
        longest = max(longest, len(piece))
        out += struct.pack("<fi", sp.get_score(i), len(piece)) + piece
    with open(os.path.join(HERE, "mini_llama2c.bin"), "wb") as f:
        f.write(struct.pack("<i", longest) + out)
    usable = lambda s: text(s).encode() == s and b"\0" not in s  # both see the same text
    write("mini_llama2c.ids", "".join((" ".join(map(str, sp.encode(text(s)))) if usable(s) else "-") + "\n" for s in cases))


def train_marked(name, cases, normalizer, pre, decoder):
    """Byte fallback and U+2581 for spaces, as in Llama 2 and Mistral. Words are those of Metaspace, whatever the file does."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    first = ["<unk>", "<s>", "</s>"]
    t.train_from_iterator(corpus(cases), trainers.BpeTrainer(vocab_size=560, limit_alphabet=90, show_progress=False,
                                                             special_tokens=first + [f"<0x{b:02X}>" for b in range(256)]))
    file = json.loads(t.to_str())
    file["added_tokens"] = file["added_tokens"][:len(first)]
    file["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(file))
    t.decoder = decoder
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    t.add_tokens([AddedToken("<tool_call>", normalized=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    hf_pair(name, save_compact(t, name + ".json"), cases)


def marked(cases):
    mark = "\u2581"
    chain = [decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    prepend = normalizers.Sequence([normalizers.Prepend(mark), normalizers.Replace(" ", mark)])
    train_marked("mini_llama2", cases, prepend, None, decoders.Sequence(chain))
    train_marked("mini_mistral", cases, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), decoders.Sequence(chain))
    train_marked("mini_metaspace", cases, None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), decoders.Metaspace())


def sentencepiece_models(cases):
    """mini_spm: byte fallback, identity. mini_rules: rules of its own, spaces squeezed, own pieces, an unknown token."""
    good = [line for s in corpus(cases) if s.strip() and "\0" not in s for line in s.split("\n") if line]
    rules = "rules.tsv"  # the name is part of the model
    open(rules, "w").write("41\t61\n42\t62\nC0\t61 300\nFB01\t66 69\n66 66\t66\n3000\t20\nA0\t20\n9\t20\nA\t20\nD\t20\n200B\t\n")
    both = {"vocab_size": 560, "model_type": "bpe", "minloglevel": 2, "character_coverage": 0.99}
    for name, options in (("mini_spm", {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}),
                          ("mini_rules", {"normalization_rule_tsv": rules, "user_defined_symbols": ["<tool_call>", "no"], "control_symbols": ["<ctl>"]})):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(good), model_writer=model, **both, **options)
        with open(os.path.join(HERE, name + ".model"), "wb") as f:
            f.write(model.getvalue())
        sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        write_ids(name, sp.encode, cases)
    os.remove(rules)


def llama2c(path):
    """The loop of llama2.c's encode, over the file at path."""
    data, at, vocab, scores = open(path, "rb").read(), 4, [], []
    while at < len(data):
        score, n = struct.unpack_from("<fi", data, at)
        vocab.append(data[at + 8:at + 8 + n])
        scores.append(score)
        at += 8 + n
    find = {v: i for i, v in reversed(list(enumerate(vocab)))}

    def encode(s):
        ids, at = [find[b" "]] if s else [], 0
        while at < len(s):
            n = 1
            while n < 4 and at + n < len(s) and s[at + n] & 0xC0 == 0x80:
                n += 1
            part = s[at:at + n]
            ids += [find[part]] if part in find else [b + 3 for b in part]
            at += n
        while True:
            best = (-1e10, -1, -1)
            for i in range(len(ids) - 1):
                k = find.get(vocab[ids[i]] + vocab[ids[i + 1]], -1)
                if k >= 0 and scores[k] > best[0]:
                    best = (scores[k], i, k)
            if best[1] < 0:
                return ids
            ids[best[1]:best[1] + 2] = [best[2]]
    return encode


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        h = ((h ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def published(cases):
    gpt2 = os.path.join(DATA, "tokenizers/gpt2")
    merges = [tuple(x.split(" ")) for x in open(gpt2 + "/vocab.bpe").read().split("\n")[1:] if x]
    g = Tokenizer(models.BPE(json.load(open(gpt2 + "/encoder.json")), merges))
    g.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    g.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    q = Tokenizer.from_str(gzip.open(os.path.join(DATA, "tokenizers/qwen2.5/tokenizer.json.gz"), "rt").read())
    write_ids("gpt2", lambda s: g.encode(text(s)).ids, cases)
    write_ids("qwen2.5", lambda s: q.encode(text(s), add_special_tokens=False).ids, cases)
    write_ids("tok512", llama2c(os.path.join(DATA, "models/stories260K/tok512.bin")), cases)
    lines = []
    for file in ("text/wikitext-2/valid.txt.gz", "text/books/moby-dick.txt.gz"):
        whole = gzip.open(os.path.join(DATA, file)).read().decode("utf-8", "replace")
        for name, t in (("gpt2", g), ("qwen2.5", q)):
            ids = t.encode(whole, add_special_tokens=False).ids
            lines.append(f"{name} {file} {len(ids)} {fnv(ids):016x}\n")
    write("corpora.txt", "".join(lines))


def main():
    cases = strings()
    write("strings.txt", "".join(escape(s) + "\n" for s in cases))
    minis(cases)
    mini_sentencepiece(cases)
    marked(cases)
    sentencepiece_models(cases)
    published(cases)
    print(len(cases), "strings")


main()
