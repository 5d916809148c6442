"""Tenon from Python: train, plot and sample; models with their tensors, without copies. A thin layer over <tenon/tenon.h>.

    import tenon
    run = tenon.train("ten_tiny", data="book.txt", steps=200)
    run.plot().save("run.svg")                      # in a notebook it shows itself
    print(run.sample("Once upon a time"))
    tenon.runs()                                    # tenon.Run("runs/ten-1") opens one; .resume() continues it

The parts of it, for loops of your own:

    net = tenon.open("runs/ten-1")                  # or a preset: tenon.open("gpt_tiny", vocab=256)
    net.parameters["embed"][:] *= 0.5               # numpy views of the model's own memory
    loss = net.gradients(tokens, labels)            # (B,T) arrays of token ids; label -1 is not counted
    net.step()                                      # net.grads has views, too
    print(net.sample("Once upon a time", max_tokens=50, seed=1))

A model that reads something else than tokens takes its inputs by name, as arrays: net.inputs says which.

    net = tenon.open("tep", inputs=4, classes=2)
    loss = net.gradients(features=x, labels=y)
    y = net.forward(features=x, outputs="logits")
    out = tenon.open("./mine.so").run("generate")   # a step of the model's own

With device="cuda" it computes on a GPU, where tensors are copied: net.parameters[name] is a copy that cannot be written to, and
net.parameters[name] = array writes, there as here.
"""
from ._library import BadFileError, DiskError, DivergedError, MissingFileError, OutOfMemoryError, TenonError, UsageError, lib
from ._model import Input, Metric, Model, Sample, Step, Tokenizer, open
from ._plot import Plot, Series
from ._run import Progress, Run, Runs, plot, runs, train
from ._settings import Setting, settings

__version__: str = lib.tenon_version().decode()
__all__ = ["train", "Run", "Runs", "runs", "plot", "Plot", "Series", "Progress", "settings", "Setting", "open", "Model", "Tokenizer", "Input",
           "Metric", "Sample", "Step", "TenonError", "UsageError", "MissingFileError", "BadFileError", "DivergedError", "OutOfMemoryError",
           "DiskError", "__version__"]
