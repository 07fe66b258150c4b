"""The training loss: its parts, its two kinds of divergence, and the effect of each regulariser alone."""

import copy
import math

import gpytorch
import pytest
import torch
from gpytorch import Module
from torch import nn
from torch.distributions import Categorical, Normal

from cgp import CGPAttention, Objective, SoftmaxAttention, SparseCGPAttention
from cgp.attention import LossTerm
from cgp.networks.model.blocks import added_losses, attention_blocks, draws, sampling
from cgp.networks.model.objective import CategoricalLikelihood, HomoscedasticLikelihood

MODULE = "cgp.networks.model.objective"


class Term(Module):
    """A block-like module with a term of every kind and a global divergence."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        for kind in ("log_density", "kl", "ksvd"):
            self.register_added_loss_term(kind)
        self.variational_strategy = self

    def kl_divergence(self):
        return 7.0 * self.weight

    def forward(self, x):
        for value, kind in ((2.0, "log_density"), (3.0, "kl"), (5.0, "ksvd")):
            self.update_added_loss_term(kind, LossTerm(value * self.weight, kind))
        return x * self.weight


def test_parts_add_up_and_only_the_global_divergence_is_divided():
    x, y = torch.randn(4, 3), torch.arange(4) % 3
    objective = Objective(Term(), CategoricalLikelihood(3), num_data=10, alpha=0.5, beta=0.25)
    parts = objective.parts(x, y)
    nll = nn.functional.cross_entropy(x, y)
    torch.testing.assert_close(parts["nll"], nll)
    torch.testing.assert_close(parts["loss"], nll + 0.5 * 2 + 0.25 * (7 / 10 + 3) + 5)
    twice = Objective(Term(), CategoricalLikelihood(3), num_data=20, alpha=0.5, beta=0.25).parts(x, y)
    torch.testing.assert_close(parts["loss"] - twice["loss"], torch.tensor(0.25 * 7 / 20))


def test_weights_can_be_annealed():
    x, y = torch.randn(4, 3), torch.arange(4) % 3
    objective = Objective(Term(), CategoricalLikelihood(3), num_data=10)
    before = objective(x, y)
    objective.set_weights(alpha=1.0)
    torch.testing.assert_close(objective(x, y) - before, torch.tensor(2.0))
    objective.set_weights(beta=0.0)
    torch.testing.assert_close(objective(x, y) - before, torch.tensor(2.0 - 0.7 - 3.0))


def test_terms_of_an_earlier_pass_are_not_counted_again():
    model = nn.Sequential(CGPAttention(8, 2, objective="marginal"), nn.Flatten(), nn.Linear(40, 3))
    objective = Objective(model, CategoricalLikelihood(3), num_data=10, alpha=1.0)
    batch = torch.randn(4, 5, 8), torch.arange(4) % 3
    assert "log_density" in objective.parts(*batch)
    assert added_losses(model) == {}
    assert "log_density" not in objective.eval().parts(*batch)


def test_a_weight_of_a_regulariser_that_no_block_adds_is_said_once(recwarn):
    batch = torch.randn(4, 5, 8), torch.arange(4) % 3
    for regulariser, alpha in ((None, 0.5), (None, 0.0), ("marginal", 0.5)):
        model = nn.Sequential(CGPAttention(8, 2, objective=regulariser), nn.Flatten(), nn.Linear(40, 3))
        objective = Objective(model, CategoricalLikelihood(3), num_data=10, alpha=alpha)
        for _ in range(2):
            objective(*batch)
        said = [str(each.message) for each in recwarn]
        assert len(said) == 1
    assert said[0].startswith("alpha: it weighs a regulariser, and no block has added one")


def test_draws_expand_after_the_first_stochastic_block_only():
    model, shapes = nn.Sequential(SoftmaxAttention(8, 2), CGPAttention(8, 2), SparseCGPAttention(8, 2)), []
    for block in model:
        block.register_forward_pre_hook(lambda block, inputs: shapes.append(inputs[0].shape))
    with draws(model, 6):
        assert model(torch.randn(4, 5, 8)).shape == (6, 4, 5, 8)
    assert shapes == [(4, 5, 8), (4, 5, 8), (6, 4, 5, 8)]
    assert all(block.num_samples is None for block in attention_blocks(model))
    with pytest.raises(ValueError, match="num_samples: expected at least 1"), draws(model, 0):
        pass


def test_sampling_is_set_for_the_time_of_a_with():
    model = nn.Sequential(SoftmaxAttention(8, 2), CGPAttention(8, 2))
    model[1].sampling = "joint"
    with sampling(model, "mean"):
        assert model[1].sampling == "mean"
    assert model[1].sampling == "joint"


@pytest.mark.parametrize("drawing", [[], [1], [0, 1]])
def test_draws_and_sampling_go_in_either_order(drawing):
    model, x = nn.Sequential(CGPAttention(8, 2), SparseCGPAttention(8, 2)).eval(), torch.randn(4, 5, 8)
    for index in drawing:
        model[index].sampling = "joint"
    for contexts in ((draws(model, 6), sampling(model, "marginal")), (sampling(model, "marginal"), draws(model, 6))):
        with contexts[0], contexts[1]:
            assert [block.num_samples for block in model] == [6, None]
            assert model(x).shape == (6, 4, 5, 8)
        assert [block.num_samples for block in model] == [None, None]
        assert [block.sampling for block in model] == ["joint" if i in drawing else "mean" for i in range(2)]
    with draws(model, 6):
        shape = (6, 4, 5, 8) if drawing else (4, 5, 8)
        with sampling(model, "mean"):
            assert model(x).shape == (4, 5, 8)
        assert model(x).shape == shape


@pytest.mark.parametrize(
    ("make", "coupling", "objective"),
    [
        (CGPAttention, "direct", "marginal"),
        (CGPAttention, "latent", "joint"),
        (SparseCGPAttention, "direct", "joint"),
        (SparseCGPAttention, "latent", "marginal"),
    ],
)
def test_each_regulariser_alone_stays_bounded(make, coupling, objective):
    """Outputs and targets are observed with the noise, so no density exceeds h log 1/2πσ² nats per token and column.

    The variance does not collapse, but for the exact "joint" form, the only one that pays for certainty: it draws all
    tokens together until the variance is the noise over their number. That is why it is not the default.
    """
    block, x = make(16, 2, mean="kernel", coupling=coupling, objective=objective), torch.randn(2, 10, 16)
    start = block.token_variance(x).mean().detach()
    optimizer = torch.optim.Adam(block.parameters(), lr=3e-2)
    with sampling(block, "mean"):
        for _ in range(150):
            optimizer.zero_grad()
            block(x)
            loss = added_losses(block)["log_density"]
            loss.backward()
            optimizer.step()
    assert torch.isfinite(loss)
    assert loss > 2 * math.log(2 * math.pi * block.noise)
    variance = block.token_variance(x)
    assert torch.isfinite(variance).all()
    if make is CGPAttention and objective == "joint":
        assert block.noise / 20 < variance.mean() < block.noise
    else:
        assert variance.mean() > 0.5 * start


@pytest.mark.parametrize(("num_data", "num_samples"), [(0, 1), (10, 0)])
def test_bad_sizes_are_refused(num_data, num_samples):
    with pytest.raises(ValueError, match="num_data, num_samples: expected at least 1"):
        Objective(nn.Linear(2, 2), CategoricalLikelihood(2), num_data, num_samples=num_samples)


@pytest.mark.parametrize(
    ("loss", "got"), [("categorical", "'categorical'"), (nn.CrossEntropyLoss(), "CrossEntropyLoss")]
)
def test_a_loss_in_the_place_of_a_likelihood_is_refused(loss, got):
    message = rf"likelihood: expected one .* such as cgp\.CategoricalLikelihood\(num_classes\), got {got}"
    with pytest.raises(ValueError, match=message):
        Objective(nn.Linear(2, 2), loss, 10)


@pytest.mark.parametrize("name", ["GaussianLikelihood", "SoftmaxLikelihood", "BernoulliLikelihood"])
def test_a_likelihood_of_gpytorch_is_refused(name):
    options = {"num_features": 2, "num_classes": 2} if name == "SoftmaxLikelihood" else {}
    with pytest.raises(ValueError, match=rf"cgp\.HomoscedasticLikelihood\(num_outputs\), got GPyTorch's {name}, which"):
        Objective(nn.Linear(2, 2), getattr(gpytorch.likelihoods, name)(**options), 10)


class Pooled(nn.Module):
    """A block, whose tokens are made one by a function, and logits."""

    def __init__(self, block, pool):
        super().__init__()
        self.block, self.pool, self.head = block, pool, nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.pool(self.block(x)))


@pytest.mark.parametrize("make", [CGPAttention, SparseCGPAttention])
@pytest.mark.parametrize("pool", [lambda x: x.mean(1), lambda x: x[:, 0], lambda x: (x - x.mean(0)).mean(-2)])
def test_a_model_that_takes_draws_for_its_batch_is_refused(make, pool):
    """Six inputs of six tokens: the shapes fit, and the loss would be of averages over the batch."""
    batch = torch.randn(6, 6, 8), torch.arange(6) % 3
    model = Pooled(make(8, 2), pool)
    assert torch.isfinite(Objective(model, CategoricalLikelihood(3), 10)(*batch))
    with pytest.raises(ValueError, match=r"model: expected one that takes draws .* num_samples=2.* counts dimensions"):
        Objective(model, CategoricalLikelihood(3), 10, num_samples=2)(*batch)
    assert added_losses(model) == {}


@pytest.mark.parametrize("pool", [nn.Flatten(), nn.Sequential(nn.BatchNorm1d(6), nn.Flatten(1))])
def test_a_model_that_fails_with_draws_is_told_to_count_from_the_end(pool):
    batch = torch.randn(4, 6, 8), torch.arange(4) % 3
    model = nn.Sequential(CGPAttention(8, 2), pool, nn.Linear(48, 3))
    assert torch.isfinite(Objective(model, CategoricalLikelihood(3), 10)(*batch))
    with pytest.raises(ValueError, match=r"fails then \(.+(shapes|input).*\): it counts .*nn\.Flatten\(-2\) in place"):
        Objective(model, CategoricalLikelihood(3), 10, num_samples=2)(*batch)
    with pytest.raises(RuntimeError, match="Sequential takes|5 elements not 6"):  # as with one draw
        Objective(model, CategoricalLikelihood(3), 10, num_samples=2)(torch.randn(4, 5, 8), batch[1])


@pytest.mark.parametrize("pool", [lambda x: x.mean(-2), lambda x: x[..., 0, :] + torch.rand(8)])
def test_a_model_that_counts_from_the_end_is_checked_once(pool):
    modes, batch = [], (torch.randn(6, 6, 8), torch.arange(6) % 3)
    model = Pooled(nn.Sequential(CGPAttention(8, 2), nn.Dropout(), SparseCGPAttention(8, 2)), pool)
    model.head.register_forward_hook(lambda head, *_: modes.append(head.training))
    objective, state = Objective(model, CategoricalLikelihood(3), 10, num_samples=2), torch.get_rng_state()
    first = objective(*batch)
    assert modes == [False, False, True]
    torch.set_rng_state(state)
    assert objective(*batch) == first
    assert modes == [False, False, True, True]
    assert all(module.training for module in model.modules())


def test_loss_terms_copy_without_their_graph_and_refuse_unknown_kinds():
    value = torch.ones((), requires_grad=True) * 2
    term = copy.deepcopy(LossTerm(value, "kl"))
    assert term.loss() == 2
    assert not term.loss().requires_grad
    with pytest.raises(ValueError, match="kind: expected one of"):
        LossTerm(value, "prior")


@pytest.mark.parametrize("sample", [(), (7,), (2, 7)])
def test_categorical_averages_log_probabilities_over_draws(sample):
    logits, labels = torch.randn(*sample, 5, 3), torch.randint(0, 3, (5,))
    expected = Categorical(logits=logits).log_prob(labels)
    expected = expected.reshape(-1, 5).mean(0)
    torch.testing.assert_close(CategoricalLikelihood(3).expected_log_prob(labels, logits), expected)
    torch.testing.assert_close(CategoricalLikelihood(3)(logits).probs, logits.softmax(-1))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 3]), "class indices from 0 to 2, got 0 to 3"),
        (torch.tensor([-100, 1]), r"class indices from 0 to 2, got -100 \(leave out what has no label\)"),
        (torch.tensor([0.0, 1.0]), "class indices, which are whole numbers, got torch.float32"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, message):
    with pytest.raises(ValueError, match=f"observations: expected labels that are {message}"):
        Objective(nn.Linear(2, 3), CategoricalLikelihood(3), num_data=2)(torch.zeros(2, 2), labels)


def test_labels_on_an_accelerator_are_waited_for_once(monkeypatch):
    readings = []
    monkeypatch.setattr(f"{MODULE}.may_read", lambda labels: True)  # meta tensors, in the place of an accelerator's
    monkeypatch.setattr(f"{MODULE}.class_indices", lambda labels, *_, reads, **__: readings.append(reads) or labels)
    for device, expected in (("meta", [True, False, False]), ("cpu", [True, True, True])):
        likelihood, labels = CategoricalLikelihood(3), torch.zeros(2, dtype=torch.long, device=device)
        for _ in range(3):
            likelihood.expected_log_prob(labels, torch.zeros(2, 3, device=device))
        assert readings[-3:] == expected


def test_categorical_does_not_transpose_a_batch_as_large_as_the_classes():
    logits = torch.tensor([[5.0, 0.0], [5.0, 0.0]])
    value = CategoricalLikelihood(2).expected_log_prob(torch.tensor([0, 1]), logits)
    assert value[0] > -0.1
    assert value[1] < -4


@pytest.mark.parametrize("sample", [(), (7,)])
def test_gaussian_averages_log_densities_over_draws(sample):
    likelihood = HomoscedasticLikelihood(2, initial_noise=0.3)
    likelihood.noise = torch.tensor([0.3, 0.7])
    f, y = torch.randn(*sample, 5, 2), torch.randn(5, 2)
    expected = Normal(f, torch.tensor([0.3, 0.7]).sqrt()).log_prob(y).sum(-1).reshape(-1, 5).mean(0)
    torch.testing.assert_close(likelihood.expected_log_prob(y, f), expected)
    torch.testing.assert_close(likelihood(f).variance, torch.tensor([0.3, 0.7]).expand_as(f))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CategoricalLikelihood(1), "num_classes: expected at least 2"),
        (lambda: CategoricalLikelihood("ten"), "num_classes: expected at least 2, got 'ten'"),
        (lambda: HomoscedasticLikelihood(0), "num_outputs, initial_noise: expected"),
        (lambda: HomoscedasticLikelihood(1, initial_noise=0.0), "num_outputs, initial_noise: expected"),
        (
            lambda: CategoricalLikelihood(3).expected_log_prob(torch.zeros(4).long(), torch.zeros(4, 2)),
            r"\(..., 3\), got \(4, 2\) \(take CategoricalLikelihood\(2\), or a model whose last layer has 3 outputs",
        ),
        (lambda: CategoricalLikelihood(3).expected_log_prob(torch.zeros(3).long(), torch.zeros(4, 3)), "observations"),
        (
            lambda: HomoscedasticLikelihood(2).expected_log_prob(torch.zeros(4), torch.zeros(4, 2)),
            r"observations, .* got \(4,\) and \(4, 2\)$",
        ),
        (
            lambda: HomoscedasticLikelihood(2).expected_log_prob(torch.zeros(4, 2), torch.zeros(4, 3)),
            r"\(take HomoscedasticLikelihood\(3\), or a model whose last layer has 2 outputs\)",
        ),
    ],
)
def test_bad_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
