"""Scores of other inputs by their formulas, which reports write."""

import numpy as np
import pytest
import torch
from torch import nn

import cgp
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


@pytest.mark.parametrize("name", ["Mahalanobis", "GP variance", "energy", "GradNorm"])
def test_scores_are_those_of_eval_mode_whatever_mode_a_model_is_in(name):
    """In which dropout is off, and batch norm takes what it has learned."""
    torch.manual_seed(0)
    layers = nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4)
    model, x = nn.Sequential(*layers).double(), torch.randn(90, 3).double()
    known, found = [(x[:60], x[:60].argmax(-1))], []
    for training in (False, True):
        model.train(training)
        detector = Detector(name).fit(model, known, train=known)
        scores = detector.score(model, x[60:]), cgp.predict(detector.attach(model), x[60:], num_samples=1).ood[name]
        found.append(torch.stack(scores))
        assert model.training is training
    torch.testing.assert_close(found[1], found[0], rtol=0.0, atol=0.0)
