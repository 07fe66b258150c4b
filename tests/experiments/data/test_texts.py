"""CoLA and IMDB as they are stored."""

import json
import lzma

import pytest

from experiments.data import write_stand_in
from experiments.data.texts import COLA_FILES, read_clinc150, read_cola, read_imdb, read_sst2


@pytest.fixture
def root(tmp_path):
    for name in ("cola", "imdb", "sst2", "clinc150"):
        write_stand_in(tmp_path, name)
    return tmp_path


def cola_file(root, part="in_domain_train"):
    return root / "cola" / "raw" / f"{part}.tsv"


def test_reads_sentences_and_labels(root):
    cola_file(root).write_text("a1\t1\t\tShe said “no”.\nb2\t0\t*\tSaid no she.", encoding="utf-8")
    texts = read_cola(root, "in_domain_train", unchecked=True)
    assert texts.texts == ("She said “no”.", "Said no she.")
    assert texts.labels == (1, 0)
    assert texts.deviations == ("cola/raw/in_domain_train.tsv holds 2 rows instead of the published 8,551",)


def write_imdb(root, *lines):
    with lzma.open(root / "imdb" / "imdb.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        '{"text": null, "label": 0}',
        '{"text": "Dull.", "label": true}',
        '{"text": "Dull.", "label": "0"}',
        '{"text": "Dull."}',
        "[1]",
        "Dull.",
    ],
)
def test_a_line_that_is_no_review_is_named(root, line):
    write_imdb(root, '{"text": "Great.", "label": 1}', "", line)
    with pytest.raises(ValueError, match=r"imdb.jsonl.xz cannot be read \(line 3: "):
        read_imdb(root, unchecked=True)


def test_empty_lines_hold_no_review(root):
    write_imdb(root, '{"text": "Great.", "label": 1}', "", '{"text": "Dull.", "label": 0}', "")
    assert read_imdb(root, unchecked=True).texts == ("Great.", "Dull.")


def test_a_review_that_is_not_utf_8_is_named(root):
    (root / "imdb" / "imdb.jsonl.xz").unlink()
    folder = root / "aclImdb" / "train" / "pos"
    folder.mkdir(parents=True)
    (folder / "7_10.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"aclImdb cannot be read \(train/pos/7_10.txt: "):
        read_imdb(root, unchecked=True)


@pytest.mark.parametrize("part", COLA_FILES)
def test_another_number_of_rows_is_an_error_unless_it_is_agreed_to(root, part):
    message = rf"cola/raw/{part}.tsv holds 40 rows instead of .* Expected <root>/cola/raw/<part>.tsv .* data.unchecked"
    with pytest.raises(ValueError, match=message):
        read_cola(root, part)


def test_another_text_of_the_same_length_is_an_error(root):
    rows = "x\t1\t\tA sentence.\n" * COLA_FILES["in_domain_dev"].rows
    cola_file(root, "in_domain_dev").write_text(rows, encoding="utf-8")
    with pytest.raises(ValueError, match=r"in_domain_dev.tsv is not the published file \(another checksum\)"):
        read_cola(root, "in_domain_dev")
    assert len(read_cola(root, "in_domain_dev", unchecked=True).deviations) == 1


def test_line_ends_do_not_matter(root, monkeypatch):
    import hashlib

    from experiments.data import texts

    plain = b"x\t1\t\tA sentence.\ny\t0\t*\tSentence a."
    monkeypatch.setattr(
        texts,
        "COLA_FILES",
        {
            "in_domain_dev": COLA_FILES["in_domain_dev"]._replace(
                rows=2, sha256=hashlib.sha256(plain + b"\n").hexdigest()
            )
        },
    )
    for content in (plain, plain + b"\n", plain.replace(b"\n", b"\r\n") + b"\r\n"):
        cola_file(root, "in_domain_dev").write_bytes(content)
        read = read_cola(root, "in_domain_dev")
        assert read.texts == ("A sentence.", "Sentence a.")


@pytest.mark.parametrize("row", ["x\t1\t\t", "x\t1\tA sentence.", "x\t2\t\tA sentence.", "", "x\t\t\tA sentence."])
def test_names_a_row_that_is_not_one(root, row):
    cola_file(root).write_text(f"x\t1\t\tA sentence.\n{row}\nx\t1\t\tA sentence.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"in_domain_train.tsv, row 2: expected four columns"):
        read_cola(root, "in_domain_train", unchecked=True)


def test_a_truncated_file_is_an_error(root):
    content = cola_file(root).read_bytes()
    cola_file(root).write_bytes(content[: content.rindex(b"\t")])
    with pytest.raises(ValueError, match=r"in_domain_train.tsv, row 40: expected four columns"):
        read_cola(root, "in_domain_train", unchecked=True)
    cola_file(root).write_bytes(b"x\t1\t\t\xff\xfe")
    with pytest.raises(ValueError, match=r"in_domain_train.tsv cannot be read .* Expected <root>/cola/raw"):
        read_cola(root, "in_domain_train", unchecked=True)


def test_missing_files_say_what_was_expected(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"in_domain_dev.tsv is not there. .* Corpus of Linguistic Acceptability"
    ):
        read_cola(tmp_path, "in_domain_dev")
    with pytest.raises(FileNotFoundError, match=r"imdb.jsonl.xz is not there. .* Large Movie Review Dataset"):
        read_imdb(tmp_path)


def test_reads_reviews(root):
    texts = read_imdb(root, unchecked=True)
    assert len(texts.texts) == 80
    assert set(texts.labels) == {0, 1}
    assert all(("splendid" in text) == bool(label) for text, label in zip(texts.texts, texts.labels, strict=True))
    with pytest.raises(ValueError, match=r"imdb.jsonl.xz holds 80 reviews instead of the published 50,000"):
        read_imdb(root)


def test_reads_the_folders_of_the_original(tmp_path):
    for part in ("train", "test"):
        for name in ("pos", "neg"):
            (tmp_path / "aclImdb" / part / name).mkdir(parents=True)
            (tmp_path / "aclImdb" / part / name / "0_9.txt").write_text(f"{part} {name}", encoding="utf-8")
    texts = read_imdb(tmp_path, unchecked=True)
    assert texts.texts == ("train neg", "train pos", "test neg", "test pos")
    assert texts.labels == (0, 1, 0, 1)


@pytest.mark.parametrize("kept", [0, 20, -10])
def test_refuses_a_truncated_archive(root, kept):
    path = root / "imdb" / "imdb.jsonl.xz"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"imdb.jsonl.xz cannot be read .* Expected <root>/imdb"):
        read_imdb(root, unchecked=True)


def test_refuses_other_labels(root):
    with lzma.open(root / "imdb" / "imdb.jsonl.xz", "wt") as lines:
        lines.write(json.dumps({"text": "so-so", "label": 2}) + "\n")
    with pytest.raises(ValueError, match=r"imdb.jsonl.xz: expected labels 0 and 1, got \[2\]"):
        read_imdb(root, unchecked=True)


def test_reads_sentences_of_sst2_plain_or_compressed(root):
    path = root / "sst2" / "train.tsv"
    plain = read_sst2(root, "train", unchecked=True)
    assert all(("splendid" in text) == bool(label) for text, label in zip(plain.texts, plain.labels, strict=True))
    path.with_name("train.tsv.xz").write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    assert read_sst2(root, "train", unchecked=True) == plain
    with pytest.raises(ValueError, match=r"sst2/train.tsv holds 40 rows instead of the published 6,920"):
        read_sst2(root, "train")
    path.with_name("train.tsv.xz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"train.tsv.xz cannot be read .* Expected <root>/sst2"):
        read_sst2(root, "train", unchecked=True)


@pytest.mark.parametrize("row", ["a film", "a film\t2", "\t1", "a film\t1\t1"])
def test_names_a_row_of_sst2_that_is_not_one(root, row):
    (root / "sst2" / "dev.tsv").write_text(f"fine\t1\n{row}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="dev.tsv, row 2: expected two columns"):
        read_sst2(root, "dev", unchecked=True)


def test_reads_intents_and_what_is_out_of_their_scope(root):
    parts = read_clinc150(root, unchecked=True)
    assert {name: len(part.texts) for name, part in parts.items()} == {
        "train": 40,
        "val": 40,
        "test": 40,
        "oos_test": 40,
    }
    for name in ("train", "val", "test"):
        part = parts[name]
        assert all(part.classes[label] in text for text, label in zip(part.texts, part.labels, strict=True))
    assert set(parts["oos_test"].labels) == {-1}
    with pytest.raises(ValueError, match="holds 40 train sentences instead of the published 15,000"):
        read_clinc150(root)


@pytest.mark.parametrize("content", ["[]", "{}", '{"train": [["a", "b", "c"]]}', "no json", '{"train": 3}'])
def test_refuses_intents_of_another_layout(root, content):
    (root / "clinc150" / "data_full.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"data_full.json cannot be read .* Expected <root>/clinc150"):
        read_clinc150(root, unchecked=True)


def test_an_intent_that_was_not_trained_is_an_error(root):
    rows = {name: [["a", "b"]] for name in ("train", "val", "oos_test")} | {"test": [["a", "c"]]}
    (root / "clinc150" / "data_full.json").write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(ValueError, match=r"data_full.json cannot be read \('c'\)"):
        read_clinc150(root, unchecked=True)
