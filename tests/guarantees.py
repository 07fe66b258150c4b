"""How often what is guaranteed holds: `python -m tests.guarantees --draws 1000` prints the table of the notes.

Held-out labels are drawn anew each time; what then holds is asked of 200,000 further ones. The classifier has ten
classes and is too sure by a factor of two, or sure of its mistakes: of those it is surest of, one in ten is wrong.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import beta, betabinom, binom
from torch import nn

from cgp import predict
from cgp.networks.guarantees.conformal import SetScore, conformal_quantile, label_scores, risk_threshold
from cgp.networks.predict.prediction import Prediction
from cgp.networks.tasks import Regression

Array = NDArray[np.float64]
POOL, HELD_OUT = 200_000, 500
RISK, CONFIDENCE, ERROR = 0.05, 0.95, 0.1


class Outcome(NamedTuple):
    """What a simulation gave, and the band that it has to lie in.

    Attributes:
        name: of the guarantee.
        value: coverage on average over the draws, or the share of draws in which the risk is exceeded.
        low: lower end of the band.
        high: upper end.
    """

    name: str
    value: float
    low: float
    high: float


def classifier(seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Probabilities ``(N, 10)`` that are too sure, and labels."""
    rng = np.random.default_rng(seed)
    logits = 6.0 * rng.normal(size=(POOL, 10))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    return softmax(2.0 * logits, -1), labels


def held_out(seed: int, count: int) -> Iterator[NDArray[np.int64]]:
    """Rows of the held-out labels of each draw."""
    rng = np.random.default_rng(seed)
    return (rng.choice(POOL, HELD_OUT, replace=False) for _ in range(count))


def coverage_of_sets(method: str, draws: int, *, per_class: bool = False) -> Outcome:
    """Average coverage; of scores without ties it has a beta distribution over the draws."""
    p, labels = classifier()
    of_labels = label_scores(SetScore.named(method)(p), labels)
    covered = []
    for rows in held_out(2, draws):
        sets = [labels[rows] == c for c in range(10)] if per_class else [np.ones(HELD_OUT, bool)]
        quantiles = np.array([conformal_quantile(of_labels[rows][part], ERROR) for part in sets])
        covered.append((of_labels <= (quantiles[labels] if per_class else quantiles[0])).mean())
    name = f"sets, {method}" + (", per class" if per_class else "")
    low, high = beta_band(draws)
    return Outcome(name, float(np.mean(covered)), low, 1.0 if per_class else high)


def coverage_of_intervals(draws: int) -> Outcome:
    """Average coverage of values whose noise is Student's, by a normalised score."""
    rng = np.random.default_rng(0)
    deviation = np.exp(rng.normal(size=POOL))
    scores = np.abs(rng.standard_t(3, size=POOL) * (1 + deviation)) / deviation
    covered = [np.mean(scores <= conformal_quantile(scores[rows], ERROR)) for rows in held_out(3, draws)]
    return Outcome("intervals", float(np.mean(covered)), *beta_band(draws))


def coverage_of_network_intervals(draws: int) -> Outcome:
    """Average coverage of a regression network over splits, by `Prediction.intervals`; one split may be far off."""
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(20_000, 3)
    with torch.no_grad():
        values = network(x) + (0.2 + x[:, :1].abs()) * torch.randn(20_000, 1)
    noise = Regression(noise=lambda out: 1.0 + 0.0 * out)
    whole, rng, covered = predict(network, [(x, values)], 1, task=noise), np.random.default_rng(6), []
    for _ in range(draws):
        order = torch.from_numpy(rng.permutation(20_000)[: 2 * HELD_OUT])
        known, new = (_part(whole, rows) for rows in order.split(HELD_OUT))
        ends, truth = new.intervals(1 - ERROR, held_out=known), values[order[HELD_OUT:]]
        covered.append(float(((truth >= ends[..., 0]) & (truth <= ends[..., 1])).double().mean()))
    rank = int(np.ceil((HELD_OUT + 1) * (1 - ERROR)))
    law = betabinom(HELD_OUT, rank, HELD_OUT + 1 - rank)
    error = 4 * law.std() / HELD_OUT / draws**0.5
    name = f"intervals of a network ({min(covered):.2f} to {max(covered):.2f} in single splits)"
    return Outcome(name, float(np.mean(covered)), law.mean() / HELD_OUT - error, law.mean() / HELD_OUT + error)


def _part(whole: Prediction, rows: torch.Tensor) -> Prediction:
    assert whole.total is not None
    assert whole.labels is not None
    return replace(whole, mean=whole.mean[rows], total=whole.total[rows], labels=whole.labels[rows])


def broken_promises(name: str, draws: int) -> Outcome:
    """Share of the draws in which more than the risk is wrong above the threshold, where one is given."""
    p, labels = classifier()
    confidence, right = p.max(-1), p.argmax(-1) == labels
    if name == "sure of its mistakes":
        surest = confidence > np.quantile(confidence, 0.9)
        right = np.random.default_rng(4).random(POOL) > np.where(surest, 2 * RISK, RISK - 0.01)
    risk_above = _risk_above(confidence, right)
    broken, kept = [], []
    for rows in held_out(5, draws):
        threshold = risk_threshold(confidence[rows], right[rows], RISK, CONFIDENCE)
        broken.append(threshold is not None and risk_above(threshold) > RISK)
        kept.append(0.0 if threshold is None else (confidence > threshold).mean())
    name = f"abstain, {name} ({np.mean(kept):.0%} answered)"
    return Outcome(name, float(np.mean(broken)), 0.0, float(binom.ppf(0.999, draws, 0.05) / draws))


def beta_band(draws: int) -> tuple[float, float]:
    """Four standard errors about the exact coverage k / (n + 1), with the error of the pool, which is a draw itself."""
    rank = int(np.ceil((HELD_OUT + 1) * (1 - ERROR)))
    law = beta(rank, HELD_OUT + 1 - rank)
    error = np.sqrt(law.var() / draws + law.mean() * (1 - law.mean()) / POOL)
    return float(law.mean() - 4 * error), float(law.mean() + 4 * error)


def _risk_above(confidence: Array, right: NDArray[np.bool_]) -> Callable[[float], float]:
    order = np.argsort(-confidence)
    ordered, wrong = confidence[order], np.cumsum(~right[order])

    def risk(threshold: float) -> float:
        above = int(np.searchsorted(-ordered, -threshold, "left"))
        return float(wrong[above - 1] / above) if above else 0.0

    return risk


def outcomes(draws: int) -> Iterator[Outcome]:
    """Every guarantee."""
    for method in ("lac", "aps", "raps"):
        yield coverage_of_sets(method, draws)
    yield coverage_of_sets("aps", draws, per_class=True)
    yield coverage_of_intervals(draws)
    yield coverage_of_network_intervals(draws)
    for name in ("too sure", "sure of its mistakes"):
        yield broken_promises(name, draws)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=1000)
    print("| guarantee | measured | has to lie in |\n|---|--:|--:|")
    for outcome in outcomes(parser.parse_args().draws):
        print(f"| {outcome.name} | {outcome.value:.4f} | [{outcome.low:.4f}, {outcome.high:.4f}] |")
