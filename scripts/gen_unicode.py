#!/usr/bin/env python3
"""Writes src/token/unicode_tables.h: scripts/gen_unicode.py > src/token/unicode_tables.h

Needs `pip install unicodedata2==16.0.0 tokenizers`. The classes are those of Unicode 16.0, which the regular
expressions of tokenizers 0.23 (Oniguruma) and tiktoken 0.14 (Rust regex) use; both are asked about every code point
first. The NFC of tokenizers is older (Unicode 9.0): what it does not know is left out, so that ids stay equal.
"""
import sys
import tiktoken
import unicodedata2 as ud
from tokenizers import Regex, normalizers, pre_tokenizers

L, N, SPACE, MARK, UPPER, LOWER, LOOK = 1, 2, 4, 8, 16, 32, 64
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def hugging_face(pattern, text):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {c for piece, _ in split.pre_tokenize_str(text) for c in piece}


def tiktoken_set(pattern, text):
    e = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={})
    return set(bytes(e.encode_ordinary(text)).decode())


def classes():
    text = "".join(map(chr, CODES))
    spaces = hugging_face(r"\s", text)
    assert spaces == tiktoken_set(r"\s", text)
    for name in ("L", "N", "M", "Lu", "Ll", "Lt", "Lm", "Lo"):
        mine = {chr(c) for c in CODES if ud.category(chr(c)).startswith(name)}
        pattern = r"\p{%s}" % name
        if mine != hugging_face(pattern, text) or mine != tiktoken_set(pattern, text):
            sys.exit(f"{pattern}: Unicode {ud.unidata_version} is not what the reference libraries use")
    table = [0] * 0x110000
    for c in CODES:
        k = ud.category(chr(c))
        table[c] = ((L if k[0] == "L" else 0) | (N if k[0] == "N" else 0) | (SPACE if chr(c) in spaces else 0)
                    | (MARK if k[0] == "M" else 0) | (UPPER if k in ("Lu", "Lt", "Lm", "Lo") or k[0] == "M" else 0)
                    | (LOWER if k in ("Ll", "Lm", "Lo") or k[0] == "M" else 0))
    return table


def known_ccc():
    ccc = {}
    for c in CODES:
        k = ud.combining(chr(c))
        if k == 0:
            continue
        other = 0x334 if k > 1 else 0x345  # sorts before, or after
        pair = chr(c) + chr(other) if k > 1 else chr(other) + chr(c)
        if NFD("a" + pair) != "a" + pair:
            ccc[c] = k
    return ccc


def known_pairs():
    """code -> (first, second or 0, whether NFC composes it again)"""
    pairs = {}
    for c in CODES:
        d = ud.decomposition(chr(c))
        if not d or d[0] == "<" or NFD(chr(c)) == chr(c):
            continue
        v = [int(x, 16) for x in d.split()]
        pairs[c] = (v[0], v[1] if len(v) > 1 else 0, len(v) > 1 and NFC(chr(v[0]) + chr(v[1])) == chr(c))
    return pairs


def show(name, kind, values, note):
    print(f"\n/* {note} */\nstatic const {kind} {name}[] = {{")
    line = "   "
    for v in values:
        if len(line) + len(f" {v},") > 118:
            print(line)
            line = "   "
        line += f" {v},"
    print(line + "\n};")


def main():
    table, ccc, pairs = classes(), known_ccc(), known_pairs()
    look = set(ccc) | {c for c in pairs if NFC(chr(c)) != chr(c)} | {p[1] for p in pairs.values() if p[2]}
    look |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in look:
        table[c] |= LOOK
    runs, start = [], 0
    for c in range(1, 0x110001):
        if c == 0x110000 or table[c] != table[start]:
            runs.append((c - start) << 7 | table[start])
            start = c
    marks, codes = [], sorted(ccc)
    for c in codes:
        if marks and marks[-1][0] + marks[-1][1] == c and marks[-1][2] == ccc[c]:
            marks[-1][1] += 1
        else:
            marks.append([c, 1, ccc[c]])
    order = sorted(pairs)
    composed = sorted((pairs[c][0], pairs[c][1], i) for i, c in enumerate(order) if pairs[c][2])
    print("/* Made by scripts/gen_unicode.py from Unicode 16.0 (classes) and 9.0 (NFC); do not edit.")
    print(" * Included by unicode.c and nfc.c alone, each of which uses its part. */")
    print("/* long: a table */\n/* clang-format off */")
    print("#ifdef TN_UNICODE_CLASSES")
    show("class_runs", "uint32_t", runs, "Runs of code points from 0 on: length << 7 | class bits (TN_CLASS_*).")
    print("#endif\n#ifdef TN_UNICODE_NFC")
    show("mark_runs", "uint32_t", [x for f, n, k in marks for x in (f, n << 8 | k)],
         "Combining classes: pairs of (first code, length << 8 | class).")
    show("canonical", "uint32_t", [x for c in order for x in (c, pairs[c][0], pairs[c][1])],
         "Canonical decompositions by code: (code, first, second or 0). Hangul is computed.")
    show("composed", "uint16_t", [i for _, _, i in composed], "Those that compose again, by (first, second): index into canonical / 3.")
    print("#endif")


main()
