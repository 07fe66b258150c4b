"""Text sets in three parts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.configuration import DataConfig
from experiments.data import input_sets, load
from experiments.data.text_loading import PADDING, UNKNOWN, Vocabulary, words
from experiments.data.texts import read_cola
from tests.experiments.data.files import parts
from tests.experiments.data.stand_ins import write_stand_in


@pytest.fixture
def root(tmp_path):
    for name in ("cola", "imdb", "sst2", "clinc150"):
        write_stand_in(tmp_path, name, count=50)
    return tmp_path


def config(root, name="cola", **options):
    return DataConfig(name=name, root=root, unchecked=True, **options)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"split": "pooled"}, (72, 8, 20)),
        ({"split": "selected"}, (70, 10, 20)),
        ({"split": "official"}, (45, 5, 50)),
        ({"split": "official", "validation": 0.2}, (40, 10, 50)),
        ({"name": "imdb"}, (70, 10, 20)),
    ],
)
def test_parts_are_a_partition_of_the_size_of_the_protocol(root, options, sizes):
    splits = load(config(root, **options), seed=0)
    assert tuple(len(part) for part in parts(splits)) == sizes
    ids = torch.cat([part.ids for part in parts(splits)])
    assert sorted(ids.tolist()) == list(range(100))


def test_labels_belong_to_texts_and_the_official_test_part_is_dev(root):
    (root / "cola" / "raw" / "in_domain_train.tsv").write_text(
        "".join(f"x\t{n % 2}\t\t{'good ' * (n % 2)}word{'a' * n} word{'a' * n}\n" for n in range(50)), encoding="utf-8"
    )
    splits = load(config(root, split="official", min_count=1), seed=0)
    lengths = (~splits.train.inputs["padding_mask"]).sum(-1)
    assert torch.equal(lengths - 2, splits.train.labels)
    assert splits.test.ids.tolist() == list(range(50, 100))
    assert splits.test.labels.tolist() == list(read_cola(root, unchecked=True)["in_domain_dev"].labels)


def test_the_split_is_the_same_for_every_seed_unless_it_is_to_follow_it(root):
    fixed = [load(config(root), seed=seed).test.ids for seed in (0, 1)]
    following = [load(config(root, split_seed=None), seed=seed).test.ids for seed in (0, 1)]
    assert torch.equal(*fixed)
    assert torch.equal(fixed[0], following[0])
    assert not torch.equal(*following)


def test_the_vocabulary_is_of_the_training_part_alone(root):
    path = root / "cola" / "raw" / "in_domain_dev.tsv"
    path.write_text("x\t1\t\tquixotic zeugma\n" * 50, encoding="utf-8")
    splits = load(config(root, split="official", min_count=1), seed=0)
    assert (splits.test.inputs["tokens"][~splits.test.inputs["padding_mask"]] == 1).all()
    assert splits.train.inputs["tokens"].amax() == splits.description.vocabulary_size - 1


def test_description_and_predicted_inputs(root):
    data = config(root, limit_train=30, limit_test=7, max_length=4)
    splits = load(data, seed=0)
    description = splits.description
    assert (description.kind, description.num_classes, description.max_length) == ("text", 2, 4)
    assert description.input_dim is None
    assert description.class_names == ("unacceptable", "acceptable")
    *differences, embeddings, train, test, out = description.deviations
    assert len(differences) == 3
    assert embeddings == "token embeddings are learned; the papers' ELMo is no longer obtainable"
    assert (train, test, out) == ("30 of 70 train texts", "7 of 20 test texts", "7 of 50 out-of-domain texts")
    sets = list(input_sets(data, splits, seed=0))
    assert [(part.name, len(part)) for part in sets] == [("validation", 10), ("test", 7), ("out-of-domain", 7)]
    assert all(part.labels is not None for part in sets)
    assert all(part.inputs["tokens"].shape[1] <= 4 for part in sets)


def test_sst2_keeps_its_parts_and_short_reviews_are_its_shift(root):
    data = config(root, "sst2")
    splits = load(data, seed=0)
    assert [len(part) for part in parts(splits)] == [50, 50, 50]
    assert splits.test.ids.tolist() == list(range(50))
    assert splits.description.class_names == ("negative", "positive")
    longest = (~splits.test.inputs["padding_mask"]).sum(-1).amax()
    assert 0 < len(splits.others["out-of-domain"]) <= 100
    assert (~splits.others["out-of-domain"].inputs["padding_mask"]).sum(-1).amax() <= 2 * longest
    (root / "imdb" / "imdb.jsonl.xz").unlink()
    assert not load(data, seed=0).others


def test_sentences_out_of_scope_have_no_label(root):
    data = config(root, "clinc150", limit_test=30)
    splits = load(data, seed=0)
    assert [len(part) for part in parts(splits)] == [50, 50, 30]
    assert splits.description.num_classes == len(splits.description.class_names) == 5
    sets = {part.name: part for part in input_sets(data, splits, seed=0)}
    assert list(sets) == ["validation", "test", "ood-out-of-scope"]
    assert sets["ood-out-of-scope"].labels is None
    assert len(sets["ood-out-of-scope"]) == 30


TEXTS = ["the cat sees the dog", "the dog sleeps", "a cat"]
SPLIT = {
    "Bill's cat isn't here.": ["bill", "'s", "cat", "is", "n't", "here", "."],
    "one<br /><br />two": ["one", "two"],
    "3 < 4, well-known": ["3", "<", "4", ",", "well", "-", "known"],
    "Ünïcode “quotes”": ["ünïcode", "“", "quotes", "”"],
    "": [],
}


@pytest.mark.parametrize("text", SPLIT)
def test_words(text):
    assert words(text) == SPLIT[text]


@given(st.text(max_size=60))
def test_no_letter_is_lost(text):
    plain = text.replace("<", "").replace(">", "")
    assert "".join(words(plain)) == "".join(plain.lower().split())


def test_frequent_words_come_first_and_rare_ones_are_unknown():
    vocabulary = Vocabulary(TEXTS)
    assert vocabulary.encode(["the cat dog a sees sleeps"], max_length=9)[0].tolist() == [[2, 3, 4, 5, 6, 7]]
    assert len(vocabulary) == 8
    frequent = Vocabulary(TEXTS, min_count=2)
    tokens, _ = frequent.encode(["the cat sleeps", "dog bird"], max_length=9)
    assert tokens.tolist() == [[2, 3, UNKNOWN], [4, UNKNOWN, PADDING]]
    assert len(frequent) == 5
    for size in (1, 2, 3, 5, 100):
        cut = Vocabulary(TEXTS, size=size)
        assert len(cut) == min(max(size, 2), 8)
        assert cut.encode(TEXTS, max_length=9)[0].amax() < len(cut)


def test_texts_are_cut_and_padded_at_the_end():
    tokens, padding = Vocabulary(TEXTS).encode([*TEXTS, ""], max_length=3)
    assert tokens.shape == (4, 3)
    assert padding.tolist() == [[False] * 3, [False] * 3, [False, False, True], [False, True, True]]
    assert torch.equal(tokens == PADDING, padding)
    assert tokens[3, 0] == UNKNOWN
