"""Scores of other inputs by their formulas, which reports write."""

import numpy as np
import pytest
import torch
from torch import nn

from cgp import Detector
from tests.cgp.helpers import by_formula


@pytest.mark.parametrize("name", ["1 - confidence", "entropy", "energy", "Mahalanobis", "GP variance"])
def test_a_formula_computes_the_score_from_its_constants(name):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4)).double(), torch.randn(90, 3).double()
    known = [(x[:60], model(x[:60]).argmax(-1))]
    detector = Detector(name).fit(model, known, train=known)
    config, tensors = detector.terms[0].saved()
    constants = config["options"] | {key: tensor.tolist() for key, tensor in tensors.items()}
    given = {"logits": model(x[60:]).detach().numpy(), "features": model[:2](x[60:]).detach().numpy()}
    found = by_formula(detector.terms[0].formula, **given, **constants)
    np.testing.assert_allclose(found, detector.score(model, x[60:]), rtol=1e-4, atol=1e-6)
