#!/usr/bin/env python3
"""Writes tests/lab/golden_importance.h: what Optuna's fANOVA says about the study that src/lab/statistics/importance_test.c makes.

    python3 tests/lab/golden_importance.py > tests/lab/golden_importance.h      (needs optuna and scikit-learn)
"""
import statistics
import warnings

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore")

SPACE = {
    "rate": FloatDistribution(0, 10),  # Optuna looks at logarithmic ranges as plain ones and we do not, so there is none here
    "width": IntDistribution(4, 256),
    "act": CategoricalDistribution(["relu", "gelu", "tanh"]),
    "decay": FloatDistribution(0, 1),
    "inert": FloatDistribution(-1, 1),
}


def uniforms(n):
    """As in the test: whole-number arithmetic, the same in C."""
    state = 7
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 11) / 2**53


def main():
    u, trials = uniforms(10**6), []
    for _ in range(200):
        place = next(u)
        width = 4 + int(next(u) * 253)
        act, decay, inert = int(next(u) * 3), next(u), 2 * next(u) - 1
        loss = 4 * (place - 0.6) ** 2 + 0.3 * width / 256 + [0.3, 0, 0.1][act] + 0.8 * place * decay + 0.1 * (next(u) - 0.5)
        trials.append(optuna.trial.create_trial(
            params={"rate": 10 * place, "width": width, "act": ["relu", "gelu", "tanh"][act], "decay": decay, "inert": inert},
            distributions=SPACE, value=loss))
    study = optuna.create_study()
    study.add_trials(trials)
    parts = {name: [] for name in SPACE}
    for seed in range(20):
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=seed)
        for name, part in optuna.importance.get_param_importances(study, evaluator=evaluator).items():
            parts[name].append(part)
    print(f"/* Made by tests/lab/golden_importance.py with Optuna {optuna.__version__}: parts of their sum and their spread over 20 seeds. */")
    for name, v in parts.items():
        print(f'{{ "{name}", {statistics.mean(v):.5f}, {statistics.stdev(v):.5f} }},')


main()
