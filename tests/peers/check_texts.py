"""Logits of 20 texts by a GGUF model against transformers with the dequantised weights, in float64 (exact.py).

    python check_texts.py MODEL.gguf

Tenon computes them as programs that look at tensors do, with weights in f32, and as its verbs do, with frozen ones in the type that blocks are expanded to. Every logit
must be within 1e-3 of the text's largest in f32. In bf16, in which all weights are rounded, it must be so of transformers with its matrices rounded; the
difference that rounding makes is shown. Needs torch, transformers, accelerate, a compiler and a built library (BUILD, build). Ends with "N passed, N failed".
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
os.environ.setdefault("TENON_LIBRARY", str(BUILD / "libtenon.so"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(ROOT / "python"))

import tenon  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from exact import exact  # noqa: E402

tf.utils.logging.disable_progress_bar()
TEXTS = [
    "The capital of France is Paris, and the capital of Italy is",
    "Once upon a time there was a little girl who lived in a house at the edge of a forest. Every morning she",
    "Q: What is 17 times 23?\nA: 17 times 23 is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n\nprint(",
    "#include <stdio.h>\n\nint main(void)\n{\n    for (int i = 0; i < 10; i++)\n\tprintf(\"%d\\n\", i);\n",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHello! Who are you?<|im_end|>\n<|im_start|>assistant\n",
    "Der schnelle braune Fuchs springt über den faulen Hund, während die Möwen über die Dächer fliegen.",
    "Le cœur a ses raisons que la raison ne connaît point.",
    "東京は日本の首都であり、世界最大の都市の一つです。",
    "Привет, как дела? Сегодня хорошая погода, и мы идём гулять в парк.",
    "مرحبا بالعالم، هذا اختبار قصير",
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144,",
    "{\"name\": \"Ada\", \"born\": 1815, \"fields\": [\"mathematics\", \"computing\"], \"alive\": false}",
    "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n",
    "the " * 60,
    "E = mc^2, F = ma, a^2 + b^2 = c^2; the integral of x^2 from 0 to 1 is",
    "🙂🚀 emoji 👩‍👩‍👧‍👦 and    many     spaces\n\n\n\nand lines\r\n",
    "SELECT name, COUNT(*) FROM users WHERE age > 30 GROUP BY name HAVING COUNT(*) > 1 ORDER BY 2 DESC;",
    "In physics, the second law of thermodynamics states that the total entropy of an isolated system can never decrease over time. It is constant if and "
    "only if all processes are reversible. Isolated systems spontaneously evolve towards thermodynamic equilibrium, the state with maximum entropy. " * 3,
]


def build(to):
    libs = subprocess.run(["pkg-config", "--cflags", "--libs", "yaml-0.1", "jansson", "libxxhash", "zlib", "libzstd", "libpcre2-8", "sqlite3"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{ROOT}/include", f"-I{BUILD}/include", f"-I{ROOT}/src",
                    f"{ROOT}/tests/peers/model_logits.c", f"{BUILD}/libtenon.a", *libs, "-lm", "-lpthread", "-ldl", "-o", to], check=True)


def frozen(path, rows, vocab):
    with tempfile.TemporaryDirectory() as work:
        build(f"{work}/model_logits")
        lines = "".join(" ".join(map(str, row)) + "\n" for row in rows)
        out = subprocess.run([f"{work}/model_logits", path], input=lines.encode(), check=True, stdout=subprocess.PIPE).stdout
    ends = np.cumsum([len(row) for row in rows])[:-1]
    return np.split(np.frombuffer(out, np.float32).reshape(-1, vocab), ends)


def logits_of(model, rows):
    with torch.no_grad():
        return [model(torch.tensor(row)[None]).logits[0].numpy() for row in rows]


def furthest(ours, theirs):
    return [float(np.abs(a - b).max() / np.abs(b).max()) if np.isfinite(a).all() else float("inf") for a, b in zip(ours, theirs)]


def main(path):
    where = dict(pretrained_model_name_or_path=os.path.dirname(path) or ".", gguf_file=os.path.basename(path))
    tokenizer = tf.AutoTokenizer.from_pretrained(**where)
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    model = exact(tf.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32))
    net = tenon.open(path, "threads=2")
    net.parameters[next(iter(net.parameters))]  # a look makes weights f32, with all digits of the file
    right = logits_of(model, rows)
    f32 = furthest([np.asarray(net.forward(np.array([row], np.int32)))[0] for row in rows], right)
    for p in model.parameters():
        if p.ndim == 2:
            p.data = p.data.bfloat16().double()
    ours, rounded = frozen(path, rows, net.vocab), logits_of(model, rows)
    half, cost = furthest(ours, rounded), furthest(rounded, right)
    for text, row, a, b, c in zip(TEXTS, rows, f32, half, cost):
        print(f"{len(row):4} tokens: f32 {a:.1e}, frozen in bf16 {b:.1e} (rounding the weights: {c:.1e})  {text[:40]!r}")
    good = [a <= 1e-3 and b <= 1e-3 for a, b in zip(f32, half)]
    print(f"largest: f32 {max(f32):.1e}, frozen in bf16 {max(half):.1e}, rounding {max(cost):.1e}")
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    return not all(good)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
