#!/usr/bin/env python3
"""Ridge regression as a map between sentences' surfaces: recall@1 and @10 beside those of a run of `bridge`.

    PYTHONPATH=python bench/flow_ridge.py RUN FOLDER      RUN: trained with body=identity; FOLDER: snli_train*, snli_dev*, snli_test* (TSV, or .gz)

The run's encoder gives the surfaces of premise and hypothesis of every entailed pair. A linear map with intercept from one to the other is solved on
the training pairs, its weight of the squared norm is chosen by recall@10 on the dev pairs, and the test pairs are looked up: each premise among
1,000 hypotheses, its own and the 999 that follow, as the metrics recall_1 and recall_10 do. Prints also the premise's own surface (identity), which
must come out as the run's evaluation has it, but for the few sentences that this script spells another way (it joins punctuation to words by
fewer rules than src/tasks/sentence.c). Needs numpy."""
import csv
import glob
import gzip
import re
import sys

import numpy as np
import tenon

BATCH, AMONG = 64, 1000
WEIGHTS = [10.0 ** k for k in range(-4, 4)]


def spelled(text):
    """Treebank tokens joined as one writes them."""
    text = re.sub(r"-LRB-", "(", re.sub(r"-RRB-", ")", " ".join(text.split())))
    text = re.sub(r" ([.,;:!?%)\]}]|\.\.\.|n't|'s|'re|'ve|'ll|'m|'d)(?=\s|$)", r"\1", text)
    return re.sub(r"(^|\s)([(\[{$#]) ", r"\1\2", text)


def pairs(folder, split):
    path = sorted(glob.glob(f"{folder}/snli_{split}*"))[0]
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", newline="") as f:
        rows = [r for r in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE) if r["gold_label"] == "entailment"]
    return [spelled(r["sentence1"]) for r in rows], [spelled(r["sentence2"]) for r in rows]


def surfaces(net, sentences):
    """(n, cells), each of length 1."""
    length = int(net.settings["task.length"])
    tokenizer, out = net.tokenizer, []
    for first in range(0, len(sentences), BATCH):
        some = sentences[first:first + BATCH]
        ids, n = np.zeros((len(some), length), np.int32), np.zeros(len(some), np.int32)
        for i, text in enumerate(some):
            t = tokenizer.encode(text)[:length]
            ids[i, :len(t)], n[i] = t, len(t)
        out.append(net.run("encode", premise=ids, premise_length=n)["surface"].reshape(len(some), -1).copy())
    x = np.concatenate(out).astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def recalls(a, b):
    n = len(a)
    likeness = np.take_along_axis(a @ b.T, (np.arange(n)[:, None] + np.arange(min(n, AMONG))) % n, axis=1)
    ranks = (likeness[:, 1:] >= likeness[:, :1]).sum(1)
    return (ranks < 1).mean(), (ranks < 10).mean()


def solve(x, y, weight):
    """Both centred: the map W of |x W - y|^2 + weight n |W|^2, and its value for other rows."""
    mx, my = x.mean(0), y.mean(0)
    a = (x - mx).T @ (x - mx) + weight * len(x) * np.eye(x.shape[1]) / x.shape[1]
    w = np.linalg.solve(a, (x - mx).T @ (y - my))
    return lambda z: (z - mx) @ w + my


def main(run, folder):
    net = tenon.open(run)
    data = {}
    for split in ("train", "dev", "test"):
        p, h = pairs(folder, split)
        data[split] = surfaces(net, p), surfaces(net, h)
        print(f"{split}: {len(p)} pairs, {data[split][0].shape[1]} cells", file=sys.stderr, flush=True)
    best = max(WEIGHTS, key=lambda w: recalls(solve(*data["train"], w)(data["dev"][0]), data["dev"][1])[1])
    predicted = solve(*data["train"], best)(data["test"][0])
    for name, x in (("identity", data["test"][0]), (f"ridge, weight {best:g}", predicted)):
        one, ten = recalls(x, data["test"][1])
        print(f"{name}: recall_1 {one:.3f}, recall_10 {ten:.3f} ({len(x)} test pairs)")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
