"""The Python client on one device, in the lines of api.c: api.py cuda|cpu FILE"""
import sys

import numpy as np

import tenon

B, T, SHOWN, STEPS = 4, 32, 20, 150
SENTENCE = b"the quick brown fox jumps over the lazy dog. "
DEVICE, FILE = sys.argv[1:]


def show(name, *numbers):
    print(name, *(f"{x:.7g}" for x in numbers))


def norm(x):
    return float(np.sqrt((x.astype(np.float64) ** 2).sum()))


def train(net, tokens, labels, steps):
    for i in steps:
        loss = net.gradients(tokens, labels)
        report = net.step()
        if i < SHOWN:
            show("step", loss, report.grad_norm)


def look(net, tokens, labels):
    show("loss", net.loss(tokens, labels))
    show("logits", net.forward(tokens).max())
    show("evaluate", net.evaluate(tokens, length=T))


def handle(net, tokens, labels):
    net.gradients(tokens, labels)
    x = net.parameters["embed"]
    show("embed", norm(x), norm(net.grads["embed"]))
    if net.device == "cuda":  # a copy: writing to it must not pass in silence
        try:
            x *= 2
        except ValueError:
            pass
        else:
            sys.exit("a copy of a GPU's tensor was written to")
    kept = x.copy()
    net.parameters["embed"] = 0.5 * kept
    show("halved", net.loss(tokens, labels))
    net.parameters["embed"] = kept
    net.zero_gradients()
    show("zeroed", norm(net.grads["embed"]))


def main():
    row = np.frombuffer(SENTENCE * 4, np.uint8).astype(np.int32)
    tokens, labels = (np.stack([row[11 * b % len(SENTENCE) + i:][:T] for b in range(B)]) for i in (0, 1))
    for name in ("ten", "gpt"):
        net = tenon.open(name, "train.context=64", "train.lr=2e-3", "train.warmup=5", "train.schedule=constant", dim=32, layers=2, heads=2,
                         vocab=256, compute="f32", device=DEVICE)
        print("model", name, net.device)
        train(net, tokens, labels, range(SHOWN))
        look(net, tokens, labels)
        handle(net, tokens, labels)
        train(net, tokens, labels, range(SHOWN, STEPS))
        file = f"{FILE}.{name}.safetensors"
        net.save(file)
        text = tenon.open(file, device=DEVICE).sample("the lazy dog. the quick brown fox jumps ", temperature=0, max_tokens=20)
        print("text " + text)


main()
