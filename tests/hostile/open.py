"""Opens a model or a tokenizer from Python and uses it. Errors end like those of the command: one line, their code."""
import sys

import tenon

kind, target = sys.argv[1:]
try:
    if kind == "tokenizer":
        t = tenon.Tokenizer(target)
        t.decode(t.encode("some text <0x41> \N{GREEK SMALL LETTER PI}", special=True))
    else:
        net = tenon.open(target, "threads=1")
        other = tenon.open("gpt_tiny", "threads=1", dim=16, layers=1, heads=1, vocab=256)
        net.sample("ab", max_tokens=4, seed=1)
        if not target.endswith(".yaml"):
            other.load(target)
except tenon.TenonError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.code)
