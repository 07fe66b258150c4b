"""The causal transformer: no look-ahead, prefixes, learning a text, uncertainty given the prompt."""

import pytest
import torch

from cgp import CategoricalLikelihood, Objective
from cgp.networks.model.blocks import draws, sampling
from models.causal_transformer import CausalTransformer
from tests.blocks import BLOCKS


def build(attention, vocabulary_size=9, **options) -> CausalTransformer:
    torch.manual_seed(0)
    sizes = {"max_length": 24, "depth": 2, "embed_dim": 24, "mlp_dim": 32, "num_heads": 3, **options}
    return CausalTransformer(vocabulary_size=vocabulary_size, attention=attention, **sizes)


@pytest.mark.parametrize("name", ["softmax", "kernel", "cgp", "sparse_cgp", "sparse_cgp softmax's mean"])
def test_each_row_sees_only_its_prefix(name):
    model, tokens = build(BLOCKS[name]).double().eval(), torch.randint(0, 9, (2, 10))
    whole = model(tokens)
    assert whole.shape == (2, 10, 9)
    for t in range(1, 11):
        torch.testing.assert_close(whole[:, t - 1], model(tokens[:, :t])[:, -1])


def test_generation_moves_its_window_where_the_text_is_longer():
    prompt, model = torch.zeros(1, 3, dtype=torch.long), build(BLOCKS["sparse_cgp"], max_length=12).double().eval()
    lengths = []
    model.register_forward_hook(lambda _, inputs, __: lengths.append(inputs[0].shape[-1]))
    assert model.generate(prompt, 15).shape == (1, 18)
    assert lengths == [*range(3, 13), *[12] * 5]


def test_learns_a_text_and_continues_it():
    text = torch.tensor([0, 1, 0, 2, 3, 4] * 8)  # what follows 0 is told by what comes before it
    model, windows = build(BLOCKS["sparse_cgp"], vocabulary_size=5, depth=1), text.unfold(0, 25, 3)
    objective = Objective(model, CategoricalLikelihood(5), num_data=len(windows))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(60):
        optimizer.zero_grad()
        objective(windows[:, :-1], windows[:, 1:]).backward()
        optimizer.step()
    with torch.no_grad():
        result = model.eval()(windows[:, :-1]).argmax(-1)
    assert (result == windows[:, 1:])[:, 4:].float().mean() > 0.9
    assert (model.generate(text[:12], 12) == text[:24]).float().mean() > 0.75


def test_generation_is_reproducible_and_averages_draws():
    model, prompt = build(BLOCKS["sparse_cgp"]).eval(), torch.zeros(2, 3, dtype=torch.long)
    runs = [model.generate(prompt, 4, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*runs)
    assert torch.equal(runs[0][:, :3], prompt)
    with sampling(model, "marginal"), draws(model, 3):
        assert model.generate(prompt, 2).shape == (2, 5)
