"""Trains a small model on a text, draws its curve and lets it write: python3 train.py BOOK.txt [steps]"""
import sys

import tenon

if len(sys.argv) < 2:
    sys.exit("usage: python3 train.py BOOK.txt [steps]")
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
run = tenon.train("ten_tiny", data=sys.argv[1], steps=steps)
print(run)
print(run.plot().text)  # in a notebook run.plot() shows the picture
run.plot().save("run.svg")
print(run.sample("The ", max_tokens=80, seed=1))
