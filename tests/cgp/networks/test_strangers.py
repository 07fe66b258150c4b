"""A stranger's method, detector, score of prediction sets and task: one class each, and nothing else to change."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

import cgp
from cgp.networks import InputScore, Method, SetScore
from cgp.networks.predict.method import Settings, with_settings
from cgp.networks.tasks import Classification


@dataclass
class Sharpened(Method):
    """Logits to a power, as if they were of another network."""

    power: float = 0.5

    name = "sharpened"

    def apply(self, model):
        forward = model.forward
        vars(model)["forward"] = lambda x: forward(x).sign() * forward(x).abs() ** self.power
        return model

    def undo(self, model):
        vars(model).pop("forward")

    def state(self):
        return {"power": self.power}, {}


@dataclass
class NearestNeighbour(InputScore):
    """Distance to the nearest training input, in the representation. Its tensor has the name of another score's."""

    means: torch.Tensor | None = None

    name, needs_train = "nearest neighbour", True

    def fit(self, training):
        return NearestNeighbour(training.features)

    def of(self, seen):
        return torch.cdist(torch.as_tensor(seen.features), self.means).amin(-1)

    def state(self):
        return {}, {"means": self.means}

    @classmethod
    def of_state(cls, config, tensors):
        return cls(tensors["means"])


class Rank(SetScore):
    """The rank of a class."""

    name = "rank"

    def of(self, probabilities):
        return np.argsort(np.argsort(-probabilities, -1), -1).astype(float)


class Signs(Classification):
    """Two classes of one logit."""

    name = "signs"

    def outputs(self, returned):
        return torch.cat([torch.zeros_like(returned), returned], -1)


def problem(outputs=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, outputs)).eval()
    with torch.no_grad():
        model[2].weight *= 8
    x = torch.randn(400, 5)
    logits = model(x).detach() / 3
    logits = torch.cat([torch.zeros_like(logits), logits], -1) if outputs == 1 else logits
    y = torch.distributions.Categorical(logits=logits).sample()
    return model, [(x[:150], y[:150])], [(x[150:350], y[150:350])], x[350:]


def test_all_are_compared_beside_ours_and_survive_the_disk(tmp_path):
    model, known, train, new = problem()
    compare = [Sharpened(), "readout", "energy", NearestNeighbour(), "Mahalanobis", "lac", Rank()]
    report = cgp.assess(model, known, compare=compare, train=train, ood={"far": 4 * new})
    assert list(report.scores) == ["as trained", "temperature", "sharpened + temperature", "GP read-out + temperature"]
    assert list(report.detection["far"]) == ["1 - confidence", "energy", "nearest neighbour", "Mahalanobis"]
    assert list(report.sets) == ["lac", "rank"]
    assert all(name in report.table() for name in (*report.scores, *report.detection["far"], *report.sets))

    applied = report.apply(model, "sharpened + temperature", ["nearest neighbour", "Mahalanobis"])
    expected = model(new).sign() * model(new).abs().sqrt() / report.choices["sharpened + temperature"].parameter
    prediction = cgp.predict(applied, new)
    torch.testing.assert_close(prediction.probabilities, expected.softmax(-1).detach())
    distances = torch.cdist(model[:2](new), model[:2](train[0][0])).amin(-1)
    torch.testing.assert_close(prediction.ood["nearest neighbour"].float(), distances.detach(), rtol=1e-4, atol=1e-4)
    cgp.save_pretrained(applied, tmp_path)
    again = cgp.predict(cgp.from_pretrained(tmp_path, problem()[0]), new)
    assert torch.equal(again.probabilities, prediction.probabilities)
    for name, scores in prediction.ood.items():
        assert torch.equal(again.ood[name], scores)


def test_a_method_is_calibrated_and_its_options_are_kept(tmp_path):
    model, known, _, new = problem()
    found = cgp.calibrate(model, known, method=Sharpened(power=0.25))
    assert found.method == "sharpened"
    assert found.nll < cgp.calibrate(model, known, method=Sharpened(power=0.25, scaled=False)).nll
    cgp.save_pretrained(found.model, tmp_path)
    again = cgp.from_pretrained(tmp_path, problem()[0])
    assert torch.equal(cgp.predict(again, new).mean, cgp.predict(found.model, new).mean)
    plain = cgp.calibrate(found.model, known, method="temperature").model  # does not pile up
    with pytest.warns(match="without the temperature of"):
        assert torch.equal(again(new), model(new).sign() * model(new).abs() ** 0.25)
    with pytest.warns(match="without the temperature of"):
        assert torch.equal(plain(new), model(new))


def test_a_detector_has_a_threshold_and_a_sum_with_the_energy():
    model, known, train, new = problem()
    for name, score in (("nearest neighbour", NearestNeighbour()), ("nearest neighbour + energy",) * 2):
        detector = cgp.Detector(score).fit(model, known, train=train)
        assert detector.name == name
        assert (detector.score(model, 9 * new) > detector.threshold(0.1)).all()


@pytest.mark.parametrize("method", ["lac", "rank"])
def test_sets_hold_the_label_as_often_as_they_say(method):
    model, known, train, _ = problem()
    scores = Rank() if method == "rank" else method
    sets = cgp.predict(model, train).sets(0.9, method=scores, held_out=cgp.predict(model, known))
    assert float(sets[torch.arange(200), train[0][1]].double().mean()) > 0.84
    report = cgp.assess(model, known, compare=[scores])
    assert 0.84 < report.sets[method].coverage <= 1.0
    assert 1.0 <= report.sets[method].size <= 4.0


def test_the_sizes_of_sets_are_those_of_folds_by_hand():
    model, known, _, _ = problem()
    report = cgp.assess(model, known, compare=["lac"])
    x, y = known[0]
    fold_of = torch.randperm(150, generator=torch.Generator().manual_seed(0)) % 5
    p = torch.zeros(150, 4, dtype=torch.float64)
    for fold in range(5):  # the labels of a fold have not chosen its temperature
        rest = fold_of != fold
        temperature = cgp.calibrate(model, [(x[rest], y[rest])], method="temperature").temperature
        p[~rest] = (model(x[~rest]) / temperature).softmax(-1).detach().double()
    sizes, inside = [], []
    for fold in range(5):
        rest = fold_of != fold
        losses = (1 - p[rest, y[rest]]).sort().values
        limit = losses[int(np.ceil((len(losses) + 1) * 0.9)) - 1]
        sets = (1 - p[~rest] <= limit + 1e-9) | (p[~rest] == p[~rest].amax(-1, keepdim=True))
        sizes += sets.sum(-1).tolist()
        inside += sets[torch.arange(len(sets)), y[~rest]].tolist()
    assert report.sets["lac"].size == pytest.approx(np.mean(sizes), abs=0.007)
    assert report.sets["lac"].coverage == pytest.approx(np.mean(inside), abs=0.007)


def test_a_task_is_asked_for_by_its_name():
    model, known, _, new = problem(outputs=1)
    found = cgp.calibrate(model, known, method="temperature", task="signs")
    assert 2 < found.temperature < 4.5
    assert cgp.assess(model, known, task="signs").num_labels == 150
    prediction = cgp.predict(found.model, new, task="signs")
    torch.testing.assert_close(
        prediction.probabilities[:, 1], (model(new)[:, 0] / found.temperature).sigmoid().detach()
    )
    with pytest.raises(ValueError, match="task: expected one of .*'signs'.* got 'sign'"):
        cgp.predict(model, new, task="sign")


def test_a_detector_reads_the_network_as_the_report_does():
    model, known, train, new = problem()
    task = Classification(features=lambda model, x: model[0](x).detach())
    report = cgp.assess(model, known, task=task, compare=[cgp.Detector("Mahalanobis")], train=train, ood={"far": new})
    expected = cgp.Detector("Mahalanobis", task=task).fit(model, known, train=train)
    torch.testing.assert_close(report.fitted["Mahalanobis"].score(model, new), expected.score(model, new))
    with pytest.raises(ValueError, match="compare: expected a detector .* got 'Mahalanobis' with another task"):
        cgp.assess(model, known, compare=[cgp.Detector("Mahalanobis", task=task)], train=train)


def test_what_is_not_known_is_refused(tmp_path):
    model, known, _, _ = problem()
    cgp.save_pretrained(cgp.calibrate(model, known, method=Sharpened()).model, tmp_path)
    kept = Method.known.pop("sharpened")
    try:
        with pytest.raises(ValueError, match="method: expected one of .* got 'sharpened'"):
            cgp.from_pretrained(tmp_path, model)
    finally:
        Method.known["sharpened"] = kept


@dataclass
class Powered(Method):
    """A stranger with fields, which are kept without a word of its own."""

    power: object = 2.0
    weights: np.ndarray = field(default_factory=lambda: np.arange(3.0))

    name = "powered"


@pytest.mark.parametrize("power", [3.0, "cube"])
def test_fields_of_a_method_are_kept(power):
    method = Powered(power=power, weights=np.arange(4.0))
    again = Method.of_saved(*method.saved())
    assert (again.power, again.weights.tolist(), again.scaled) == (power, [0.0, 1.0, 2.0, 3.0], True)


def test_fields_that_cannot_be_written_are_refused(tmp_path):
    model = with_settings(nn.Linear(2, 2), Settings(Powered(power=abs)))
    with pytest.raises(ValueError, match="expected methods and scores whose fields are numbers, text or arrays"):
        cgp.save_pretrained(model, tmp_path)
    assert not list(tmp_path.iterdir())
