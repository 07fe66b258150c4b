"""Frozen contextual states."""

from pathlib import Path

import pytest
import torch

from experiments.configuration import DataConfig
from experiments.data import batch, contextual, load
from experiments.data.contextual import contextual_states
from tests.experiments.data.stand_ins import write_stand_in

transformers = pytest.importorskip("transformers", reason="transformers comes with the extra `text`")
SYMBOLS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "dog", "sees", "likes", "."]
TEXTS = ["the cat sees the dog .", "the dog", "the cat likes the dog and the bird and more and more"]


def save_encoder(folder, seed=0):
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(SYMBOLS), encoding="utf-8")
    transformers.BertTokenizer(vocab=str(folder / "vocab.txt"), model_max_length=10).save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(SYMBOLS), max_position_embeddings=12, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def encoder(tmp_path):
    return save_encoder(tmp_path / "tiny-bert")


def states_of(encoder, tmp_path, texts=TEXTS, max_length=9):
    return contextual_states(texts, encoder=encoder, max_length=max_length, cache=tmp_path / "cache")


def test_states_equal_the_encoders_own_text_by_text(encoder, tmp_path):
    states, padding = states_of(encoder, tmp_path)
    assert states.dtype == torch.float16
    assert states.shape == (3, 9, 8)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder).eval()
    for text, result, mask in zip(TEXTS, states, padding, strict=True):
        encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=9)
        with torch.no_grad():
            expected = model(**encoded).last_hidden_state[0]
        assert (~mask).sum() == len(expected)
        torch.testing.assert_close(result[~mask].float(), expected, atol=2e-3, rtol=2e-3)
        assert (result[mask] == 0).all()
    states, padding = states_of(encoder, tmp_path, texts=["the " * 50], max_length=100)
    assert states.shape == (1, 10, 8)  # the encoder has a limit of its own
    assert not padding.any()


def test_states_are_made_once_and_their_file_is_not_written_to(encoder, tmp_path, monkeypatch):
    first, padding = states_of(encoder, tmp_path)
    before = first.clone()
    first.zero_()
    monkeypatch.setattr(contextual, "_loaded", lambda folder: pytest.fail("the encoder was run again"))
    second, again = states_of(encoder, tmp_path)
    assert torch.equal(before, second)
    assert torch.equal(padding, again)


def test_nothing_stale_is_read(tmp_path):
    encoder = save_encoder(tmp_path / "tiny-v1.5")  # whose dot begins no suffix
    states_of(encoder, tmp_path)
    assert len(states_of(encoder, tmp_path, texts=["the bird"])[0]) == 1
    states_of(encoder, tmp_path, max_length=5)
    states_of(save_encoder(tmp_path / "other", seed=1), tmp_path)
    assert len(list((tmp_path / "cache").rglob("*.states.npy"))) == 4


def test_an_installed_package_brings_its_weights(encoder, tmp_path, monkeypatch):
    package = tmp_path / "site" / "tiny_encoder"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    Path(encoder).rename(package / "model")
    monkeypatch.syspath_prepend(package.parent)
    states, _ = states_of("tiny-encoder", tmp_path)
    assert states.shape == (3, 9, 8)
    (kept,) = (tmp_path / "cache").rglob("*.states.npy")
    assert kept.name.startswith("tiny-encoder-")


def test_a_data_set_of_states(encoder, tmp_path):
    write_stand_in(tmp_path, "cola")
    data = DataConfig(name="cola", root=tmp_path, unchecked=True, encoder=encoder, cache=tmp_path / "cache")
    splits = load(data, seed=0)
    assert (splits.description.input_dim, splits.description.vocabulary_size) == (8, None)
    assert batch(splits.train, torch.arange(4))[0]["tokens"].shape[-1] == 8
    assert len(splits.others["out-of-domain"]) == 40
