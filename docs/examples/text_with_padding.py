"""
Text with padding
=================

A BERT from the transformers library reads passages of different lengths, padded to one. We convert it, check that
padding counts for nothing, fine-tune it through the evidence lower bound with several draws a step, and colour its
words by their variance. At its end stand the words of a trained tagger.
"""

# sphinx_gallery_thumbnail_path = 'images/tagger-words.png'

import collections
import importlib
import inspect
import re
from importlib import metadata, resources

import torch
from transformers import BertConfig, BertForSequenceClassification

import cgp
from cgp.plotting import text_uncertainties

# %%
# Real text
# ---------
# What kind of text is a passage of 4 to 24 words: scikit-learn's descriptions of data sets, licences of the
# libraries in use, or documentation of Python's standard library? Every fifth stretch of 24 words is held out; words
# that occur once are unknown.

descriptions = [
    file.read_text() for file in resources.files("sklearn.datasets.descr").iterdir() if file.name[-3:] == "rst"
]
licences = [
    file.read_text()
    for name in ("numpy", "scikit-learn", "matplotlib", "torch")
    for file in metadata.files(name)
    if re.fullmatch(r"(LICENSE|COPYING)(\.txt)?", file.name)
]
modules = [importlib.import_module(name) for name in ("argparse", "datetime", "os", "random", "shutil", "statistics")]
manuals = [inspect.getdoc(value) or "" for module in modules for value in vars(module).values() if callable(value)]

KINDS = {"data": descriptions, "licence": licences, "manual": manuals}
texts = [re.findall(r"[a-z]+", " ".join(sorted(parts)).lower())[:9000] for parts in KINDS.values()]
stretches = [[words[i : i + 24] for i in range(0, len(words) - 24, 24)] for words in texts]
counts = collections.Counter(word for parts in stretches for i, part in enumerate(parts) if i % 5 != 2 for word in part)
known = sorted(word for word, count in counts.items() if count > 1)
number = {word: index for index, word in enumerate(known, start=2)}  # 0 is padding, 1 an unknown word


def encode(passages):
    """Passages of words as the arguments of a model of the transformers library."""
    rows = [torch.tensor([number.get(word, 1) for word in words]) for words in passages]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def passages(held_out, count, generator):
    """Passages of random length, and of what kind they are."""
    labels, texts = torch.randint(len(KINDS), (count,), generator=generator), []
    for label in labels.tolist():
        parts = [part for i, part in enumerate(stretches[label]) if (i % 5 == 2) == held_out]
        place, length = torch.randint(10**6, (2,), generator=generator).tolist()
        texts.append(parts[place % len(parts)][: 4 + length % 21])
    return texts, labels


generator = torch.Generator().manual_seed(0)
test_words, test_labels = passages(True, 300, generator)
print(" ".join(test_words[0]), "->", list(KINDS)[test_labels[0]])

# %%
# Train, convert, compare
# -----------------------
# A small BERT with its usual loss.

config = BertConfig(
    vocab_size=len(number) + 2,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=32,
    num_labels=len(KINDS),
)
bert = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(bert.parameters(), lr=2e-3)
for _ in range(120):
    words, labels = passages(False, 24, generator)
    optimizer.zero_grad()
    bert(**encode(words), labels=labels).loss.backward()
    optimizer.step()
bert.eval()

test = encode(test_words)
model = cgp.convert(bert, "cgp", layers="all", amplitude=0.5)
with torch.no_grad():
    change = (model(**test).logits - bert(**test).logits).abs().max()
print(f"largest change of a logit: {change:.1e}")

# %%
# Padding counts for nothing: a passage by itself and the same passage among longer ones give the same answer, and the
# variance of a padded place is zero.

alone = cgp.predict(model, encode(test_words[:1]), num_samples=1, seed=0)
among = cgp.predict(model, test, num_samples=1, seed=0)
length = len(test_words[0])
name = list(among.token_variance)[-1]
difference = (among.token_variance[name][0, :, :length] - alone.token_variance[name][0]).abs().max()
print(f"{length} words, padded to {test['input_ids'].shape[1]}")
print(f"variance differs by {difference:.0e}; at padding it is {among.token_variance[name][0, :, length:].max():.0f}")

# %%
# Fine-tune
# ---------
# Draws through a host that knows nothing of them: :class:`cgp.Objective` runs it once for each, and what
# lies below the first converted layer only once. Dicts are keyword arguments, and the logits are found in the host's
# output.

model.train()
objective = cgp.Objective(model, cgp.CategoricalLikelihood(len(KINDS)), num_data=1000, num_samples=3)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
for _ in range(25):
    words, labels = passages(False, 24, generator)
    optimizer.zero_grad()
    objective(encode(words), labels).backward()
    optimizer.step()
model.eval()

prediction = cgp.predict(model, test, num_samples=16, seed=0)
with torch.no_grad():
    before = bert(**test).logits.softmax(-1)
for label, p in (("softmax", before), ("converted, fine-tuned", prediction.probabilities)):
    nll = -p.gather(-1, test_labels[:, None]).log().mean()
    print(f"{label:22} accuracy {(p.argmax(-1) == test_labels).float().mean():.3f}  NLL {nll:.3f}")

# %%
# Words by their variance
# -----------------------
# The standard deviation of each word's heads in the first layer; on one scale for all passages.


def coloured(words, deviations):
    """Characters of a passage, and the value of its word for each."""
    values = [v for word, value in zip(words, deviations, strict=True) for v in [value] * len(word) + [float("nan")]]
    return " ".join(words), values[:-1]


latin = re.findall("[a-z]+", "gallia est omnis divisa in partes tres quarum unam incolunt belgae aliam aquitani")
shown = {
    f"{list(KINDS)[test_labels[i]]}": test_words[i]
    for i in (torch.argmax((test_labels == kind).float()) for kind in range(3))
} | {"Caesar": latin}
read = cgp.predict(model, encode(shown.values()), num_samples=16, seed=0)
deviations = read.token_variance[next(iter(read.token_variance))].mean(1).sqrt()
text_uncertainties(
    {title: coloured(words, deviations[i, : len(words)].tolist()) for i, (title, words) in enumerate(shown.items())},
    label="Predictive sd of a word, in the first layer",
)

# %%
# What to make of it
# ------------------
# To this model nearly all of Caesar is one unknown word, and a repeated embedding lies close to itself: what is
# foreign is not thereby far away. Ask held-out text which of the numbers separates, before trusting a picture.

usual, unusual = (prediction.total.mean(), prediction.epistemic.mean()), (read.total[-1], read.epistemic[-1])
print("held-out passages: total {:.3f}, epistemic {:.4f} nats on average".format(*usual))
print("Caesar:            total {:.3f}, epistemic {:.4f} nats".format(*unusual))

# %%
# A trained model
# ---------------
# A DistilBERT that tags errors in sentences, in the same way: the variance of the last layer is highest at the words
# that are wrong (:doc:`/results/tagger`, ``python -m experiments.studies.tagger words``).
#
# .. image:: /images/tagger-words.png
#     :alt: Four sentences with the variance of each word as its background: highest at the wrong words Their, went
#         and then.
