"""``cgp assess``: what it reads, prints and draws, and what it refuses before anything heavy is imported."""

import csv
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import cgp
from cgp import commands
from cgp.networks.assess import written as written_by_reports
from cgp.networks.model.tempering import probabilities
from tests.cgp.helpers import by_formula

ROOT = Path(__file__).parents[3]


@pytest.fixture
def saved(tmp_path):
    """Predictions of four classes that are too sure of themselves, with features that tell classes and strangers."""
    rng = np.random.default_rng(0)

    def write(name, count, shift=0.0, **changed):
        truth = rng.normal(size=(count, 4))
        labels = np.array([rng.choice(4, p=row) for row in softmax(truth, -1)])
        features = np.eye(4)[labels] + 0.5 * rng.normal(size=(count, 4)) + shift
        arrays = {"logits": 3.0 * truth, "labels": labels, "features": features} | changed
        np.savez(tmp_path / name, **{key: value for key, value in arrays.items() if value is not None})
        return tmp_path / name

    return write


def test_the_advice_is_printed_in_numbers(saved, capsys):
    """The temperature minimises the NLL, by scipy; the scores are those of cgp.assess on a model with these logits."""
    path = saved("held_out.npz", 500)
    assert commands.main(["assess", str(path)]) == 0
    printed = capsys.readouterr().out
    held_out = np.load(path)

    def nll(temperature):
        return -log_softmax(held_out["logits"] / temperature, -1)[np.arange(500), held_out["labels"]].mean()

    best = minimize_scalar(nll, bounds=(0.1, 20.0), method="bounded").x
    said = " ".join(printed.split())
    assert f"Use a temperature of {best:.3g}: it then claims" in said
    told = float(said.partition("Divide the logits by ")[2].partition(",")[0])
    assert told == pytest.approx(best, rel=1e-3)
    assert f"as trained   {nll(1.0):.4f}" in printed


def test_rounded_probabilities_are_taken_as_in_python(saved, tmp_path, capsys):
    """Zeros as small as single precision allows would make the temperature several times as high."""
    logits, labels = (np.load(saved("exact.npz", 400))[name] for name in ("logits", "labels"))
    p = softmax(2.0 * logits, -1).round(4)
    rows = [f"{label},{','.join(f'{each:.4f}' for each in row)}" for label, row in zip(labels, p, strict=True)]
    (tmp_path / "p.csv").write_text("\n".join(["label,a,b,c,d", *rows]))

    def advised(*arguments):
        assert commands.main(["assess", *map(str, arguments), "--out", str(tmp_path / "x.json")]) == 0
        return json.loads((tmp_path / "x.json").read_text())["methods"]["temperature"]["temperature"]

    temperature, said = advised(tmp_path / "p.csv"), " ".join(capsys.readouterr().out.split())
    zeros = int((p[np.arange(400), labels] == 0).sum())
    assert zeros
    assert f"{zeros} of 400 right classes have probability 0: rounded to 0.0001" in said
    np.savez(tmp_path / "twice.npz", logits=2.0 * logits, labels=labels)
    assert temperature == pytest.approx(advised(tmp_path / "twice.npz"), rel=0.15)
    with pytest.warns(UserWarning, match="rounded to 0.0001"):
        report = cgp.assess(torch.nn.Identity(), [(torch.tensor(p), torch.tensor(labels))], output="probabilities")
    assert temperature == pytest.approx(report.choices["temperature"].parameter, rel=1e-6)


def test_representation_and_strangers_are_scored(saved, tmp_path, capsys):
    paths = saved("held_out.npz", 400), saved("train.npz", 400), saved("far.npz", 100, shift=9.0, labels=None)
    arguments = ["--train", str(paths[1]), "--ood", str(paths[2]), "--picture", str(tmp_path / "report.png")]
    assert commands.main(["assess", str(paths[0]), *arguments]) == 0
    printed = capsys.readouterr().out
    assert "GP read-out + temperature" in printed
    flagged = next(part for part in printed.split("\n\n") if part.startswith("Flag inputs whose "))
    assert "at most 5 % of the labelled ones are" in " ".join(flagged.split())
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_saved_outputs_at_chance_are_compared_with_what_was_given(saved, capsys):
    """No network runs, and a command line names no methods to go on with."""
    labels = np.random.default_rng(1).integers(4, size=200)
    path, train = saved("held_out.npz", 200, labels=labels), saved("train.npz", 200, labels=labels[::-1])
    assert commands.main(["assess", str(path), "--train", str(train), "--ood", str(saved("far.npz", 200, 2.0))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "these logits say nothing of the labels" in printed
    assert "GP read-out + temperature" in printed
    assert "GP variance + energy" in printed
    assert "was not compared" not in printed


def test_withheld_answers_keep_to_the_risk(saved, capsys):
    """As `abstain(risk=, level=)` on the same held-out labels, which is the oracle."""
    path = saved("held_out.npz", 2000)
    assert commands.main(["assess", str(path), "--risk", "0.3"]) == 0
    last = " ".join(capsys.readouterr().out.split("\n\n")[-2].split())
    held_out = np.load(path)
    confidence = softmax(held_out["logits"], -1).max(-1)
    right = held_out["logits"].argmax(-1) == held_out["labels"]
    threshold = cgp.networks.guarantees.conformal.risk_threshold(confidence, right, 0.3, 0.95)
    printed = float(last.partition("above ")[2].partition(",")[0])
    assert 0.0 <= printed - threshold < 1e-4
    np.testing.assert_array_equal(confidence > printed, confidence > threshold)
    assert f", {100 * (confidence > threshold).mean():.0f} % of the inputs" in last


def test_a_risk_that_so_few_labels_cannot_guarantee_is_refused(saved, tmp_path, capsys):
    """In the words of `abstain` in Python, and nothing is written."""
    path, out = saved("held_out.npz", 300), tmp_path / "report.json"
    table = tmp_path / "answers.csv"
    asked = ["--risk", "0.005", "--out", str(out), "--answer", str(path), str(table)]
    assert commands.main(["assess", str(path), *asked]) == 2
    told = "expected at least 598 labels to keep to a risk of 0.005 with a confidence of 0.95, got 300"
    assert f"--risk: {told}" in capsys.readouterr().err
    assert not out.exists()
    assert not table.exists()
    network, batch = torch.nn.Identity(), tuple(torch.from_numpy(np.load(path)[key]) for key in ("logits", "labels"))
    known, new = cgp.predict(network, [batch]), cgp.predict(network, batch[0][1:])
    with pytest.raises(ValueError, match=f"held_out: {told}"):
        new.abstain(risk=0.005, level=0.95, held_out=known)


def test_the_reason_for_no_answer_is_that_of_abstain(saved, capsys):
    """In the words of `abstain` in Python."""
    path = saved("held_out.npz", 350)
    held_out = np.load(path)
    wrong = (held_out["logits"].argmax(-1) != held_out["labels"]).mean()
    assert commands.main(["assess", str(path), "--risk", "0.05"]) == 0
    told = " ".join(capsys.readouterr().out.split("\n\n")[-2].split())
    why = f"very answer is withheld: of 350 held-out answers {wrong:.1%} are wrong, and no share of the surest keeps to"
    start = f"E{why} a risk of 0.05 with a confidence of 0.95 (some do to "
    least, _, rest = told.removeprefix(start).partition(", ")
    assert rest == "but these labels chose that risk, so only new ones could guarantee it)."
    threshold = partial(cgp.networks.guarantees.conformal.risk_threshold, softmax(held_out["logits"], -1).max(-1))
    right = held_out["logits"].argmax(-1) == held_out["labels"]
    assert threshold(right, float(least), 0.95) is not None
    assert threshold(right, round(float(least) - 0.01, 2), 0.95) is None
    network, batch = torch.nn.Identity(), [(torch.from_numpy(held_out["logits"]), torch.from_numpy(held_out["labels"]))]
    known, new = cgp.predict(network, batch), cgp.predict(network, batch[0][0][1:])
    with pytest.warns(UserWarning, match=f"abstain: e{why}"):
        new.abstain(risk=0.05, level=0.95, held_out=known)


def test_the_level_is_that_of_the_risk(saved, capsys):
    path = saved("held_out.npz", 2000)
    held_out = np.load(path)
    confidence, right = softmax(held_out["logits"], -1).max(-1), held_out["logits"].argmax(-1) == held_out["labels"]
    for level in (0.5, 0.999):
        assert commands.main(["assess", str(path), "--risk", "0.4", "--level", str(level)]) == 0
        last = " ".join(capsys.readouterr().out.split("\n\n")[-2].split())
        threshold = cgp.networks.guarantees.conformal.risk_threshold(confidence, right, 0.4, level)
        assert 0.0 <= float(last.partition("above ")[2].partition(",")[0]) - threshold < 1e-4
        assert last.endswith(f"with a confidence of {level:g}.")


def constants_of(part, folder):
    """What a formula takes, from a report or, where it says so, from the file beside it."""
    read = {key: each for key, each in part["constants"].items() if isinstance(each, dict)}
    return part["constants"] | {key: np.load(folder / each["file"])[each["array"]] for key, each in read.items()}


@pytest.mark.parametrize(("least", "beside"), [(3, " with report.constants.npz"), (10_000, "")])
def test_the_report_in_numbers_is_enough_to_flag_and_withhold(least, beside, saved, tmp_path, capsys, monkeypatch):
    """The table of answers is computed again from the .json and its formulas, by NumPy and SciPy alone."""
    monkeypatch.setattr(written_by_reports, "_LARGE", least)
    held_out, train = saved("held_out.npz", 400), saved("train.npz", 400)
    far, new = saved("far.npz", 100, shift=9.0, labels=None), saved("new.npz", 60, shift=1.0, labels=None)
    out, table = tmp_path / "report.json", tmp_path / "answers.csv"
    further = saved("further.npz", 400)
    arguments = ["--train", train, "--ood", far, "--held-out", further, "--risk", "0.4", "--out", out, "--answer", new]
    assert commands.main(["assess", str(held_out), *map(str, [*arguments, table, "--method", "temperature"])]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    found, logits, features = json.loads(out.read_text()), np.load(new)["logits"], np.load(new)["features"]
    change = (scores := found["methods"]["temperature"])["change"]["nll"]
    assert f"{change['mean']:+.4f} ± {change['error']:.4f}".replace("-", "−") in printed.replace("-", "−")
    assert f"as trained {found['methods']['as trained']['nll']:.4f}" in printed
    rows = rows_of(table)
    np.testing.assert_array_equal(rows["class"], logits.argmax(-1))
    probabilities = softmax(logits / scores["temperature"], -1)
    np.testing.assert_allclose(rows["confidence"], probabilities.max(-1), rtol=1e-6)
    withheld = ~(probabilities.max(-1) > found["answer"]["threshold"])
    np.testing.assert_array_equal(rows["withheld"], withheld)
    assert 0 < withheld.sum() < 60
    assert (found["answer"]["of"], found["logits"]) == ("the largest probability, by the temperature", "as saved")
    ((name, flag),) = found["flag"].items()
    assert f"Flag inputs whose {name} is above {flag['threshold']:.4g}" in printed
    assert f"report.json{beside} has its constants, and answers.csv flags new inputs." in printed
    given, parts = {"logits": logits, "features": features}, flag["sum of (score - mean) / deviation"]
    scored = [by_formula(part["formula"], **given, **constants_of(part, tmp_path)) for part in parts]
    total = sum((each - part["mean"]) / part["deviation"] for each, part in zip(scored, parts, strict=True))
    np.testing.assert_array_equal(rows["flag"], total > flag["threshold"])
    assert 0 < rows["flag"].sum() < 60
    assert f"csv answers {60 - withheld.sum():.0f} of 60 inputs, and flags {rows['flag'].sum():.0f}." in printed


@pytest.fixture
def poor(saved):
    """Files of a network that knows less than its features: labelled, of the training, of further labels, and new."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 1600)
    features = np.eye(4)[labels] + 0.3 * rng.normal(size=(1600, 4))
    arrays = {"labels": labels, "features": features, "logits": rng.normal(size=(1600, 4)) + np.eye(4)[labels]}
    names = ("held_out.npz", "train.npz", "further.npz", "new.npz")
    return [
        saved(name, 400, **{key: values[400 * place : 400 * place + 400] for key, values in arrays.items()})
        for place, name in enumerate(names)
    ]


def rows_of(table):
    """The rows of a table of answers, by the names of the columns."""
    return np.genfromtxt(table, delimiter=",", names=True, dtype=None, encoding="utf-8", deletechars="")


def test_without_further_labels_answers_are_of_the_network_as_trained(poor, tmp_path, capsys):
    """The labels fitted what is recommended; what answers is said once, and its columns are of one method."""
    held_out, train, _, new = poor
    table = tmp_path / "answers.csv"
    plain = ["assess", str(held_out), "--train", str(train), "--answer", str(new), str(table)]
    known = np.load(new)
    right = []
    for more, by, method in (
        ([], "the GP read-out + temperature.", "GP read-out + temperature"),
        (["--risk", "0.5", "--sets", "0.9"], "the network as trained: these labels fitted the GP", "as trained"),
    ):
        assert commands.main([*plain, *more]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert told.partition("answers.csv answers new inputs by ")[2].startswith(by)
        rows = rows_of(table)
        assert {*rows["method"]} == {method}
        right.append(float((rows["class"] == known["labels"]).mean()))
    assert rows.dtype.names == ("input", "class", "confidence", "method", "withheld", "set")
    np.testing.assert_allclose(rows["confidence"], softmax(known["logits"], -1).max(-1), rtol=1e-12)
    rule = told.partition("Answer where the largest probability, as trained, is above ")[2]
    np.testing.assert_array_equal(rows["withheld"], ~(rows["confidence"] > float(rule.partition(",")[0])))
    assert 0 < rows["withheld"].sum() < len(rows)
    assert told.endswith(f" answers.csv answers {len(rows) - rows['withheld'].sum():.0f} of {len(rows)} inputs.")
    assert right[1] == (known["logits"].argmax(-1) == known["labels"]).mean()
    assert right[0] > right[1] + 0.2


@pytest.mark.parametrize("method", ["readout", "temperature"])
@pytest.mark.parametrize("asked", [["--risk", "0.5"], ["--sets", "0.9"]])
def test_without_further_labels_no_other_method_is_guaranteed(method, asked, poor, tmp_path, capsys):
    held_out, train, _, new = poor
    answer = ["--train", str(train), "--answer", str(new), str(tmp_path / "answers.csv"), "--method"]
    assert commands.main(["assess", str(held_out), *answer, method, *asked]) == 2
    assert "--method: expected --held-out FILE beside it, as --risk and --sets are " in capsys.readouterr().err
    assert not (tmp_path / "answers.csv").exists()


@pytest.mark.parametrize(
    ("method", "lacking"),
    [
        ("posterior", " (posterior needs the model, cgp.assess in Python)"),
        ("readout", " (readout needs --train FILE, with features)"),
        ("GP read-out + temperature", " (GP read-out + temperature needs --train FILE, with features)"),
        ("gp", ""),
    ],
)
def test_a_method_that_the_report_has_not_is_refused(method, lacking, saved, tmp_path, capsys):
    """With what it takes to have it."""
    held_out = str(saved("held_out.npz", 100))
    answer = ["--answer", held_out, str(tmp_path / "answers.csv"), "--method", method]
    assert commands.main(["assess", held_out, *answer]) == 2
    told = f"--method: expected one of ('as trained', 'temperature'), got '{method}'{lacking}\n"
    assert capsys.readouterr().err.endswith(told)


def in_sets(rows):
    """Whether each of four classes is in the set of each row."""
    sets = [{*map(int, str(each).split())} for each in rows["set"]]
    return np.array([[number in each for number in range(4)] for each in sets])


def test_sets_are_those_of_the_network_itself_as_in_python(saved, tmp_path, capsys):
    """By the labels of the report, which have chosen nothing of it; no more labels are needed than for the level."""
    held_out, new, table = saved("held_out.npz", 400), saved("new.npz", 200, labels=None), tmp_path / "answers.csv"
    arguments = ["assess", str(held_out), "--answer", str(new), str(table), "--sets"]
    assert commands.main([*arguments, "0.9"]) == 0
    told = " ".join(capsys.readouterr().out.split("\n\n")[-3].split())
    assert told.endswith("A set of classes, as trained, holds the right one with a probability of at least 0.9.")
    known, network = (torch.from_numpy(np.load(held_out)[name]) for name in ("logits", "labels")), torch.nn.Identity()
    held, answers = cgp.predict(network, [tuple(known)]), cgp.predict(network, np.load(new)["logits"])
    sets = in_sets(rows_of(table))
    np.testing.assert_array_equal(sets, answers.sets(0.9, held_out=held))
    assert 1.0 < sets.sum(1).mean() < 4.0
    assert commands.main([*arguments, "0.999"]) == 2
    message = "cgp assess: --sets: expected at least 999 labels for a probability of 0.999, got 400"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("method", ["as trained", "temperature"])
def test_the_report_in_numbers_is_enough_for_sets(method, saved, tmp_path):
    """By NumPy alone; where the likeliest class is right often enough by itself, it is the only one."""
    files = [str(saved(name, 400)) for name in ("held_out.npz", "further.npz", "new.npz")]
    table, out, logits = tmp_path / "answers.csv", tmp_path / "report.json", np.load(files[2])["logits"]
    for level in (0.9, 0.3):
        arguments = ["assess", files[0], "--held-out", files[1], "--sets", str(level), "--method", method]
        assert commands.main([*arguments, "--answer", files[2], str(table), "--out", str(out)]) == 0
        found = json.loads(out.read_text())
        p = softmax(logits / found["methods"][method]["temperature"], -1)
        sets = (p >= found["sets"]["threshold"]) | (p == p.max(-1, keepdims=True))
        np.testing.assert_array_equal(in_sets(rows_of(table)), sets)
        assert (sets.sum(-1).max() > 1) == (level > 0.5)
        assert (found["sets"]["method"], found["sets"]["level"]) == (method, level)
        assert commands.main([*arguments[:-2], "--out", str(out)]) == 0
        assert json.loads(out.read_text())["sets"]["level"] == level


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "cgp assess: the following arguments are required: predictions (cgp assess --help lists what there is)"),
        (["a.npz", "--b"], "cgp assess: unrecognized arguments: --b (cgp assess --help lists what there is)"),
        (["a.npz", "--risk"], "cgp assess: argument --risk: expected SHARE"),
    ],
)
def test_a_command_line_that_does_not_fit_is_said_in_a_line(given, said, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(["assess", *given])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"{said}\n"


def test_help_says_what_is_not_as_advised(capsys):
    with pytest.raises(SystemExit):
        commands.main(["assess", "--help"])
    shown = " ".join(capsys.readouterr().out.split()).replace("read- out", "read-out")
    assert "to use without cgp; not a GP read-out, by which --answer answers" in shown
    assert "of what is advised, or of --method: without, they are of the network as trained" in shown


def test_the_command_line_of_readme_answers_by_what_is_advised(saved, tmp_path, monkeypatch, capsys):
    """The logits of its files are three times too large."""
    for name in ("held_out.npz", "further.npz", "new.npz"):
        saved(name, 900)
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = readme.partition("`cgp assess held_out.npz ")[2].partition("`")[0]
    assert commands.main(["assess", "held_out.npz", *line.replace("0.05", "0.4").split()]) == 0
    assert "Use a temperature of " in " ".join(capsys.readouterr().out.split())
    rows = rows_of(tmp_path / "answers.csv")
    assert {*rows["method"]} == {"temperature"}
    assert 0 < rows["withheld"].sum() < len(rows)


@pytest.mark.parametrize(("method", "risk"), [(None, 0.02), ("temperature", 0.4)])
def test_further_labels_guarantee_what_is_recommended(method, risk, poor, tmp_path, capsys):
    """The threshold is that of `abstain` in Python on the same labels, by the recommended method or the named one."""
    held_out, train, further, new = poor
    table, out = tmp_path / "answers.csv", tmp_path / "report.json"
    arguments = ["--train", train, "--held-out", further, "--risk", risk, "--answer", new, table, "--out", out]
    arguments += ["--sets", 0.95]
    named = [] if method is None else ["--method", method]
    assert commands.main(["assess", str(held_out), *map(str, arguments), *named]) == 0
    told = " ".join(capsys.readouterr().out.split())
    method = method or "GP read-out + temperature"
    assert f"answers.csv answers new inputs by the {method}." in told
    files = {path.stem: {name: torch.from_numpy(values) for name, values in np.load(path).items()} for path in poor}
    batches = {name: [(torch.hstack([f["logits"], f["features"]]), f["labels"])] for name, f in files.items()}

    class Network(torch.nn.Module):
        def forward(self, x):
            return x[:, :4]

    task = cgp.networks.tasks.Classification(features=lambda _, x: x[:, 4:])
    report = cgp.assess(network := Network(), batches["held_out"], train=batches["train"], task=task)
    guarded = cgp.with_held_out(report.apply(network, method), batches["further"])
    answers = cgp.predict(guarded, batches["new"])
    withheld = answers.abstain(risk=risk, level=0.95).numpy()
    rows = rows_of(table)
    assert {*rows["method"]} == {method}
    np.testing.assert_array_equal(rows["class"], answers.classes)
    np.testing.assert_allclose(rows["confidence"], answers.confidence, rtol=1e-9)
    np.testing.assert_array_equal(rows["withheld"], withheld)
    assert 0 < withheld.sum() < len(withheld)
    np.testing.assert_array_equal(in_sets(rows), answers.sets(0.95))
    assert f"A set of classes, by the {method}, holds the right one with a probability of at least 0.95." in told
    of = json.loads(out.read_text())["answer"]["of"]
    assert of == f"the largest probability, by the {method}"
    assert f"Answer where {of}, is above" in told


def test_further_labels_that_fitted_the_method_are_refused_at_once(poor, saved, capsys, monkeypatch):
    """Also from a file without the features, and before anything is assessed."""
    monkeypatch.setattr(commands.assess._Network, "assessed", None)
    held_out, train, _, _ = poor
    bare = saved("bare.npz", 400, **(dict(np.load(held_out)) | {"features": None}))
    for path in (held_out, train, bare):
        given = ["--train", str(train), "--held-out", str(path), "--risk", "0.2"]
        assert commands.main(["assess", str(held_out), *given]) == 2
        message = "cgp assess: --held-out: expected none of the inputs that the model was fitted to, got 400 of 400: "
        assert message in capsys.readouterr().err


def test_several_detectors_share_the_rate_of_flags(saved, monkeypatch, capsys):
    monkeypatch.setattr(commands.assess, "_named", lambda report: ["energy", "entropy"])
    far = saved("far.npz", 100, shift=9.0, labels=None)
    assert commands.main(["assess", str(saved("held_out.npz", 400)), "--ood", str(far)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("2.5 % of the labelled ones are.") == 2
    assert "All together flag at most 5 % of inputs like the labelled ones." in printed
    assert commands.main(["assess", str(saved("few.npz", 36)), "--ood", str(far)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    few = "No input can be flagged by its energy: at least 39 labels would be needed by 2 detectors, there are 36."
    assert few in printed
    assert "inf" not in printed.partition("AUROC")[0]


def test_calls_of_a_sentence_become_flags():
    words = "Use a GP read-out: +1 by it: report.apply(model, 'GP read-out')"
    flags = "Use a GP read-out: +1 by it: --answer FILE TABLE --method 'GP read-out'"
    assert commands.assess._in_flags(words) == flags


def test_help_lists_what_a_file_may_have(capsys):
    with pytest.raises(SystemExit):
        commands.main(["assess", "--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {key} " in shown for key in ("logits", "probabilities", "labels", "features"))


def test_what_to_do_is_printed_above_the_scores(saved, capsys):
    assert commands.main(["assess", str(saved("held_out.npz", 300))]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("As trained ")
    assert printed.index("Divide the logits by") < printed.index("method ")


def test_help_ends_in_examples(capsys):
    with pytest.raises(SystemExit):
        commands.main(["assess", "--help"])
    assert capsys.readouterr().out.endswith(f"examples:\n{commands.assess.EXAMPLES}")


def test_a_file_of_values_is_sent_to_python(tmp_path, capsys):
    """Not to the labels, which it has."""
    np.savez(tmp_path / "values.npz", mean=np.zeros(30), std=np.ones(30), labels=np.zeros(30))
    assert commands.main(["assess", str(tmp_path / "values.npz")]) == 2
    said = capsys.readouterr().err
    assert "cgp.assess in Python is for values with their variances" in said
    assert "did you mean" not in said


def test_a_threshold_close_to_one_is_printed_with_the_digits_that_it_needs(saved, capsys):
    """Of an overconfident network four decimals are 1.0000, above which there is no answer."""
    rng = np.random.default_rng(3)
    labels, wrong = rng.integers(0, 4, 2000), rng.random(2000)
    logits = 40.0 * np.eye(4)[np.where(wrong < 0.2, (labels + 1) % 4, labels)]
    logits[:, 0] += np.where(wrong < 0.2, rng.normal(-22.0, 1.0, 2000), rng.normal(-20.0, 1.0, 2000)) * 0.5
    logits -= np.where(wrong < 0.2, 18.0, 0.0)[:, None] * np.eye(4)[logits.argmax(1)]
    path = saved("held_out.npz", 2000, logits=logits, labels=labels, features=None)
    assert commands.main(["assess", str(path), "--risk", "0.05"]) == 0
    last = capsys.readouterr().out.split("\n\n")[-2]
    printed = float(last.replace("\n", " ").partition("above ")[2].partition(",")[0])
    confidence = softmax(logits, -1).max(-1)
    answered = confidence > printed
    assert 0.9999 < printed < 1.0
    right = logits.argmax(-1) == labels
    threshold = cgp.networks.guarantees.conformal.risk_threshold(confidence, right, 0.05, 0.95)
    np.testing.assert_array_equal(answered, confidence > threshold)
    assert answered.mean() > 0.05


@pytest.mark.parametrize(
    ("limit", "values", "printed"),
    [
        (0.98765, [0.5, 0.99], "0.9877"),
        (0.98765, [0.5, 0.98766], "0.987651"),
        (-12.3456, [-20.0, 3.0], "-12.34"),
        (123456.0, [1e6], "123500"),
        (float("inf"), [1.0], "inf"),
    ],
)
def test_limits_are_rounded_up_and_leave_the_same_values_above(limit, values, printed):
    assert commands.assess._rounded_up(limit, values) == printed


def test_a_temperature_below_one_is_said_with_what_it_keeps(saved, capsys):
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(600, 5))
    labels = (np.cumsum(softmax(truth, -1), 1) < rng.random((600, 1))).sum(1)
    path = saved("held_out.npz", 600, logits=0.4 * truth, features=None, labels=labels)
    assert commands.main(["assess", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    temperature = float(told.partition("Divide the logits by ")[2].partition(",")[0])
    assert 0.3 < temperature < 0.5
    kept = "Then take 0.99 of these probabilities and 0.01 of those without the temperature: "
    assert kept + "it can cost no answer more than 4.6 nats." in told
    then = probabilities(torch.from_numpy(0.4 * truth), temperature).amax(-1).mean()
    claimed = float(told.partition("it then claims ")[2].partition("%")[0]) / 100
    assert claimed == pytest.approx(float(then), abs=0.01)  # each fold has a temperature of its own


def test_probabilities_and_draws_are_read(saved, capsys):
    """Probabilities, and draws that are all alike, give the report of the logits, and how what there is is changed."""
    rng = np.random.default_rng(1)
    logits, p = 4.0 * (truth := rng.normal(size=(300, 3))), softmax(truth, -1)
    labels, likely = (np.cumsum(p, 1) < rng.random((300, 1))).sum(1), softmax(logits, -1)
    forms = {"logits": logits}, {"logits": np.stack([logits, logits + 1.0])}, {"probabilities": likely}
    advice = []
    for form in (*forms, {"probabilities": np.stack([likely, likely])}):
        path = saved("held_out.npz", 300, **{"logits": None, "features": None, "labels": labels} | form)
        assert commands.main(["assess", str(path)]) == 0
        said, last, table = capsys.readouterr().out.split("\n\n")
        advice.append(((said, table), " ".join(last.split())))
    assert all(report == advice[0][0] for report, _ in advice)
    temperature = float(advice[0][1].removeprefix("Divide the logits by ").partition(",")[0])
    averaged = "averaged probabilities"
    for (_, told), which in zip(advice[1:], (averaged, "probabilities", averaged), strict=True):
        power = float(told.removeprefix(f"Raise the {which} to the power ").partition(" and")[0])
        assert told.endswith(" and divide each row by its sum.")
        np.testing.assert_allclose(
            likely**power / (likely**power).sum(1, keepdims=True), softmax(logits / temperature, -1), atol=1e-3
        )


_GOOD = {"logits": np.zeros((4, 2)), "labels": np.zeros(4, int)}


def _saved(row):
    """Four rows saved as probabilities."""
    return {"probabilities": np.tile(row, (4, 1)), "labels": np.zeros(4, int)}


@pytest.mark.parametrize(
    ("arrays", "arguments", "message"),
    [
        (None, [], "no such file"),
        (
            b"logits,labels",
            [],
            "expected an .npz or .csv of logits and labels, got a file of another kind, such as text (np.savez(file, ",
        ),
        ({"labels": np.zeros(4, int)}, [], "expected logits or probabilities, got ['labels']"),
        (
            {"scores": np.zeros(4), "y": np.zeros(4)},
            [],
            "expected logits or probabilities, got ['scores', 'y'] (np.sav",
        ),
        (
            {"logit": np.zeros(4), "label": np.zeros(4)},
            [],
            "got ['logit', 'label']; did you mean 'logits', 'labels'? (",
        ),
        (
            {"logits": np.zeros((4, 2)), "probabilities": np.full((4, 2), 0.5)},
            [],
            "expected one of the two, logits or probabilities, got both (np.savez(file, ",
        ),
        (
            _GOOD | {"logits": np.ones(4)},
            [],
            "got shape (4,) (of one number z (N,) for the second of two classes save np.stack([0 * z, z], 1))",
        ),
        ({"probabilities": np.ones((4, 1)), "labels": np.zeros(4, int)}, [], "save np.stack([1 - z, z], 1))"),
        ({"logits": np.zeros((4, 2)), "label": np.zeros(4)}, [], "got only logits, label; did you mean 'labels'? (np"),
        ({"logits": np.zeros((4, 2)), "y": np.zeros(4)}, [], "expected labels (4,), got only logits, y (np.savez("),
        (_GOOD | {"labels": np.zeros(3, int)}, [], "expected labels (4,), one for each input, got (3,)"),
        ({"logits": np.zeros((2, 4)), "labels": np.zeros(4, int)}, [], "got (4,) (are the logits transposed?"),
        (_GOOD | {"labels": np.zeros(4)}, [], "of integers, got float64 (4,) (save labels.astype(int), from 0 as"),
        (_GOOD | {"labels": np.eye(2)[[0, 1, 1, 0]]}, [], "got float64 (4, 2) (save labels.argmax(1), from 0 as the"),
        (_GOOD | {"labels": np.full(4, "cat")}, [], "got <U3 (4,) (save the number of each class, from 0 as the log"),
        (_GOOD | {"labels": np.full(4, "a")}, [], "them, or beside them classes=[...], their names in that order)"),
        (_GOOD | {"labels": np.full(4, "c"), "classes": np.array(["a", "b"])}, [], "columns ('a', 'b'), got 'c'"),
        (
            _GOOD | {"classes": np.arange(2)},
            [],
            "expected classes (2,), different names as text, got int64 (2,) (save c",
        ),
        (_GOOD | {"classes": np.array(["a"])}, [], "expected classes (2,), different names as text, got <U1 (1,) (sa"),
        (_GOOD | {"labels": np.array([0] * 4, object)}, [], "got an array of Python objects (save it .astype(int), or"),
        (_GOOD | {"labels": np.full(4, 2)}, [], "in 0 … 1, got 2 … 2 (leave out inputs of other classes)"),
        (_GOOD | {"labels": np.array([1, 2, 2, 1])}, [], "expected labels in 0 … 1, got 1 … 2 (save labels - 1)"),
        (
            _GOOD | {"logits": np.array([[1, 2], [1, 2], [np.nan, 2], [1, 2]])},
            [],
            "expected finite logits, got NaN or infinity in row 2 (leave such inputs out)",
        ),
        (_saved([0.9, 0.6]), [], "whose rows sum to 1, got rows that sum to 1.5 … 1.5, such as of several labels each"),
        (_saved([0.9, 0.07]), [], "rows that sum to 0.97 … 0.97, such as of probabilities with few decimals: save six"),
        (_saved([90.0, 10.0]), [], "got rows that sum to 100, such as percentages: divide them by 100"),
        (_saved([2.5, -1.0]), [], "got -1, such as logits or logarithms have: save them as logits=..."),
        (_saved([2.5, 1.0]), [], "got rows that sum to 3.5 … 3.5 and values to 2.5: save them as logits=... if"),
        (_GOOD | {"features": np.zeros((3, 2))}, [], "expected finite features (4, d), got shape (3, 2)"),
        (_GOOD | {"features": np.full((4, 2), "a")}, [], "expected finite features (4, d), got shape (4, 2) of <U1"),
        (_GOOD, ["--picture", "/nowhere/x.png"], "no folder /nowhere"),
        (_GOOD, ["--risk", "2"], "--risk: expected a share in (0, 1), got 2.0; did you mean 0.02?"),
        (_GOOD, ["--risk", "0.1", "--level", "1"], "--level: expected a probability in (0, 1), got 1.0"),
        (_GOOD, ["--level", "0.9"], "--level: expected --risk beside it, got 0.9 alone"),
        (_GOOD, ["--sets", "95"], "--sets: expected a probability in (0, 1), got 95.0; did you mean 0.95?"),
        (_GOOD, ["--sets", "0.9"], "--sets: expected --answer or --out beside it, got 0.9 alone"),
        (_GOOD, ["--method", "readout"], "--method: expected --answer beside it, got readout alone"),
        (_GOOD, ["--held-out", "in.npz"], "--held-out: expected --risk or --sets beside it, got in.npz alone"),
        (_GOOD, ["--out", "report.txt"], "report.txt: expected .json for --out, got '.txt'"),
        (_GOOD, ["--answer", "in.npz", "x.json"], "x.json: expected .csv for the table of --answer, got '.json'"),
        (_GOOD, ["--answer", "no.npz", "x.csv"], "no.npz: no such file"),
        (_GOOD | {"logits": np.full((4, 2), 0.5)}, [], "got rows that sum to 1, as behind it: save them as prob"),
        (_GOOD | {"logits": np.full((3, 4, 2), 0.5)}, [], "np.savez(file, probabilities=..., labels=...)"),
        (_GOOD, ["--ood", "/nowhere/x.npz"], "no such file"),
        (_GOOD, ["--train", "in.npz"], "expected features (N, d), as --train uses them, got none"),
    ],
)
def test_what_cannot_be_assessed_is_said_in_a_line(arrays, arguments, message, tmp_path):
    """And torch is not imported for it."""
    path = tmp_path / "in.npz"
    if isinstance(arrays, dict):
        np.savez(path, **arrays)
    elif arrays is not None:
        path.write_bytes(arrays)
    script = "import sys; from cgp.commands import main; code = main(sys.argv[1:]); print(code, 'torch' in sys.modules)"
    command = [sys.executable, "-c", script, "assess", str(path), *arguments]
    quiet = {"env": {"PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=tmp_path, check=False, **quiet)
    assert done.stdout == "2 False\n"
    assert done.stderr.startswith("cgp assess: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def written(path, names, rows, delimiter=",", decimal="."):
    """A table as text, and its path."""
    lines = [delimiter.join(str(cell).replace(".", decimal) for cell in row) for row in [names, *rows]]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def test_a_table_as_text_gives_the_report_of_the_arrays(saved, tmp_path, capsys):
    """Labels are numbers or the names of columns, in any column; probabilities and logits are told apart."""
    rng = np.random.default_rng(1)
    logits, p = 4.0 * (truth := rng.normal(size=(300, 3))), softmax(truth, -1)
    labels, likely = (np.cumsum(p, 1) < rng.random((300, 1))).sum(1), softmax(logits, -1)
    names, reports = ["cat", "dog", "cow"], []
    arrays = [{"logits": logits}, {"probabilities": likely}]
    bare = {"logits": None, "features": None, "labels": labels}
    paths = [saved(f"{n}.npz", 300, **bare | each) for n, each in enumerate(arrays)]
    named = [[names[label], *row] for label, row in zip(labels, likely, strict=True)]
    paths.append(written(tmp_path / "last.csv", ["a", "b", "c", "labels"], np.c_[logits, labels].tolist()))
    paths.append(written(tmp_path / "named.csv", ["Label", *names], named, ";", ","))
    for path in paths:
        assert commands.main(["assess", str(path)]) == 0
        reports.append(capsys.readouterr().out)
    assert reports[2:] == reports[:2]


def answered(path):
    """Rows of a table of answers, as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_columns_of_other_tables_are_known_by_their_names(tmp_path, capsys):
    """Answers, sets and the report have the names, and another order of the columns changes nothing."""
    rng, names = np.random.default_rng(1), ["cat", "guinea pig", "cow"]
    likely = softmax(2.0 * rng.normal(size=(400, 3)), -1)
    labels = (np.cumsum(likely, 1) < rng.random((400, 1))).sum(1)
    named = [[names[label], *row] for label, row in zip(labels, likely, strict=True)]
    known, further = (
        written(tmp_path / f"{name}.csv", ["label", *names], rows)
        for name, rows in (("known", named[:200]), ("further", named[200:]))
    )
    order = [2, 0, 1]
    moved = [[*(row[1 + i] for i in order), row[0]] for row in named[200:]]
    turned = written(tmp_path / "turned.csv", [*(names[i] for i in order), "label"], moved)
    new = written(tmp_path / "new.csv", names, likely.tolist())
    mixed = written(tmp_path / "mixed.csv", [names[i] for i in order], likely[:, order].tolist())
    found, out = [], tmp_path / "report.json"
    for held_out, asked in ((further, new), (turned, mixed)):
        table = tmp_path / "answers.csv"
        flags = ["--held-out", held_out, "--sets", "0.9", "--out", out, "--answer", asked, table]
        assert commands.main(["assess", *map(str, [known, *flags])]) == 0
        found.append((capsys.readouterr().out, answered(table)))
    assert found[0] == found[1]
    rows = found[0][1]
    assert [row["class"] for row in rows] == [names[each] for each in likely.argmax(-1)]
    assert all({*row["set"].split("; ")} <= {*names} and row["class"] in row["set"].split("; ") for row in rows)
    assert json.loads(out.read_text())["classes"] == names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["kat", "dog", "cow"], "expected columns of the labelled file, 'cat', 'dog', 'cow', got 'kat'"),
        (["cow", "dog"], "expected a column for each class of the labelled file, got none for 'cat'"),
    ],
)
def test_columns_of_other_classes_are_refused(names, message, tmp_path, capsys):
    likely = softmax(np.random.default_rng(0).normal(size=(30, 3)), -1)
    known = written(tmp_path / "known.csv", ["cat", "dog", "cow", "label"], [[*row, "cat"] for row in likely])
    part = likely[:, : len(names)] / likely[:, : len(names)].sum(1, keepdims=True)
    new = written(tmp_path / "new.csv", names, part.tolist())
    assert commands.main(["assess", str(known), "--answer", str(new), str(tmp_path / "answers.csv")]) == 2
    assert message in capsys.readouterr().err


def test_the_label_that_is_no_column_is_named(tmp_path, capsys):
    rows = [[0.2, 0.8, label] for label in ("b", "a", "b", "zebra")]
    path = written(tmp_path / "in.csv", ["a", "b", "label"], rows)
    assert commands.main(["assess", str(path)]) == 2
    assert "or columns ('a', 'b'), got 'zebra'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "row", "message"),
    [
        ("a b", [0.5, 0.5], "expected labels (4,), got only probabilities (np.savez(file, logits=..., labels=...) wri"),
        ("n a b label", [7, 0.4, 0.6, 0], "got whole numbers in 'n' alone: call it 'label' if it holds the labels,"),
        ("n a b label", [7, -0.4, 0.6, 0], "got whole numbers in 'n' alone: call it 'label' if it holds the labels,"),
        ("a b label", [1.5, 0.6, 0], "got rows that sum to 2.1 … 2.1 and values to 1.5: subtract the largest of its"),
        ("a b label", [-0.5, 1.5, 0], "got rows that sum to 1 and -0.5: subtract the largest of its row from each"),
        ("a b label", [60.5, 39.5, 0], "got rows that sum to 100, such as percentages: divide them by 100"),
        ("a b c label", [0.4, 0.6, "5 %", 0], "'c': expected numbers of a class, got '5 %' in line 2 (leave out what"),
        (
            "a b target",
            [0.4, 0.6, "c"],
            "expected labels that are whole numbers from 0, or columns ('a', 'b'), got 'c'",
        ),
        ("a b c y", [0.2, 0.3, 0.5, 0.0], "expected labels (4,), got only probabilities (np.savez(file, logits=..., l"),
        ("a b label", [0.4, "", 0], "'b': expected numbers of a class, got '' in line 2 (leave out what is no class"),
        ("a b label", [0.4, "", 0], "without numbers; for the gaps of a table: cgp fill FILE --assess PICTURE)"),
        ("p label", [0.4, 0], "for each of two classes or more, got 'p', 'label' (of one p for the second of two"),
        ("a b label", [0.4, 0.6, "c"], "expected labels that are whole numbers from 0, or columns ('a', 'b'), got 'c'"),
        ("a b label", [0.4, 0.6, 2], "expected labels in 0 … 1, got 2 … 2 (leave out inputs of other classes)"),
    ],
)
def test_a_table_that_may_be_read_in_two_ways_is_refused(names, row, message, tmp_path, capsys):
    path = written(tmp_path / "in.csv", names.split(), [row] * 4)
    assert commands.main(["assess", str(path)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("given", [["z.npy", "y.npy"], ["y.npy", "p.npy"]])
def test_two_arrays_are_logits_or_probabilities_and_labels(given, saved, tmp_path, monkeypatch, capsys):
    """In any order, and new inputs are an array, too; the report is that of the file that has both."""
    monkeypatch.chdir(tmp_path)
    arrays = dict(np.load(saved("both.npz", 300, features=None)))
    if "p.npy" in given:
        arrays = {"probabilities": softmax(arrays["logits"], -1), "labels": arrays["labels"]}
        np.savez("both.npz", **arrays)
    np.save("z.npy", np.load(saved("new.npz", 300))["logits"])
    np.save("p.npy", softmax(np.load("z.npy"), -1))
    np.save("y.npy", arrays["labels"])
    values = given[0] if given[1] == "y.npy" else given[1]
    said = []
    for files, new in ((["both.npz"], "both.npz"), (given, values)):
        if "both.npz" not in files:
            np.save(values, arrays["logits" if values == "z.npy" else "probabilities"])
        assert commands.main(["assess", *files, "--answer", new, "answers.csv"]) == 0
        said.append((capsys.readouterr().out, (tmp_path / "answers.csv").read_text()))
    assert said[0] == said[1]
    for files in (["both.npz", "y.npy"], ["z.npy", "y.npy", "y.npy"]):
        assert commands.main(["assess", *files]) == 2
        told = f"cgp assess: expected one file, or two .npy, of logits and of labels, got {' '.join(files)}\n"
        assert capsys.readouterr().err == told


def test_columns_that_are_no_class_name_the_rows_of_answers(tmp_path, capsys):
    """Texts, and numbers of inputs: in the labelled file they change nothing, nor do labels that are called target."""
    rng, names = np.random.default_rng(1), ["cat", "dog", "cow"]
    likely = softmax(2.0 * rng.normal(size=(300, 3)), -1)
    labels = (np.cumsum(likely, 1) < rng.random((300, 1))).sum(1)
    plain = written(tmp_path / "plain.csv", [*names, "label"], np.c_[likely, labels].tolist())
    rows = [[n, f"x{n}.png", *row, "2024-05-01"] for n, row in enumerate(likely.tolist())]
    head = ["", "filename", *names, "class"]
    named = [[*row, names[label]] for row, label in zip(rows, labels, strict=True)]
    full = written(tmp_path / "full.csv", [*head, "target"], named)
    counted = [[*row, label] for row, label in zip(rows, labels, strict=True)]
    numbers = written(tmp_path / "numbers.csv", [*head, "y"], counted)
    new, table, said = written(tmp_path / "new.csv", head, rows), tmp_path / "answers.csv", []
    for known in (plain, full, numbers):
        assert commands.main(["assess", str(known), "--answer", str(new), str(table)]) == 0
        said.append((*capsys.readouterr(), table.read_text()))
    assert [(out, answers) for out, _, answers in said[1:]] == [said[0][::2]] * 2
    assert [err for _, err, _ in said] == ["", "cgp assess: labels: target\n", "cgp assess: labels: y\n"]
    found = answered(table)
    assert [*found[0]][:5] == ["input", "index", "filename", "class (given)", "class"]
    assert [row["filename"] for row in found] == [row[1] for row in rows]
    assert [row["index"] for row in found] == [row["input"] for row in found]
    assert [row["class"] for row in found] == [names[each] for each in likely.argmax(-1)]


def test_labels_of_arrays_may_be_names(saved, tmp_path, capsys):
    """With the names of the classes in their order, which answers and the report have; ids are written, too."""
    names = np.array(["cat", "dog", "cow", "hen"])
    held_out = saved("held_out.npz", 300, features=None)
    plain = dict(np.load(held_out))
    named = saved("named.npz", 300, **plain | {"labels": names[plain["labels"]], "classes": names, "features": None})
    new = saved("new.npz", 50, ids=np.arange(100, 150), labels=None, features=None)
    table, out, said = tmp_path / "answers.csv", tmp_path / "report.json", []
    for path in (held_out, named):
        assert commands.main(["assess", *map(str, [path, "--answer", new, table, "--out", out])]) == 0
        said.append(capsys.readouterr().out)
        classes = [row["class"] for row in answered(table)]
    assert said[0] == said[1]
    assert classes == names[np.load(new)["logits"].argmax(-1)].tolist()
    assert [row["ids"] for row in answered(table)] == [str(number) for number in range(100, 150)]
    assert json.loads(out.read_text())["classes"] == names.tolist()


def test_one_array_is_refused_with_what_joins_it_to_the_labels(tmp_path, capsys):
    np.save(tmp_path / "p.npy", np.zeros((4, 2)))
    assert commands.main(["assess", str(tmp_path / "p.npy")]) == 2
    assert "got one array: np.savez('p.npz', logits=np.load('p.npy'), labels=...) joins" in capsys.readouterr().err


def test_a_file_of_torch_is_refused_with_what_to_save(tmp_path, capsys):
    torch.save({"logits": torch.zeros(4, 2)}, tmp_path / "held.pt")
    assert commands.main(["assess", str(tmp_path / "held.pt")]) == 2
    told = "got a file of torch: np.savez('held.npz', logits=logits.numpy(), labels=labels.numpy())"
    assert told in capsys.readouterr().err


def test_other_files_must_fit_the_labelled_one(saved, capsys):
    path, train = saved("held_out.npz", 50), saved("train.npz", 50)
    for other, message in (
        (
            saved("few.npz", 50, features=np.zeros((50, 3))),
            "few.npz: expected features (N, 4) as the labelled ones, got (N, 3)",
        ),
        (saved("bare.npz", 50, features=None), "bare.npz: expected features (N, 4), as --train uses them, got none"),
        (
            saved("more.npz", 50, logits=np.zeros((50, 5))),
            "more.npz: expected logits of 4 classes as the labelled ones, got 5",
        ),
    ):
        assert commands.main(["assess", str(path), "--train", str(train), "--ood", str(other)]) == 2
        assert message in capsys.readouterr().err


def test_features_are_asked_of_files_that_something_uses_them_of(poor, saved, tmp_path, capsys):
    """Without --train nothing does; with it the read-out does, and a detector that is recommended."""
    held_out, train, further, new = poor
    bare = [saved(f"bare-{path.name}", 400, **(dict(np.load(path)) | {"features": None})) for path in (further, new)]
    table, far = tmp_path / "answers.csv", saved("far.npz", 100, shift=9.0)

    def tables(more):
        found = []
        for labels, inputs in ((further, new), bare):
            arguments = ["--held-out", labels, "--risk", 0.4, "--answer", inputs, table, "--ood", far, *more]
            assert commands.main(["assess", str(held_out), *map(str, arguments)]) == 0
            found.append(table.read_text())
        return found

    for more in ([], ["--method", "temperature"]):
        full, without = tables(more)
        assert full == without
    arguments = ["assess", str(held_out), "--train", str(train), "--answer", str(bare[1]), str(table)]
    for more, users in (
        ([], "the GP read-out uses"),
        (["--ood", str(far)], "the GP read-out and Mahalanobis use"),
        (["--ood", str(far), "--method", "temperature"], "Mahalanobis uses"),
    ):
        assert commands.main([*arguments, *more]) == 2
        message = f"bare-new.npz: expected features (N, 4), as {users} them, got none"
        assert message in capsys.readouterr().err
    assert commands.main([*arguments, "--method", "temperature", "--risk", "0.4", "--held-out", str(bare[0])]) == 0


def test_a_training_file_that_holds_the_labelled_inputs_is_refused(saved, capsys):
    path = saved("held_out.npz", 400)
    assert commands.main(["assess", str(path), "--train", str(path)]) == 2
    message = "cgp assess: --train: expected none of the held-out inputs, got 400 of 400: leave them out of one of the"
    assert message in capsys.readouterr().err


def test_an_interrupt_is_one_line(saved, capsys, monkeypatch):
    def interrupted(parsed):
        raise KeyboardInterrupt

    monkeypatch.setitem(commands._RUN, "assess", interrupted)
    assert commands.main(["assess", "held_out.npz"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_that_answers_are_not_by_what_is_advised_is_said_first(saved, capsys, tmp_path):
    """Where these labels fitted it: before how to use it."""
    paths = saved("held_out.npz", 500), saved("new.npz", 50, labels=None)
    answers = ["--answer", str(paths[1]), str(tmp_path / "answers.csv")]
    assert commands.main(["assess", str(paths[0]), "--risk", "0.3", *answers]) == 0
    said = " ".join(capsys.readouterr().out.split())
    why = "But answers.csv answers new inputs by the network as trained: these labels fitted the temperature"
    assert said.index("Use a temperature") < said.index(why) < said.index("Divide the logits by")


@pytest.mark.parametrize("shifted", [{"held"}, {"ood"}, {"new"}, {"held", "ood", "new"}])
@pytest.mark.parametrize("name", ["probabilities", "logits"])
def test_no_energy_is_compared_where_a_file_has_probabilities(name, shifted, saved, tmp_path, capsys):
    """Nor where it has their logarithms: all energies are 0 there, and every such file would seem of another kind."""

    def write(kind, count):
        path = saved(f"{kind}.npz", count)
        arrays = dict(np.load(path))
        if kind in shifted:
            p = softmax(arrays.pop("logits"), -1)
            arrays[name] = p if name == "probabilities" else np.log(p).astype(np.float32)
        np.savez(path, **arrays)
        return str(path)

    held, ood, new = (write(kind, count) for kind, count in (("held", 400), ("ood", 200), ("new", 50)))
    table = tmp_path / "answers.csv"
    assert commands.main(["assess", held, "--ood", ood, "--answer", new, str(table)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    whose = " and ".join(f"{kind}.npz" for kind in ("held", "ood", "new") if kind in shifted)
    have = "has" if len(shifted) == 1 else "have"
    assert f"The energy is left out: it is of logits from before the softmax, and {whose} {have} probabilities." in said
    assert "energy 0." not in said
    assert "use the energy" not in said
    assert "flag" not in table.read_text()


def test_repeated_labels_are_known_as_logits_and_as_probabilities(saved, tmp_path, capsys):
    """The labels of a guarantee may not be those that fitted the temperature, however either file is saved."""
    held, arrays = saved("held.npz", 400), dict(np.load(tmp_path / "held.npz"))
    np.savez(tmp_path / "again.npz", probabilities=softmax(arrays["logits"], -1), labels=arrays["labels"])
    asked = ["--held-out", str(tmp_path / "again.npz"), "--risk", "0.5"]
    assert commands.main(["assess", str(held), *asked]) == 2
    assert "--held-out: expected none of the inputs that the model was fitted to, got" in capsys.readouterr().err


def test_a_table_without_a_header_is_said_to_have_none(saved, tmp_path, capsys):
    """And not that it lacks a column of labels; names of classes may be numbers."""
    logits, labels = (np.load(saved("held.npz", 100))[name] for name in ("logits", "labels"))
    rows = [f"{label},{','.join(map(str, row))}" for label, row in zip(labels, logits, strict=True)]
    bare, named = tmp_path / "bare.csv", tmp_path / "named.csv"
    bare.write_text("\n".join(rows))
    named.write_text("\n".join(["label,0,1,2,3", *rows]))
    assert commands.main(["assess", str(bare)]) == 2
    told = "bare.csv: expected a header (label, and the classes), got none: the first row is numbers"
    assert told in capsys.readouterr().err
    assert commands.main(["assess", str(named)]) == 0
    bare.write_text("\n".join(",".join(map(str, row)) for row in logits))
    assert commands.main(["assess", str(named), "--answer", str(bare), str(tmp_path / "x.csv")]) == 2
    assert "expected a header (the classes, or" in capsys.readouterr().err
