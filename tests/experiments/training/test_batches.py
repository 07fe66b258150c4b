"""Order of batches, and the shares of several processes."""

import pytest
import torch

from experiments.data.examples import Examples
from experiments.training.batches import BatchOrder, batch_loader

LENGTHS = torch.randint(1, 30, (203,), generator=torch.Generator().manual_seed(0))


def order(rank=0, world=1, epoch=0, **options):
    """An order of 203 texts in batches of 8."""
    chosen = BatchOrder(203, **{"batch_size": 8, "seed": 5, "lengths": LENGTHS} | options, rank=rank, world=world)
    chosen.set_epoch(epoch)
    return chosen


def joined(**options):
    return torch.cat([share.indices for share in order(**options)])


def test_every_example_comes_once_an_epoch_in_an_order_of_seed_and_epoch():
    assert torch.equal(joined().sort().values, torch.arange(203))
    assert torch.equal(joined(epoch=3), joined(epoch=3))
    assert not torch.equal(joined(epoch=3), joined(epoch=4))
    assert not torch.equal(joined(epoch=3), joined(epoch=3, seed=6))
    expected = torch.randperm(203, generator=torch.Generator().manual_seed(7))
    assert torch.equal(joined(lengths=None, epoch=2), expected)  # of images


def test_a_batch_holds_texts_of_about_one_length():
    def padding(chosen):
        batches = [LENGTHS[share.indices] for share in chosen]
        return sum(int((part.max() - part).sum()) for part in batches)

    assert padding(order()) < 0.35 * padding(order(lengths=None))


@pytest.mark.parametrize("world", [2, 3, 8])
def test_shares_make_up_the_joined_batch_and_weigh_as_its_mean(world):
    values = torch.randn(203, dtype=torch.float64)
    parts = zip(order(), *(order(rank, world) for rank in range(world)), strict=True)
    for whole, *shares in parts:
        kept = [share.indices for share in shares if share.weight > 0]
        assert torch.equal(torch.cat(kept).sort().values, whole.indices.sort().values)
        losses = torch.stack([share.weight * values[share.indices].mean() for share in shares])
        assert losses.mean() == pytest.approx(values[whole.indices].mean().item(), abs=1e-12)


def test_batches_are_trimmed_to_their_longest_text():
    padding = torch.arange(30) >= LENGTHS[:, None]
    texts = {"tokens": torch.zeros(203, 30, dtype=torch.long), "padding_mask": padding}
    examples = Examples(texts, torch.zeros(203, dtype=torch.long), torch.arange(203))
    for item in batch_loader(examples, batch_size=8, seed=0):
        assert item.inputs["tokens"].shape[1] == LENGTHS[item.positions].max()
    held_out = [item.positions for item in batch_loader(examples, batch_size=50)]
    assert torch.equal(torch.cat(held_out), torch.arange(203))
