"""The real data sets: run with `-m data` and CGP_DATA."""

import pytest
import torch

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import input_sets, load

pytestmark = pytest.mark.data


def loaded(cgp_data, path, **options):
    """The parts of a set whose file is there, and their sizes."""
    if not (cgp_data / path).exists():
        pytest.skip(f"{path} is not in the folder that CGP_DATA names")
    data = DataConfig(root=cgp_data, **options)
    splits = load(data, seed=0)
    return data, splits, [len(part) for part in (splits.train, splits.validation, splits.test)]


def test_cifar10_is_whole(cgp_data):
    corruptions = CorruptionConfig(kinds=("fog",), severities=(5,), source="generated")
    data, splits, sizes = loaded(cgp_data, "cifar10/train.npz", name="cifar10", corruptions=corruptions)
    assert sizes == [45000, 5000, 10000]
    assert splits.description.deviations == ()
    # The published mean and deviation of the 50,000 training images.
    assert splits.description.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-3)
    assert splits.description.deviation == pytest.approx((0.2470, 0.2435, 0.2616), abs=1e-3)
    assert splits.validation.labels.bincount().tolist() == [500] * 10
    fog = {part.name: part for part in input_sets(data, splits, seed=0)}["corrupted-fog-5"]
    assert fog.images.shape == (1000, 3, 32, 32)
    assert torch.equal(fog.labels, splits.test.labels[fog.ids])


@pytest.mark.parametrize("name", ["cifar100", "textures", "tiny_imagenet_crop", "tiny_imagenet_resize"])
def test_ood_sets(cgp_data, name):
    whole = name.removesuffix("_crop").removesuffix("_resize")
    data, splits, _ = loaded(cgp_data, f"{whole}/test.npz", ood=(name,), limit_ood=500)
    result = {part.name: part for part in input_sets(data, splits, seed=0)}
    assert result[f"ood-{name}"].inputs.shape == (500, 1, 8, 8)


COLA = {"pooled": [6536, 726, 1816], "selected": [6354, 908, 1816], "official": [7696, 855, 527]}


@pytest.mark.parametrize("split", COLA)
def test_cola_is_the_published_corpus(cgp_data, split):
    _, splits, sizes = loaded(cgp_data, "cola/raw/in_domain_train.tsv", name="cola", split=split)
    assert sizes == COLA[split]
    embeddings = "token embeddings are learned; the papers' ELMo is no longer obtainable"
    assert splits.description.deviations == (embeddings,)  # nothing is missing of the corpus
    assert splits.others["out-of-domain"].labels.bincount().tolist() == [162, 354]
    assert (~splits.train.inputs["padding_mask"]).sum(-1).amax() < splits.description.max_length
    unknown = (splits.test.inputs["tokens"] == 1).sum() / (~splits.test.inputs["padding_mask"]).sum()
    assert 0.01 < unknown < 0.1


TEXTS = {"imdb": [35000, 5000, 10000], "sst2": [6920, 872, 1821], "clinc150": [15000, 3000, 4500]}


@pytest.mark.parametrize("name", TEXTS)
def test_other_texts_are_whole(cgp_data, name):
    _, splits, sizes = loaded(cgp_data, name, name=name, max_length=64)
    assert sizes == TEXTS[name]
    assert splits.description.deviations == ()
    assert name == "imdb" or len(next(iter(splits.others.values()))) >= 1000
    counts = splits.train.labels.bincount()
    assert counts.max() < 1.1 * counts.min()
