#!/usr/bin/env python3
"""Writes tests/lab/golden_verdict.h: what scipy says about the pairs that src/lab/statistics/verdict_test.c makes, and about its bounds.

    python3 tests/lab/golden_verdict.py > tests/lab/golden_verdict.h      (needs numpy and scipy)
"""
import numpy as np
import scipy
from scipy import integrate, optimize, stats


def pairs(case, n):
    """From whole-number arithmetic alone, so that C makes the same: a lattice for odd cases (ties), fine steps for even ones."""
    state, a, b = case + 1, [], []
    for _ in range(n):
        for out in (a, b):
            state = (state * 1103515245 + 12345) % 2**31
            out.append(state / 2**31)
    a, b = np.array(a), np.array(b)
    if case % 2:
        a, b = np.floor(a * 12) / 12, np.floor(b * 12) / 12
    return a + 0.05 * (case % 5), b


def seen(level, power, n):
    """The shift at which the upper half of the two-sided t-test has that power: scipy's noncentral t fails at one degree of freedom."""
    f, bound = n - 1, stats.t.isf(level / 2, n - 1)

    def at(shift):
        points = sorted({min(shift / bound, 20), 1.0})
        return integrate.quad(lambda s: stats.chi.pdf(s * np.sqrt(f), f) * np.sqrt(f) * stats.norm.cdf(shift - bound * s), 0, 20, points=points, limit=500)[0]

    return optimize.brentq(lambda shift: at(shift) - power, 0, 20 * bound)


print(f"/* Made by tests/lab/golden_verdict.py with scipy {scipy.__version__}. */")
print("#ifdef GOLDEN_PAIRS /* pairs, p of the paired t-test, its 95 % interval */")
for case, n in enumerate([2, 3, 4, 5, 6, 8, 9, 10, 12, 20, 30, 50, 120, 200]):
    a, b = pairs(case, n)
    t = stats.ttest_rel(a, b)
    lo, hi = t.confidence_interval(0.95)
    print(f"{{ {n}, {float(t.pvalue)!r}, {float(lo)!r}, {float(hi)!r} }},")
print("#else /* n, level, Student's bound, shift seen with 90 %, bound of the deviation */")
for n in (2, 3, 4, 5, 6, 8, 10, 15, 30, 100, 1000):
    for level in (0.03, 0.03 / 3, 0.03 / 36):
        values = stats.t.isf(level / 2, n - 1), seen(level, 0.9, n), np.sqrt((n - 1) / stats.chi2.ppf(0.05, n - 1))
        print(f"{{ {n}, {level!r}, {', '.join(repr(float(v)) for v in values)} }},")
print("#endif")
