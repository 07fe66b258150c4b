"""The text transformer: padding, any length, precomputed embeddings, regression, every block."""

import pytest
import torch

from cgp import HomoscedasticLikelihood, Objective, SoftmaxAttention
from cgp.networks.model.blocks import draws, sampling
from models.text_transformer import TextTransformer
from tests.blocks import BLOCKS

SIZES = {"max_length": 12, "num_classes": 3, "depth": 2, "embed_dim": 12, "mlp_dim": 16, "num_heads": 3}


def build(attention=SoftmaxAttention, **options) -> TextTransformer:
    if "input_dim" not in options:
        options = {"vocabulary_size": 20, **options}
    return TextTransformer(**{**SIZES, "attention": attention, **options}).double()


@pytest.mark.parametrize("name", ["softmax", "sparse_cgp", "sgpa", "kep_svgp"])
def test_varying_lengths_in_one_batch_equal_one_by_one(name):
    model, lengths = build(BLOCKS[name]).eval(), [7, 1, 4]
    texts = torch.randint(0, 20, (3, 7))
    padding = torch.arange(7) >= torch.tensor(lengths)[:, None]
    together = model(texts, padding)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(together[i], model(texts[i, :length]))
    assert torch.isfinite(model(texts[:1], torch.ones(1, 7, dtype=torch.bool))).all()


def test_precomputed_embeddings_and_regression():
    model = build(BLOCKS["sparse_cgp"], input_dim=5, num_classes=2)
    x, y = torch.randn(4, 6, 5).double(), torch.randn(4, 2).double()
    objective = Objective(model, HomoscedasticLikelihood(2).double(), num_data=4, num_samples=3)
    objective(x, y, padding_mask=torch.zeros(4, 6, dtype=torch.bool)).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None and "positions" not in name]


def test_draws_are_carried_on_under_padding():
    model = build(BLOCKS["sparse_cgp"]).eval()
    padding = torch.tensor([[False] * 6, [False] * 2 + [True] * 4])
    with sampling(model, "marginal"), draws(model, 3):
        assert model(torch.zeros(2, 6, dtype=torch.long), padding).shape == (3, 2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build(vocabulary_size=None), "vocabulary_size, input_dim: expected one of them"),
        (lambda: build(max_length=0), "max_length: expected at least 1"),
        (lambda: build()(torch.zeros(1, 13, dtype=torch.long)), "tokens: expected 1 to 12 of them, got 13"),
        (lambda: build()(torch.zeros(1, 3, 5)), r"tokens: expected symbols \(\*batch, n\) int64"),
        (lambda: build(input_dim=5)(torch.zeros(1, 3, 4)), r"expected embeddings \(\*batch, n, 5\)"),
        (lambda: build([SoftmaxAttention]), "attention: expected one factory"),
    ],
)
def test_bad_calls_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
