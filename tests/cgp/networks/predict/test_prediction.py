"""Methods of a prediction."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

from cgp import SparseCGPAttention, predict
from cgp.networks.predict.prediction import TokenLayout, token_layout
from cgp.networks.tasks.metrics import classification_scores
from tests.cgp.helpers import is_whole
from tests.cgp.networks.convert import hosts


def prediction(task="classification", tokens=False, **options):
    head = nn.Linear(8, 3) if tokens else nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
    with torch.no_grad():
        (head if tokens else head[1]).weight.mul_(4)
    return predict(
        nn.Sequential(SparseCGPAttention(8, 2), head), torch.randn(10, 4, 8), 6, seed=0, task=task, **options
    )


def test_coverage_keeps_the_most_confident():
    p = prediction()
    for coverage, kept in ((0.0, 0), (0.5, 5), (1.0, 10)):
        withheld = p.abstain(coverage=coverage)
        assert int((~withheld).sum()) == kept
        if 0 < kept < 10:
            assert p.confidence[~withheld].min() >= p.confidence[withheld].max()


def test_risk_keeps_as_many_as_the_model_expects_to_answer_at_that_rate():
    p = prediction()
    ranked = (1 - p.confidence).sort().values
    for risk in (0.0, 0.1, float((1 - p.confidence).mean()) + 1e-6, 1.0):
        withheld = p.abstain(risk=risk)
        kept = int((~withheld).sum())
        assert kept == max((k for k in range(1, 11) if float(ranked[:k].mean()) <= risk), default=0)
    assert prediction(tokens=True).abstain(risk=0.2).shape == (10, 4)


def test_scores():
    p, labels = prediction(), torch.arange(10) % 3
    assert p.score(labels) == classification_scores(p.probabilities, labels)
    tokens, marked = prediction(tokens=True), torch.randint(0, 3, (10, 4))
    marked[:, 2:] = -100
    expected = classification_scores(tokens.probabilities[:, :2].flatten(0, 1), marked[:, :2].flatten())
    assert tokens.score(marked) == expected
    several = prediction("multilabel")
    truth = torch.randint(0, 2, (10, 3))
    right = ((several.probabilities > 0.5) == truth.bool()).float().mean()
    assert several.score(truth)["accuracy"] == pytest.approx(float(right))
    assert several.score(truth.float()) == several.score(truth)
    with pytest.raises(ValueError, match="class indices from 0 to 1, got 0 to 2"):
        several.score(2 * truth)
    assert dataclasses.replace(p, labels=labels).score() == p.score(labels)
    with pytest.raises(ValueError, match="labels: expected the true labels"):
        p.score()
    with pytest.raises(ValueError, match=r"labels: expected labels of shape \(10,\)"):
        p.score(labels[:3])


@pytest.mark.parametrize("use", ["score", "plot"])
def test_names_and_images_in_place_of_labels_are_refused(use):
    for names in (["cat"] * 10, np.array(["cat"] * 10)):
        with pytest.raises(TypeError, match=r"labels: expected numbers, .* got 'cat' \(pass \[names.index\(name\) for"):
            getattr(prediction(), use)(names)
    with pytest.raises(ValueError, match=r"labels: expected labels of shape \(10,\), got \(10, 3, 4, 4\)"):
        getattr(prediction(), use)(torch.zeros(10, 3, 4, 4))
    with pytest.raises(ValueError, match="labels: expected labels that are class indices from 0 to 2, got 1 to 3"):
        getattr(prediction(), use)(torch.arange(10) % 3 + 1)


def test_a_share_without_a_name_is_refused():
    with pytest.raises(TypeError, match=r"abstain: expected coverage=, .* or risk=, .* got 0.9 without a name"):
        prediction().abstain(0.9)


def test_scores_of_a_regression():
    p, values = prediction("regression", noise=0.5), torch.randn(10, 3)
    scores = p.score(values)
    assert scores["rmse"] == pytest.approx(float((values - p.mean).square().mean().sqrt()))
    normal = torch.distributions.Normal(p.mean, p.total.sqrt())
    assert scores["nll"] == pytest.approx(float(-normal.log_prob(values).mean()), rel=1e-5)
    bounds = normal.icdf(torch.tensor(0.05)), normal.icdf(torch.tensor(0.95))
    inside = (values >= bounds[0]) & (values <= bounds[1])
    assert scores["coverage90"] == pytest.approx(float(inside.float().mean()))
    assert p.abstain(coverage=0.5).float().mean(0).tolist() == [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="confidence: expected a prediction of classes"):
        prediction(None).abstain(coverage=0.5)


def test_a_regression_without_a_variance_has_only_an_error():
    draws = prediction("regression", noise=0.5)
    certain = torch.ones(10, 3)
    certain[4, 1] = 0.0
    for total in (None, torch.zeros(10, 3), certain):
        assert list(dataclasses.replace(draws, total=total).score(torch.randn(10, 3))) == ["rmse"]


@pytest.mark.parametrize(
    ("task", "columns"),
    [
        ("classification", ["class", "confidence", "total", "aleatoric", "epistemic"]),
        ("regression", ["mean 0", "mean 1", "mean 2", "total 0"]),
        ("multilabel", ["probability 0"]),
        (None, ["output 0", "output 1", "output 2", "epistemic 0"]),
    ],
)
def test_tables(task, columns):
    p = prediction(task)
    frame = p.to_frame()
    assert len(frame) == 10
    assert list(frame.columns)[: len(columns)] == columns
    np.testing.assert_array_equal(
        frame["epistemic" if task == "classification" else "epistemic 0"].to_numpy(),
        (p.epistemic if task == "classification" else p.epistemic[:, 0]).numpy(),
    )
    frame = prediction(tokens=True).to_frame()
    assert frame.index.names == ["input", "token"]
    assert len(frame) == 40


def test_without_pandas_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame: needs pandas"):
        prediction().to_frame()


def test_pictures():
    p, labels = prediction(), torch.arange(10) % 3
    assert p.plot(labels).get_ylabel() == "Accuracy"
    most = math.log(p.mean.shape[-1])
    ax = p.plot()
    assert ax.get_ylabel() == f"Uncertainty (nats, at most {most:.2g})"
    assert (ax.get_yscale(), ax.get_ylim()[0]) == ("linear", 0)  # where 0 has a place
    assert is_whole(ax.figure)
    for line, values in zip(ax.lines, (p.total, p.epistemic), strict=True):  # from the least to the most
        assert line.get_ydata()[[0, -1]].tolist() == pytest.approx([float(values.min()), float(values.max())])
    assert prediction("regression").plot().get_ylabel() == "Uncertainty (variance)"
    lost = dataclasses.replace(p, total=torch.full_like(p.total, torch.nan), epistemic=None)
    for each, got in ((p[torch.zeros(10, dtype=torch.bool)], "none"), (lost, "NaN or infinity")):
        with pytest.raises(ValueError, match=f"plot: expected answers with finite uncertainties, got {got}"):
            each.plot()


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({}, r"in \[0, 1\], got neither"),
        ({"risk": 0.1, "coverage": 0.5}, r"in \[0, 1\], got risk=0.1 and coverage=0.5"),
        ({"risk": 5}, r"in \[0, 1\], got risk=5; did you mean 0.05\?"),
        ({"coverage": -0.1}, r"in \[0, 1\], got coverage=-0.1"),
        ({"level": 0.95}, r"in \[0, 1\] \(risk= beside level=0.95\), got neither"),
    ],
)
def test_abstaining_takes_one_number(options, got):
    with pytest.raises(ValueError, match=f"risk, coverage: expected one of them {got}$"):
        prediction().abstain(**options)


def test_a_percentage_is_asked_about():
    with pytest.raises(ValueError, match=r"level: expected a probability in \(0, 1\), got 90; did you mean 0.9\?"):
        prediction().sets(90)
    with pytest.raises(
        ValueError, match=r"risk, level: expected both in .*, got risk=0.1 and level=95; did you mean 0.95\?"
    ):
        prediction().abstain(risk=0.1, level=95)


def test_scores_of_detectors_that_it_has_not_are_refused_by_name():
    scored = dataclasses.replace(prediction(), ood={"Mahalanobis": torch.zeros(10)})
    with pytest.raises(KeyError, match="expected one of .*'Mahalanobis'.* got 'Mahalanobi'; did you mean 'Mahala"):
        scored.ood["Mahalanobi"]
    with pytest.raises(KeyError, match="of which the model has none, got 'energy'"):
        prediction().ood["energy"]


def test_one_draw_is_one():
    assert ", 1 draw, " in repr(dataclasses.replace(prediction(), num_samples=1))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (hosts.torchvision_vit, TokenLayout(1, (4, 4))),
        (hosts.timm_vit, TokenLayout(1, (4, 4))),
        (hosts.timm_qk_norm, TokenLayout(3, (4, 4))),
        (hosts.timm_deit, TokenLayout(2, (4, 4))),
        (hosts.transformers_vit, TokenLayout(1, (4, 4))),
        (hosts.transformers_dinov2, TokenLayout(3, (4, 4))),
        (hosts.torch_encoder, TokenLayout(0, None)),
    ],
)
def test_layouts(make, expected):
    assert token_layout(make().model) == expected


def test_sizes_that_are_pairs():
    model = nn.Module()
    model.image_size, model.patch_size = (32, 24), [8, 4]
    assert token_layout(model) == TokenLayout(0, (4, 6))
    model.patch_size = (8, 4, 2)  # of a video
    assert token_layout(model) == TokenLayout(0, None)


def test_patches_lie_row_by_row():
    values = torch.arange(7.0).expand(2, 7)
    assert TokenLayout(1, None).patches(values, (2, 3))[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert TokenLayout(3, (9, 9)).patches(values).tolist() == [[[3, 4], [5, 6]]] * 2
    assert TokenLayout(6, None).patches(values).tolist() == [[[6]]] * 2
    with pytest.raises(ValueError, match=r"grid: expected 6 patches \(7 tokens, 1 of them before"):
        TokenLayout(1, None).patches(values, (2, 2))
    with pytest.raises(ValueError, match=r"got 2 × 2: grid=\(rows, columns\) says how they lie"):
        TokenLayout(1, None).patches(values)


@pytest.mark.parametrize("tokens", [False, True])
def test_a_part_of_a_prediction_is_that_of_its_inputs(tokens):
    p = prediction(tokens=tokens, keep_draws=True)
    p = dataclasses.replace(p, labels=p.classes, ood={"energy": torch.arange(10.0)}, limits={"energy": 4.0}, held_out=p)
    mask = torch.arange(10) % 3 == 0
    for chosen in (mask, mask.numpy(), mask.tolist(), [0, 3, 6, 9], np.array([0, 3, 6, 9]), slice(0, 10, 3)):
        part = p[chosen]
        assert len(part) == 4
        for name in ("mean", "probabilities", "total", "aleatoric", "epistemic", "labels", "classes"):
            assert torch.equal(getattr(part, name), getattr(p, name)[mask])
        assert torch.equal(part.draws, p.draws[:, mask])
        assert part.token_variance.keys() == p.token_variance.keys()
        assert all(torch.equal(part.token_variance[name], each[mask]) for name, each in p.token_variance.items())
        assert part.flags["flag"].tolist() == [False, False, True, True]
        assert part.score()["accuracy"] == 1.0
        assert part.held_out is None
    assert len(p) == 10
    assert len(p[torch.zeros(10, dtype=torch.bool)]) == 0


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        (3, TypeError, r"such as \[2:3\], got 3"),
        ("mean", TypeError, "got 'mean'"),
        ([True] * 9, ValueError, r"a mask of 10 inputs, got \(9,\)"),
        ([10], IndexError, "out of bounds|out of range"),
    ],
)
def test_a_part_that_is_not_there_is_refused(chosen, error, message):
    with pytest.raises(error, match=message):
        prediction()[chosen]
