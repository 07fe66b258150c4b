"""Labels and logits that do not fit are refused by name, before anything is computed or written."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from cgp import Detector, assess, calibrate, convert, predict, with_held_out
from cgp.networks.methods import Posterior
from cgp.networks.model.inputs import check_finite_inputs
from cgp.networks.model.labels import (
    check_logits,
    class_indices,
    label_tensor,
    log_probabilities,
    rounding_step,
    values_for,
)
from tests.cgp.networks.model.digits import digits


class Host(nn.Module):
    """One encoder layer on images of digits; what it returns is made of ``classes`` outputs by ``last``."""

    def __init__(self, classes=10, last=None):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head, self.last, self.calls = nn.Linear(8, classes), last or nn.Identity(), 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.head(self.layer(x)[:, 0]))


def model(classes=10, last=None):
    torch.manual_seed(0)
    return convert(Host(classes, last).eval(), amplitude=0.5)


X, Y = (part[:40] for part in digits())
CALLS = {
    "calibrate": lambda m, data, **options: calibrate(m, data, num_samples=2, **options),
    "assess": lambda m, data, **options: assess(m, data, num_samples=2, **options),
    "predict": lambda m, data, **options: predict(m, data, 2, **options).score(),
}
everywhere = pytest.mark.parametrize("call", list(CALLS.values()), ids=list(CALLS))


def refused(call, m, data, message, **options):
    """Check that a call is refused, whose model stays as it was."""
    before = {name: tensor.clone() for name, tensor in m.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        call(m, data, **options)
    assert all(torch.equal(tensor, before[name]) for name, tensor in m.state_dict().items())


def test_labels_may_have_an_index_and_are_refused_if_they_are_no_numbers():
    index = pytest.importorskip("pandas").Index([10, 11, 12])
    assert label_tensor(index.to_series() - 10).tolist() == [0, 1, 2]
    for given in ([None, 1], {"a": 1}, (each for each in "ab")):
        with pytest.raises(TypeError, match="labels: expected numbers, such as class indices from 0, got "):
            label_tensor(given)


@everywhere
@pytest.mark.parametrize(
    ("labels", "got"),
    [
        (["cat"] * 40, r"'cat' \(pass \[names.index\(name\) for name in labels\]"),
        ([[0]] * 39 + [[0, 1]], "type list "),
    ],
)
def test_labels_that_are_no_numbers_are_refused_with_the_way_out(call, labels, got):
    """Of batches as of `score`, before the model runs."""
    m, message = model(), f"labels: expected numbers, such as class indices from 0, got {got}"
    for data in ([(X, labels)], [{"x": X, "labels": labels}]):
        with pytest.raises(TypeError, match=message):
            call(m, data)
    assert m.calls == 0


@everywhere
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.rand(40), r"class indices, which are whole numbers, got torch.float32 \(pass labels.long\(\) if they"),
        (nn.functional.one_hot(Y).double(), r"labels.argmax\(-1\) if they are one-hot"),
        (X, r"\(inputs, labels\) if they are inputs"),
        (torch.where(Y == 0, -1, Y), r"class indices at least 0, got -1 \("),
    ],
)
def test_labels_of_no_class_are_refused_before_the_model_runs(call, labels, message):
    m = model()
    refused(call, m, [(X, labels)], message)
    assert m.calls == 0


@everywhere
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y % 10 + 1, r"class indices from 0 to 9, got 1 to 10 \(pass labels - 1\)"),
        (2 * Y, "class indices from 0 to 9, got 0 to 18"),
        (Y[:, None], r"labels of shape \(40,\), got \(40, 1\) \(pass labels.squeeze\(-1\)\)"),
        (Y[:, None].tolist(), r"got \(40, 1\) \(pass labels.squeeze\(-1\)\)"),
        (nn.functional.one_hot(Y), r"got \(40, 10\) \(pass labels.argmax\(-1\) if they are one-hot\)"),
        (Y[:20], r"labels of shape \(40,\), got \(20,\)"),
        (3, r"labels of shape \(40,\), got \(\)"),
    ],
)
def test_labels_that_do_not_fit_the_logits_are_refused(call, labels, message):
    refused(call, model(), [(X, labels)], message)


@everywhere
def test_regression_with_one_output_is_no_classification(call):
    refused(call, model(1), [(X, torch.rand(40))], "class indices, which are whole numbers")
    advice = r"expected logits \(N, ..., C >= 2\), got shape \(40, 1\) \(for a single logit z pass output="
    refused(call, model(1), [(X, (Y > 4).long())], advice)
    both = CALLS["predict"](model(1), [(X, (Y > 4).long())], output=lambda z: torch.cat([0 * z, z], -1))
    assert both["accuracy"] <= 1


def test_the_row_of_a_value_that_is_not_finite_is_named():
    values = torch.zeros(4, 2)
    values[3, 1] = torch.nan
    with pytest.raises(ValueError, match="data: expected finite values, got NaN or infinity in row 3"):
        values_for(torch.zeros(4, 2), [values])


@everywhere
def test_a_pair_and_lists_of_numbers_are_refused_with_advice(call):
    refused(call, model(), (X, Y), r"\(pass \[\(inputs, labels\)\]")
    refused(call, model(), [(X.tolist(), Y)], r"got a list of lists \(pass torch.tensor\(inputs\)\)")


@everywhere
def test_probabilities_are_no_logits(call):
    refused(call, model(last=nn.Softmax(-1)), [(X, Y)], "expected logits, got rows that sum to one")
    refused(call, model(last=nn.Softmax(-1)).double(), [(X.double(), Y)], "rows that sum to one")


def test_logarithms_of_probabilities_are_logits():
    plain, behind = (predict(m, X, 4, seed=0) for m in (model(), model(last=nn.LogSoftmax(-1))))
    torch.testing.assert_close(behind.probabilities, plain.probabilities)
    given = predict(model(last=nn.Softmax(-1)), X, 4, seed=0, output="probabilities")
    torch.testing.assert_close(given.probabilities, plain.probabilities)
    half = torch.rand(5, 1000, generator=torch.Generator().manual_seed(0)).mul(5).softmax(-1).bfloat16()
    with pytest.raises(ValueError, match="rows that sum to one"):
        check_logits(half)


def test_inputs_of_other_classes_are_predicted_without_their_labels():
    other = [(X, Y + 50)]
    with pytest.raises(ValueError, match=r"got 50 to 59; or leave out the labels: pass the inputs by themselves"):
        predict(model(), other, 2)
    assert predict(model(), (x for x, _ in other), 2).labels is None


def test_labels_of_any_integer_type_are_class_indices():
    for kind in (torch.uint8, torch.int16, torch.int32, torch.int64):
        indices = class_indices(Y.to(kind), (40, 10))
        assert indices.dtype == torch.int64
        assert torch.equal(indices, Y)
    assert class_indices(Y > 4, (40, 2)).tolist() == (Y > 4).long().tolist()


class NotFinite(nn.Module):
    """Logits of which one is not finite."""

    def __init__(self, row, value=torch.nan):
        super().__init__()
        self.row, self.value = row, value

    def forward(self, logits):
        logits = logits.clone()
        if len(logits) > self.row:
            logits[self.row, 3] = self.value
        return logits


@pytest.mark.parametrize("call", [CALLS["calibrate"], CALLS["assess"]], ids=["calibrate", "assess"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_logit_that_is_not_finite_is_refused_with_its_row(call, value):
    parts = [(X[:10], Y[:10]), (X[10:], Y[10:])]
    refused(
        call, model(last=NotFinite(17, value)), parts, f"model: expected finite values, got {value} in row 27: are the"
    )


READERS = {
    "assess": ("data", lambda m, x: assess(m, [(X[:10], Y[:10]), (x, Y)], num_samples=2)),
    "train": ("train", lambda m, x: assess(m, [(X, Y)], train=[(X[:10], Y[:10]), (x, Y)], num_samples=2)),
    "ood": (r"ood\['fog'\]", lambda m, x: assess(m, [(X, Y)], ood={"fog": [X[:10] + 1, x + 1]}, num_samples=2)),
    "calibrate": ("data", lambda m, x: calibrate(m, [(X[:10], Y[:10]), (x, Y)], num_samples=2)),
    "convert": ("inputs", lambda m, x: convert(Host().eval(), "sparse_cgp", inputs=torch.cat([X[:10], x]))),
    "held out": ("data", lambda m, x: with_held_out(m, [(X[:10], Y[:10]), (x, Y)], 2)),
    "predict": ("inputs", lambda m, x: predict(m, iter([X[:10], x]), 2)),
    "detector": ("inputs", lambda m, x: Detector("energy").fit(m, [(X, Y)]).score(m, iter([X[:10], x]))),
}


@pytest.mark.parametrize(("name", "call"), list(READERS.values()), ids=list(READERS))
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_inputs_that_are_not_finite_are_refused_with_their_rows(name, call, value):
    x = X.clone()
    x[[3, 7], 1] = value
    with pytest.raises(
        ValueError, match=rf"^{name}: expected finite values, got NaN or infinity in rows 13, 17 \(fill"
    ):
        call(model(), x)


class Filled(Host):
    """A host that takes gaps."""

    def forward(self, x):
        return super().forward(x.nan_to_num())


def test_a_network_that_fills_gaps_itself_predicts():
    x, m = X.clone(), convert(Filled().eval(), amplitude=0.5)
    x[3, 1] = torch.nan
    assert predict(m, x, 2).probabilities.isfinite().all()


def test_a_mask_of_infinities_is_no_gap():
    mask, uncalled = torch.full((40, 8, 8), -torch.inf).triu(1), nn.Module()
    assert check_finite_inputs(uncalled, (X, mask)) == 40


def test_a_masked_class_is_a_logit():
    m = model(11, NotFinite(17, -torch.inf))
    labels = torch.where(Y == 3, 2, Y)
    assert calibrate(m, [(X, labels)], num_samples=2).nll < 10
    labels[17] = 3
    refused(CALLS["calibrate"], m, [(X, labels)], "data: expected labels of classes that the model allows")


def test_inputs_of_other_kinds_that_are_not_finite_are_named():
    parts = [digits()[0][40:100], digits()[0][100:160]]
    with pytest.raises(ValueError, match=r"ood\['fog'\]: model: .*, got nan in row 50: are the inputs finite"):
        assess(model(last=NotFinite(50)), [(X, Y)], num_samples=2, ood={"fog": parts})


class Overflow(nn.Module):
    """Logits up to a limit, and NaN beyond, as in half precision."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, logits):
        return torch.where(logits.abs() > self.limit, torch.nan, logits)


@pytest.mark.parametrize("criterion", ["widest", "likelihood"])
def test_an_amplitude_whose_draws_overflow_is_not_chosen(criterion):
    limit = 1.2 * float(model()(X).detach().abs().max())
    m = model(last=Overflow(limit))
    free, report = (
        calibrate(each, [(X, Y)], method=Posterior(criterion=criterion), num_samples=4) for each in (model(), m)
    )
    assert report.nll < 10
    assert report.factor <= free.factor
    assert (criterion == "likelihood") or report.factor < free.factor
    assert predict(m, X, 4, seed=0).probabilities.isfinite().all()


def test_a_prediction_that_is_not_finite_is_withheld_first():
    prediction = predict(model(last=NotFinite(17)), [(X, Y)], 2)
    withheld = prediction.abstain(coverage=39 / 40)
    assert withheld.nonzero().tolist() == [[17]]
    with pytest.raises(ValueError, match="prediction: expected finite values, got nan in row 17"):
        prediction.score()


class Segmenter(nn.Module):
    """Logits ``(N, C, H, W)`` of four classes."""

    def forward(self, x):
        return torch.stack([x, 2 * x, 1 - x, x * x], 1)


def test_the_classes_of_a_segmenter_come_first():
    labels = (X > 0.5).long()
    for data in (X, [(X, labels)]):
        with pytest.raises(ValueError, match=r"out.movedim\(1, -1\)"):
            predict(Segmenter(), data)
    prediction = predict(Segmenter(), [(X, labels)], output=lambda out: out.movedim(1, -1))
    torch.testing.assert_close(prediction.probabilities, Segmenter()(X).movedim(1, -1).softmax(-1))
    assert prediction.score()["accuracy"] == float((Segmenter()(X).argmax(1) == labels).double().mean())
    with pytest.raises(ValueError, match=r"got \(40, 8, 8\) \(pass output=lambda out: out.movedim\(1, -1\)"):
        class_indices(labels, (40, 4, 8, 8))


def test_a_converted_model_that_was_never_calibrated_warns():
    with pytest.warns(UserWarning, match=r"the amplitude that cgp.convert starts from \(0.1\)"):
        predict(convert(Host().eval()), X, 2)
    calibrated = convert(Host().eval())
    calibrate(calibrated, [(X, Y)], method=Posterior(scaled=False), num_samples=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(calibrated, X, 2)
        predict(model(), X, 2)  # its amplitude was chosen


@pytest.mark.parametrize(
    ("every", "advice"), [(True, "leave out what has no label"), (False, "pass -100 where there is no label")]
)
def test_what_to_do_about_a_label_below_zero(every, advice):
    with pytest.raises(ValueError, match=rf"class indices at least 0, got -3 \({advice}\)"):
        class_indices(torch.tensor([0, -3, 1]), every=every)


@pytest.mark.parametrize("rounded", ["2 decimals", "3 decimals", "float16", "bfloat16", "bytes"])
def test_rounded_probabilities_are_no_logits(rounded):
    p = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(20), 50)).float()
    forms = {"float16": lambda: p.half().float(), "bfloat16": lambda: p.bfloat16().float()}
    forms |= {f"{digits} decimals": lambda digits=digits: p.round(decimals=digits) for digits in (2, 3)}
    forms |= {"bytes": lambda: (255 * p).round() / 255}
    with pytest.raises(ValueError, match="got rows that sum to one"):
        check_logits(forms[rounded]())
    check_logits(p * 1.1)
    check_logits(torch.randn(50, 20, generator=torch.Generator().manual_seed(0)).abs())


@pytest.mark.parametrize("call", [calibrate, assess, predict])
def test_behind_a_sigmoid_are_no_logits(call):
    """p = .88 would be read as a logit, whose sigmoid is .71."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid()), torch.randn(60, 3)
    options = {calibrate: {"method": "temperature"}, assess: {}, predict: {"num_samples": 1}}[call]
    with pytest.raises(ValueError, match=r"values in \[0, 1\] only, as behind a sigmoid"):
        call(model, [(x, (x[:, :1] > torch.zeros(4)).long())], task="multilabel", **options)
    few = predict(model, x[:1], 1, task="multilabel")  # four numbers may be in [0, 1] by chance
    assert few.probabilities.shape == (1, 4)
    told = predict(model, x, 1, task="multilabel", output=lambda p: p.logit(1e-6))
    torch.testing.assert_close(told.probabilities, model(x).detach(), atol=1e-5, rtol=0)


def rounded_at_random(decimals, count=400):
    """Probabilities with wrong labels among them, rounded, and the labels."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(count, 10, generator=generator, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=logits / 1.5).sample()
    return logits.softmax(-1).round(decimals=decimals) if decimals else logits.softmax(-1), labels


def temperature_of(p, labels):
    return assess(nn.Identity(), [(p, labels)], output="probabilities").choices["temperature"].parameter


def test_rounded_probabilities_have_about_the_temperature_of_exact_ones():
    """Zeros as 1e-12 would make it 1.8 times as high at four decimals."""
    torch.manual_seed(0)
    exact = temperature_of(*rounded_at_random(0))
    for decimals, apart in ((6, 0.03), (4, 0.1), (3, 0.2)):
        torch.manual_seed(0)
        with pytest.warns(UserWarning, match=rf"rounded to {0.1**decimals:.3g}: zeros of an input share half"):
            found = temperature_of(*rounded_at_random(decimals))
        assert found == pytest.approx(exact, rel=apart), decimals


def test_what_rounded_zeros_are_taken_for_is_said():
    p = rounded_at_random(4)[0]
    with pytest.warns(UserWarning, match=r"probabilities seem rounded to 0.0001: zeros of an input share half"):
        predict(nn.Identity(), p, output="probabilities")
    logits = log_probabilities(p)
    zeros = p == 0
    torch.testing.assert_close(logits[~zeros], p[~zeros].log())
    torch.testing.assert_close(
        (logits.exp() * zeros).sum(-1)[zeros.any(-1)], torch.full((int(zeros.any(-1).sum()),), 5e-5).double()
    )


def test_a_step_is_seen_in_rounded_probabilities_alone():
    p = rounded_at_random(0)[0]
    assert [rounding_step(p.round(decimals=d)) for d in (2, 3, 4, 5, 6)] == [0.01, 0.001, 0.0001, 0.00001, 0.000001]
    sure = (200 * p).softmax(-1)  # most are near 0 and 1, and none a multiple
    assert rounding_step(p) == rounding_step(sure) == rounding_step(p[:1].round(decimals=2)) == 0.0
    one = torch.tensor([[1.0, 0.0, 0.0]])
    assert log_probabilities(one).exp()[0, 1] < 1e-6


@pytest.mark.parametrize(("output", "task"), [("probability", "classification"), ("probabilities", "multilabel")])
def test_an_output_that_is_no_function_is_refused(output, task):
    with pytest.raises(ValueError, match=f"output: expected a function.*, got '{output}'"):
        predict(model(), X, 2, task=task, output=output)


def test_logits_are_no_probabilities():
    with pytest.raises(ValueError, match="model: expected probabilities, whose rows sum to one, got values from"):
        predict(model(), X, 2, output="probabilities")


@pytest.mark.parametrize("call", [assess, calibrate])
def test_a_pair_is_one_batch_with_the_inputs_first(call):
    x, y = torch.randn(40, 4), torch.arange(40) % 3
    with pytest.raises(ValueError, match=r"got a tuple \(pass \[\(inputs, labels\)\], .*, the inputs first\)"):
        call(nn.Linear(4, 3), (y, x))
    with pytest.raises(ValueError, match=r"the two swapped as \(inputs, labels\) if they are inputs"):
        call(nn.Linear(4, 3), [(y, x)])
