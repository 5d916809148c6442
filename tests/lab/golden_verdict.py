#!/usr/bin/env python3
"""Writes tests/lab/golden_verdict.h: what scipy says about the pairs that src/lab/verdict_test.c makes.

    python3 tests/lab/golden_verdict.py > tests/lab/golden_verdict.h      (needs numpy and scipy)
"""
import numpy as np
import scipy
from scipy import stats


def philox_free(case, n):
    """Pairs from whole-number arithmetic alone, so that C makes the same: a lattice for odd cases (ties), fine steps for even ones."""
    state, a, b = case + 1, [], []
    for _ in range(n):
        for out in (a, b):
            state = (state * 1103515245 + 12345) % 2**31
            out.append(state / 2**31)
    a, b = np.array(a), np.array(b)
    if case % 2:
        a, b = np.floor(a * 12) / 12, np.floor(b * 12) / 12
    return a + 0.05 * (case % 5), b


def wilcoxon(d):
    d = d[np.abs(d) > 1e-12]
    r = stats.rankdata(np.round(np.abs(d), 12))
    ties = len(set(r)) < len(r)
    if len(d) > 50:
        return stats.wilcoxon(np.round(d, 12), method="approx", correction=False).pvalue
    if not ties:
        return stats.wilcoxon(d, method="exact").pvalue
    if len(d) > 14:
        return float("nan")  # scipy would draw permutations at random
    return stats.wilcoxon(np.round(d, 12), method=stats.PermutationMethod(n_resamples=2**15)).pvalue


def interval(d, n):
    z = np.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)
    level = 1 - 2 * stats.norm.sf(z)
    rng = np.random.default_rng(1)
    ends = [stats.bootstrap((d,), np.mean, n_resamples=100000, confidence_level=level, method="BCa", rng=rng).confidence_interval for _ in range(3)]
    return np.mean([e.low for e in ends]), np.mean([e.high for e in ends])


print(f"/* Made by tests/lab/golden_verdict.py with scipy {scipy.__version__}: pairs, Wilcoxon's p (NaN: scipy has no exact one), interval. */")
for case, n in enumerate([6, 8, 9, 11, 12, 10, 20, 13, 30, 14, 50, 60, 120, 200]):
    a, b = philox_free(case, n)
    d = a - b
    lo, hi = interval(d, n)
    p = wilcoxon(d)
    print(f"{{ {n}, {'NAN' if np.isnan(p) else repr(float(p))}, {lo:.6f}, {hi:.6f} }},")
