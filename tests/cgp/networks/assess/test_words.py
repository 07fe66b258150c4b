"""Every sentence of a report names calls that exist: each runs as printed, and predicts what the report does."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import cgp
from cgp.comparisons import Difference
from cgp.networks.assess.claims import FEWEST_LABELS, Detection
from cgp.networks.assess.words import about_detection
from cgp.networks.methods.known import Posterior
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.tasks import Regression

RESULTS = Path(__file__).parents[4] / "docs" / "results"
METHODS = ("posterior", "GP read-out", "dropout")
CLEAR, NONE = Difference(-1.0, 0.01), Difference(0.0, 0.01)


class Network(nn.Module):
    """A transformer with dropout before its head, of inputs or tokens."""

    def __init__(self, outputs, *, tokens=False):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head, self.tokens = nn.Linear(8, outputs), tokens

    def forward(self, x):
        states = self.layer(x)
        return self.head(states if self.tokens else states.mean(1))


class Pixels(nn.Module):
    """A class for each pixel."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        return self.layer(x[..., None].movedim(2, 1))


@torch.no_grad()
def problem(task):
    """A network, held-out and training data, most of whose labels are its answers, and the inputs."""
    torch.manual_seed(0)
    x = torch.randn(120, 4, 8)
    model = {"dense": Pixels, "tokens": lambda: Network(3, tokens=True)}.get(task, lambda: Network(3))().eval()
    shape = {"tokens": (120, 4), "dense": (120, 4, 1)}.get(task, (120,))
    y = torch.randn(120, 3) if task == "regression" else torch.randint(3, shape)
    y = torch.randint(2, (120, 3)) if task == "multilabel" else y
    if task == "regression":
        return model, [(x[:80], (y + 3 * model(x))[:80])], [(x[80:], (y + 3 * model(x))[80:])], x
    answers = model(x) > 0 if task == "multilabel" else model(x).argmax(1 if task == "dense" else -1)
    y = torch.where(torch.rand(y.shape) < 0.8, answers.long(), y)
    return model, [(x[:80], y[:80])], [(x[80:], y[80:])], x


def reports(task):
    """The report on a network, and what it says where each method is clearly the best, and where none is."""
    model, known, train, _ = problem(task)
    options = {"train": train} if task in ("classification", "regression") else {}
    if task == "classification":
        options |= {"ood": {"far": 9 * known[0][0]}}
    report = cgp.assess(model, known, task=task, num_samples=2, **options)
    report = replace(report, least=dict.fromkeys(report.least, 1e-3))  # of what no label has shown nothing is feared
    for best in (None, *report.beyond):
        yield replace(
            report,
            least=dict.fromkeys(report.least, 1.0),
            beyond={name: CLEAR if name == best else NONE for name in report.beyond},
        )
    first = "scale" if task == "regression" else "temperature"
    differences = report.differences | {first: dict.fromkeys(report.differences[first], CLEAR)}
    yield replace(
        report,
        least=dict.fromkeys(report.least, 1.0),
        beyond=dict.fromkeys(report.beyond, NONE),
        differences=differences,
    )
    yield replace(report, num_inputs=FEWEST_LABELS - 1)


@pytest.mark.parametrize("task", ["classification", "tokens", "multilabel", "dense", "regression"])
def test_what_a_sentence_names_is_called_as_it_says(task):
    model, known, train, x = problem(task)
    named, methods = [], set()
    for report in reports(task):
        space = {"cgp": cgp, "report": report, "model": model, "inputs": x}
        exec(report.calls, space)
        methods.add(report.method)
        assert space["prediction"].mean.shape[0] == len(x)
        if task == "multilabel":
            assert not torch.allclose(space["prediction"].probabilities.sum(-1), torch.ones(()))
        way = report.choices[report.method].method
        if report.method != "as trained":
            method = Posterior(criterion="likelihood") if isinstance(way, Posterior) else way.name
            named.append(way.name)
            host = cgp.convert(model) if isinstance(method, Posterior) else model
            seen = {"train": train} if method == "readout" else {}
            calibrated = cgp.calibrate(host, known, method=method, task=task, num_samples=2, **seen).model
            by_hand, applied = (cgp.predict(m, x, 8, task=task, seed=0) for m in (calibrated, space["model"]))
            torch.testing.assert_close(by_hand.mean, applied.mean, rtol=0.1, atol=0.1)
            assert bool(stochastic_layers(calibrated)) == bool(stochastic_layers(space["model"]))
    advised = {method for method in methods if method.split(" + ")[0] in METHODS}
    assert methods - advised <= {"as trained", "temperature", "scale"}
    assert set(named) >= {method.split(" + ")[0].replace("GP read-out", "readout") for method in advised}


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_method_that_can_be_advised_is_tried(task):
    assert {report.method.split(" + ")[0] for report in reports(task)} >= set(METHODS)


def test_a_factor_of_a_variance_is_fitted_by_the_call_that_is_named():
    model, known, _, x = problem("regression")
    heads = {"output": lambda out: out, "noise": lambda out: 0.01 + out.square()}
    report = cgp.assess(model, known, task=Regression(**heads), compare=["dropout"])
    report = replace(
        report,
        least=dict.fromkeys(report.least, 1.0),
        differences=report.differences | {"scale": {"nll": CLEAR, "crps": CLEAR}},
    )
    report = replace(report, beyond=dict.fromkeys(report.beyond, NONE))
    assert "a factor of its variance: the NLL falls by" in report.sentence
    assert report.calls.endswith("cgp.predict(model, inputs, output=..., noise=...)")
    scaled = cgp.calibrate(model, known, method="scale", task=Regression(**heads)).model
    applied = cgp.predict(report.apply(model), x, **heads)
    torch.testing.assert_close(cgp.predict(scaled, x, **heads).total, applied.total, rtol=1e-4, atol=1e-6)


def test_of_many_other_sets_the_range_is_said():
    """Which the table above the sentence has one by one."""
    plain, energy = "1 - confidence", "energy"
    detection = {
        str(index): {
            plain: Detection(0.8, 0.0, NONE, 0.009, 1000),
            energy: Detection(
                0.9 + 0.01 * index, 0.0, Difference(0.1 + 0.01 * index, 0.001 * (1 + index)), 0.009, 1000
            ),
        }
        for index in range(6)
    }
    (said,) = about_detection(detection, dict.fromkeys(detection, energy))
    numbers = "AUROC 0.900 to 0.950, against 0.800 for 1 - confidence (+0.100 to +0.150, errors up to 0.006)."
    assert said == f"To tell 0, 1, 2, 3, 4, 5 from in-distribution inputs, use the energy: {numbers}"


def test_of_a_few_other_sets_each_has_a_line():
    """Numbers of one set beside each other, not those of one measure."""
    found = {"noise": (0.9, 0.1, 0.8), "blur": (0.7, 0.05, 0.65)}
    detection = {
        name: {
            "1 - confidence": Detection(plain, 0.0, NONE, 0.009, 1000),
            "energy": Detection(auroc, 0.0, Difference(gain, 0.01), 0.009, 1000),
        }
        for name, (auroc, gain, plain) in found.items()
    }
    (said,) = about_detection(detection, dict.fromkeys(detection, "energy"))
    assert said.splitlines() == [
        "To tell noise, blur from in-distribution inputs, use the energy:",
        "  noise: AUROC 0.900, against 0.800 for 1 - confidence (+0.1000 ± 0.0100).",
        "  blur: AUROC 0.700, against 0.650 for 1 - confidence (+0.0500 ± 0.0100).",
    ]


def test_a_page_of_results_says_of_its_numbers_what_a_report_does():
    """What is said of detection, from the table of AUROC above it and the gains in brackets."""
    page = (RESULTS / "dinov2.md").read_text(encoding="utf-8")
    said = " ".join(next(block for block in page.split("```") if "To tell" in block).removeprefix("text").split())
    table = page.partition("| score |")[2].partition("\n\n")[0].replace("**", "").splitlines()
    sets, *rows = ([cell.strip() for cell in row.strip("|").split("|")] for row in [table[0], *table[2:]])
    rows = [row for row in rows if row[0] != "50th neighbour"]  # none of the report's
    gains, chosen = {}, {}
    said_of = r"To tell (.*?) from .*?, use the (.*?):((?: .*?\))+?)(?:; that of [^;]*?)?\.(?= To|$)"
    for names, score, numbers in re.findall(said_of, said):
        for name, gain in zip(names.split(", "), re.findall(r"\((.*?)\)", numbers), strict=True):
            gains[name] = Difference(*map(float, gain.split(" ± ")))
            chosen[name] = score.replace(" distance", "")
    detection = {
        name: {row[0]: Detection(float(row[1 + index]), 0.0, gains[name], 0.009, 1000) for row in rows}
        for index, name in enumerate(sets)
    }
    assert said == " ".join(" ".join(about_detection(detection, chosen)).split())
    for stale in ("to which the", "add nothing;"):
        assert not any(stale in each.read_text(encoding="utf-8") for each in RESULTS.glob("*.md"))


@pytest.mark.parametrize("sets", [["noise"], ["noise", "blur"]])
def test_a_score_above_the_advised_one_is_said_not_to_be_surely_above(sets):
    scores = {
        "1 - confidence": Detection(0.6, 0.0, NONE, 0.009, 1000),
        "entropy": Detection(0.641, 0.0, Difference(0.041, 0.002), 0.009, 1000),
        "GP variance": Detection(0.651, 0.0, Difference(0.051, 0.03), 0.009, 1000),
    }
    (said,) = about_detection(dict.fromkeys(sets, scores), dict.fromkeys(sets, "entropy"))
    told = "(+0.0410 ± 0.0020); that of the GP variance, 0.651, is not surely above 1 - confidence."
    assert said.count(told) == len(sets)
    (said,) = about_detection({"noise": {n: scores[n] for n in ("1 - confidence", "entropy")}}, {"noise": "entropy"})
    assert said.endswith("(+0.0410 ± 0.0020).")
