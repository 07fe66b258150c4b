"""Columns that are exact linear functions of others."""

import numpy as np
import pandas as pd
import pytest

from cgp import CorrelatedGPImputer
from cgp.tables import BoxCox, Logit, Rectified, YeoJohnson
from cgp.tables.frames.copies import copies_of, said_copies

WALK = np.cumsum(np.random.default_rng(0).normal(size=400))
NOISE = np.random.default_rng(1).normal(size=400)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (WALK, WALK, "b follows exactly from a, as a: each fills gaps of the other"),
        (WALK.round(1), (1.8 * WALK + 32).round(1), "b follows exactly from a, as 1.8 a + 32: each fills"),
        (WALK.round(2), (100 * WALK).round(), "b follows exactly from a, as 100 a: each fills"),
        (WALK, -2 * WALK - 3.5, "b follows exactly from a, as -2 a - 3.5: each fills"),
        (WALK, WALK + 0.01 * NOISE, None),
        (WALK.round(1), (WALK + 0.1 * NOISE).round(1), None),
        (WALK > 0, WALK > 3, None),
        (WALK, 0 * WALK, None),
        (WALK, np.where(np.arange(400) < 8, WALK, np.nan), None),
    ],
)
def test_copies_are_exact_up_to_rounding(one, other, said):
    table = np.column_stack([one, other]).astype(float)
    table[20:30, 0] = np.nan
    lines = said_copies(copies_of(table), ["a", "b"])
    assert len(lines) == (said is not None)
    assert not lines or lines[0].startswith(said)


@pytest.mark.parametrize("slope", [2.5, -0.4])
@pytest.mark.parametrize(
    "kind",
    [BoxCox(power=0.0, shift=0.1), BoxCox(power=0.5, lower=-1.0), YeoJohnson(power=0.5, centre=3.0), Logit(upper=9.0)],
)
def test_the_transform_of_a_copy_is_linear_in_that_of_its_column(kind, slope):
    y = np.linspace(0.1, 8.0, 50)
    moved = kind.moved(slope, 7.0)
    if slope < 0.0 and isinstance(kind, BoxCox):
        assert moved is None
    else:
        assert abs(np.corrcoef(kind.forward(y), moved.forward(slope * y + 7.0))[0, 1]) == pytest.approx(1.0, abs=1e-12)
    assert Rectified().moved(2.0, 7.0) == Rectified(lower=7.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:table.*far from its neighbours:UserWarning")
@pytest.mark.parametrize("slope", [1.8, 1.0, -1.0])
@pytest.mark.parametrize("transforms", ["auto", {"f": "yeo-johnson"}])
def test_a_copy_fills_the_other_exactly_in_both_directions(slope, transforms):
    """Skewed columns, too, whose transforms are chosen: each for itself they are no copies any more."""
    celsius = 20.0 * np.exp(np.convolve(np.random.default_rng(0).normal(size=209), np.ones(10) / 3, "valid")).round(2)
    truth = pd.DataFrame({"c": celsius, "f": slope * celsius + 32.0}, pd.date_range("2024-01-01", periods=200))
    table = truth.copy()
    table.iloc[30:50, 0] = table.iloc[70:85, 1] = np.nan
    imputer = CorrelatedGPImputer(transforms=transforms, random_state=0).fit(table)
    far = (imputer.transform(table) - truth).abs().max() / truth.std()
    assert far.max() < 2e-3
    low, high = imputer.interval(0.95)
    gaps = table.isna().to_numpy()
    assert np.isfinite((high - low).to_numpy()).all()
    assert ((low - 1e-6 <= truth) & (truth <= high + 1e-6)).to_numpy()[gaps].mean() > 0.9
    assert (f"f follows exactly from c, as {'' if slope == 1.0 else f'{slope:g} '}c + 32") in imputer.summary()
