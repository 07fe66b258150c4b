"""Whose line a warning names."""

import numpy as np
import pandas as pd
import pytest
import torch

from cgp import CorrelatedGPImputer
from cgp.regression import MAP, CorrelatedGPRegressor
from cgp.warning import warn_user

X = np.arange(12.0)[:, None]
QUICK = {"structure": "coregionalised", "inference": MAP(max_steps=1), "random_state": 0}


@pytest.mark.parametrize(
    "call",
    [
        lambda: CorrelatedGPRegressor(**QUICK).fit(X, np.sin(X)),
        lambda: CorrelatedGPImputer(**QUICK).fit_transform(pd.DataFrame({"a": [*np.sin(X[:, 0]), np.nan]})),
    ],
)
def test_a_fit_that_has_not_converged_names_the_line_that_asked_for_it(call):
    """However deep in the library, and through what scikit-learn and PyTorch wrap."""
    with pytest.warns(match="not converged") as said:
        call()
    assert [(each.filename, each.category.__name__) for each in said] == [(__file__, "ConvergenceWarning")]


def test_a_wrapper_of_pytorch_is_no_user():
    wrapped = torch.no_grad()(lambda: warn_user("text", FutureWarning))
    with pytest.warns(FutureWarning) as record:
        wrapped()
    (said,) = record
    assert (said.filename, str(said.message), said.category) == (__file__, "text", FutureWarning)
