"""Loss of a GGUF model on a text: `tenon eval` against transformers with the dequantised weights in f32.

    python check_perplexity.py MODEL.gguf TEXT[.gz] [window=512] [stride=512] [windows=N] [device=cuda]

Both read the same tokens in the same windows: every token is scored once, by the first window that has it. transformers splits the text with its own
reading of the file's vocabulary; the number of tokens must be the same. The losses must be within 0.1 %. windows=N takes only as many lines of the
text as make N windows (of a whole text of 1.3 MB a machine with two cores has for an hour; device=cuda
takes both sides to a GPU, where it is a minute). Needs torch, transformers, accelerate and build/tenon.
Ends with "N passed, N failed".
"""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENON = str(ROOT / os.environ.get("BUILD", "build") / "tenon")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers as tf  # noqa: E402

LIMIT = 1e-3


def head(text, tokenizer, tokens):
    """The lines of the text that have so many tokens."""
    lines, n = [], 0
    for line in text.splitlines(keepends=True):
        if n >= tokens:
            break
        lines.append(line)
        n += len(tokenizer(line)["input_ids"])
    return "".join(lines)


def theirs(model, ids, window, stride, device):
    """Nats per token: the sum over windows of what no window before has scored."""
    total, scored, seen = 0.0, 0, 0
    for first in range(0, len(ids) - 1, stride):
        row = ids[first:first + window + 1].to(device)
        with torch.no_grad():
            logits = model(row[None, :window]).logits[0, :len(row) - 1]
        fresh = slice(seen - first, len(row) - 1)
        loss = torch.nn.functional.cross_entropy(logits[fresh], row[1:][fresh], reduction="none")
        total, scored, seen = total + float(loss.double().sum()), scored + loss.numel(), first + len(row) - 1
        if seen == len(ids) - 1:
            break
    return total / scored, scored


def ours(path, text, window, stride, device):
    with tempfile.TemporaryDirectory() as work:
        pathlib.Path(work, "text.txt").write_bytes(text.encode())
        out = subprocess.run([TENON, "eval", path, f"data={work}/text.txt", f"window={window}", f"stride={stride}", f"device={device}", "compute=f32",
                              "--json"], check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    numbers = {r["name"]: r["value"] for r in map(json.loads, out.splitlines()) if "value" in r}
    return numbers["loss"], int(numbers["tokens"])


def main(path, source, *keys):
    words = dict(key.split("=") for key in keys)
    device = words.pop("device", "cpu")
    keys = {"window": 512, "stride": 512, "windows": 0, **{k: int(v) for k, v in words.items()}}
    text = (gzip.open if source.endswith(".gz") else open)(source, "rb").read().decode()
    where = dict(pretrained_model_name_or_path=os.path.dirname(path) or ".", gguf_file=os.path.basename(path))
    tokenizer = tf.AutoTokenizer.from_pretrained(**where)
    if keys["windows"]:
        text = head(text, tokenizer, keys["window"] + (keys["windows"] - 1) * keys["stride"])
    ids = torch.tensor(tokenizer(text)["input_ids"])
    start = time.time()
    loss, tokens = ours(path, text, keys["window"], keys["stride"], device)
    print(f"tenon         {loss:.6f} nats/token, {tokens} tokens, {time.time() - start:.0f} s", flush=True)
    start = time.time()
    model = tf.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval().to(device)
    other, scored = theirs(model, ids, keys["window"], keys["stride"], device)
    print(f"transformers  {other:.6f} nats/token, {scored} tokens, {time.time() - start:.0f} s")
    away = abs(loss - other) / other
    good = tokens == scored and away <= LIMIT
    print(f"{100 * away:.4f} % apart" + ("" if good else f"\nFAILED: other tokens, or more than {100 * LIMIT} %"))
    print(f"{int(good)} passed, {int(not good)} failed")
    return not good


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
