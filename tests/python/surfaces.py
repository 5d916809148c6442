"""Surfaces by name: what the steps of `bridge` and `flow` take and give."""
import numpy as np

import tenon

SMALL = ("vocab=40", "text=8", "width=6", "height=4", "prefix=4", "dim=16", "heads=2", "ffn=16", "layers=1", "decoder.dim=16",
         "decoder.heads=2", "decoder.layers=1", "flow.dim=8", "flow.layers=1", "flow.depth=4", "threads=1")


def sentences_become_surfaces():
    """A sentence may fill the input; what stands behind a shorter one is not looked at; a length beyond it is refused."""
    net = tenon.open("bridge", *SMALL)
    words = np.arange(1, 25, dtype=np.int32).reshape(3, 8)
    assert net.inputs["premise_length"].below == 9 and net.inputs["premise"].below == 40
    whole = net.run("encode", premise=words, premise_length=[8, 8, 8])["surface"].copy()
    assert whole.shape == (3, 24) and np.isfinite(whole).all() and np.abs(whole).max() <= 1
    parts = net.run("encode", premise=words, premise_length=[8, 7, 1])["surface"].copy()
    assert np.array_equal(parts[0], whole[0]) and not np.array_equal(parts[1], whole[1])
    other = words.copy()
    other[1, 7], other[2, 1:] = 39, 38
    assert np.array_equal(net.run("encode", premise=other, premise_length=[8, 7, 1])["surface"], parts)
    for wrong in 9, -1:
        try:
            net.run("encode", premise=words, premise_length=[8, wrong, 8])
        except tenon.TenonError as error:
            assert error.code == 2 and f"premise_length[1] is {wrong}, outside 0 to 8" in str(error), error
        else:
            raise AssertionError(f"a length of {wrong} is taken")
    loss = net.loss(premise=words, premise_length=[8, 8, 3], hypothesis=words, hypothesis_length=[8, 5, 8], sample=[0, 1, 2], count=[3])
    assert np.isfinite(loss)


TESTS = (sentences_become_surfaces,)
