"""Texts read from files."""

import hashlib
import json
import lzma

import pytest

from experiments.data import texts as module
from experiments.data.texts import PUBLISHED_TEXTS, read_clinc150, read_cola, read_imdb, read_sst2
from tests.experiments.data.stand_ins import write_stand_in

READERS = {"cola": read_cola, "imdb": read_imdb, "sst2": read_sst2, "clinc150": read_clinc150}
FILES = {
    "cola": "cola/raw/in_domain_train.tsv",
    "imdb": "imdb/imdb.jsonl.xz",
    "sst2": "sst2/train.tsv",
    "clinc150": "clinc150/data_full.json",
}


@pytest.fixture
def root(tmp_path):
    for name in READERS:
        write_stand_in(tmp_path, name)
    return tmp_path


@pytest.mark.parametrize("name", READERS)
def test_other_files_than_the_published_ones_are_an_error_by_default(root, name):
    parts = READERS[name](root, unchecked=True)
    sizes = PUBLISHED_TEXTS[name].sizes
    assert list(parts) == list(sizes)
    for part, texts in parts.items():
        result = f"{name}, {part}: {len(texts.texts):,} texts instead of the published {sizes[part]:,}"
        assert texts.deviations == (result,)
    with pytest.raises(ValueError, match=rf"{name}, .* Expected <root>/{name}/.* data.unchecked=true"):
        READERS[name](root)


@pytest.mark.parametrize("name", READERS)
def test_missing_and_truncated_files_are_named(root, name):
    path = root / FILES[name]
    content = path.read_bytes()
    for kept in (0, 9, content.rindex(b"\t") if path.suffix == ".tsv" else -10):
        path.write_bytes(content[:kept])
        with pytest.raises(ValueError, match=rf"{path.name.removesuffix('.xz')}.* Expected <root>/{name}/"):
            READERS[name](root, unchecked=True)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"is not there. Expected <root>/{name}/.* Get "):
        READERS[name](root)


@pytest.mark.parametrize("name", ["sst2", "clinc150"])
def test_files_may_be_compressed(root, name):
    path = root / FILES[name]
    plain = READERS[name](root, unchecked=True)
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    assert READERS[name](root, unchecked=True) == plain
    path.with_name(f"{path.name}.xz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=rf"{path.name}.xz cannot be read .* Expected <root>/{name}"):
        READERS[name](root, unchecked=True)


def test_sentences_of_cola(root):
    content = "a1\t1\t\tShe said “no”.\nb2\t0\t*\tSaid no she."
    (root / FILES["cola"]).write_text(content, encoding="utf-8")
    texts = read_cola(root, unchecked=True)["in_domain_train"]
    assert texts.texts == ("She said “no”.", "Said no she.")
    assert texts.labels == (1, 0)
    (root / FILES["cola"]).write_bytes(b"x\t1\t\t\xff\xfe")
    with pytest.raises(ValueError, match=r"in_domain_train.tsv cannot be read .* Expected <root>/cola/raw"):
        read_cola(root, unchecked=True)


def test_checksums_of_cola_do_not_depend_on_line_ends(root, monkeypatch):
    plain = b"x\t1\t\tA sentence.\ny\t0\t*\tSentence a."
    for part in PUBLISHED_TEXTS["cola"].sizes:
        (root / "cola" / "raw" / f"{part}.tsv").write_bytes(plain)
    digest = hashlib.sha256(plain + b"\n").hexdigest()
    known = PUBLISHED_TEXTS["cola"]._replace(sizes=dict.fromkeys(PUBLISHED_TEXTS["cola"].sizes, 2))
    monkeypatch.setattr(module, "PUBLISHED_TEXTS", {"cola": known})
    monkeypatch.setattr(module, "_COLA_SHA256", dict.fromkeys(known.sizes, digest))
    for content in (plain, plain + b"\n", plain.replace(b"\n", b"\r\n") + b"\r\n"):
        (root / FILES["cola"]).write_bytes(content)
        assert read_cola(root)["in_domain_train"].texts == ("A sentence.", "Sentence a.")
    (root / FILES["cola"]).write_bytes(plain.replace(b"A", b"B"))
    message = r"cola, in_domain_train: not the published texts \(another checksum\)"
    with pytest.raises(ValueError, match=message):
        read_cola(root)
    assert len(read_cola(root, unchecked=True)["in_domain_train"].deviations) == 1


INTENTS = {name: [["a", "b"]] for name in ("train", "val", "oos_test")} | {"test": [["a", "not trained"]]}
COLA, SST2 = ("in_domain_train.tsv, row 2: expected 4 columns", "train.tsv, row 2: expected 2 columns")
DAMAGED = [
    *(("cola", f"x\t1\t\tA sentence.\n{row}\nx\t1\t\tA sentence.\n", COLA)
      for row in ("x\t1\t\t", "x\t1\tA sentence.", "x\t2\t\tA sentence.", "", "x\t\t\tA sentence.")),
    *(("sst2", f"fine\t1\n{row}\nfine\t1\n", SST2) for row in ("a film", "a film\t2", "\t1", "a film\t1\t1")),
    *(("imdb", f'{{"text": "Great.", "label": 1}}\n\n{line}\n', r"imdb.jsonl.xz cannot be read \(line 3: ")
      for line in ('{"text": null, "label": 0}', '{"text": "Dull.", "label": true}', '{"text": "Dull.", "label": "0"}',
                   '{"text": "Dull.", "label": 2}', '{"text": "Dull."}', "[1]", "Dull.")),
    *(("clinc150", content, "data_full.json cannot be read .* Expected <root>/clinc150")
      for content in ("[]", "{}", '{"train": [["a", "b", "c"]]}', "no json", '{"train": 3}', json.dumps(INTENTS))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), DAMAGED)
def test_what_is_no_row_is_named(root, name, content, message):
    path = root / FILES[name]
    path.write_bytes(lzma.compress(content.encode()) if path.suffix == ".xz" else content.encode())
    with pytest.raises(ValueError, match=message):
        READERS[name](root, unchecked=True)


def test_reviews_in_the_folders_of_the_original(tmp_path):
    for part in ("train", "test"):
        for name in ("pos", "neg"):
            (tmp_path / "aclImdb" / part / name).mkdir(parents=True)
            (tmp_path / "aclImdb" / part / name / "0_9.txt").write_text(f"{part} {name}", encoding="utf-8")
    texts = read_imdb(tmp_path, unchecked=True)["reviews"]
    assert texts.texts == ("train neg", "train pos", "test neg", "test pos")
    assert texts.labels == (0, 1, 0, 1)
    (tmp_path / "aclImdb" / "train" / "pos" / "7_10.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"aclImdb cannot be read \(train/pos/7_10.txt: "):
        read_imdb(tmp_path, unchecked=True)


def test_intents_and_sentences_out_of_scope(root):
    parts = read_clinc150(root, unchecked=True)
    for name in ("train", "val", "test"):
        part = parts[name]
        assert all(part.classes[label] in text for text, label in zip(part.texts, part.labels, strict=True))
    assert set(parts["oos_test"].labels) == {-1}
