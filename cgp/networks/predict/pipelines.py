"""Pipelines of the transformers library whose answers have uncertainties."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import Any

from torch import Tensor, nn

from cgp.extras import needs_extra
from cgp.networks.model.structural_copy import structural_copy

from .generate import generate
from .predict import predict

__all__ = ["pipeline"]

_CLASSIFICATION = {
    f"{kind.lower()}-classification": f"{kind}ClassificationPipeline" for kind in ("Text", "Image", "Audio")
}
_UNCERTAINTIES = ("log_probability", "total", "epistemic")


def pipeline(
    task: str,
    model: nn.Module,
    *,
    num_samples: int = 16,
    sampling: str = "marginal",
    seed: int | None = None,
    **options: Any,
) -> Any:
    """A pipeline of transformers whose answers have the uncertainties of a converted model, in nats.

    Classes are scored by probabilities averaged over draws, and each answer has the ``total`` and ``epistemic``
    uncertainty of its input (summed over labels where there are several). Generated text is the host's, and each answer
    has ``log_probability``, ``total`` and ``epistemic`` of every generated token; NaN after the end.

    Args:
        task: "text-classification", "image-classification", "audio-classification" or "text-generation".
        model: a model of transformers converted by :func:`cgp.convert`. It is not changed.
        num_samples: number S of draws.
        sampling: "marginal" or "joint".
        seed: seed of the draws.
        **options: options of ``transformers.pipeline``: ``tokenizer``, ``image_processor``, ...

    Returns:
        The pipeline.

    Raises:
        ValueError: if the task is another one.
        ImportError: if transformers is not installed, or too old to hand on what belongs to generated tokens (5.0 is).
    """
    with needs_extra("text", "pipeline"):
        library = importlib.import_module("transformers")
    copy = structural_copy(model)
    draws = {"num_samples": num_samples, "sampling": sampling, "seed": seed}
    if task == "text-generation":
        if "additional_outputs" in inspect.getsource(library.TextGenerationPipeline):  # it would drop them silently
            raise ImportError(
                "task: 'text-generation' expected a transformers whose pipeline hands on what belongs to the tokens, "
                f"got {library.__version__}: install a newer one"
            )
        vars(copy)["generate"] = partial(_generate, library.utils.ModelOutput, model, draws)
        return library.pipeline(task, copy, **options)
    if task not in _CLASSIFICATION:
        raise ValueError(f"task: expected one of {(*_CLASSIFICATION, 'text-generation')}, got {task!r}")
    kind = getattr(library, _CLASSIFICATION[task])
    uncertain = type(kind.__name__, (_Uncertain, kind), {"draws": draws})
    return library.pipeline(task, copy, pipeline_class=uncertain, **options)


def _generate(
    kind: Any, model: nn.Module, draws: dict[str, Any], /, input_ids: Tensor, attention_mask: Any = None, **options: Any
) -> Any:
    """Replacement of ``generate`` in the pipeline, which passes on every tensor besides the sequences."""
    inputs = {"input_ids": input_ids} | ({} if attention_mask is None else {"attention_mask": attention_mask})
    generation = generate(model, inputs, **draws, **options)
    values = {name: getattr(generation, name) for name in ("sequences", *_UNCERTAINTIES)}
    return kind({name: value for name, value in values.items() if value is not None})


class _Uncertain:
    """Mixin before the class of a pipeline for classification."""

    model: Any
    draws: dict[str, Any]

    def _forward(self, inputs: Any, **_: Any) -> dict[str, Tensor]:
        several = self.model.config.problem_type == "multi_label_classification"
        prediction = predict(self.model, dict(inputs), **self.draws, task="multilabel" if several else "classification")
        p = prediction.probabilities
        assert p is not None
        values = {name: getattr(prediction, name) for name in _UNCERTAINTIES[1:]}
        kept = {
            name: value.flatten(1).sum(1) if several else value for name, value in values.items() if value is not None
        }
        return {"logits": p.logit() if several else p.log(), **kept}

    def postprocess(self, outputs: Any, **options: Any) -> Any:
        answers = super().postprocess(outputs, **options)  # type: ignore[misc]  # of the class that follows it
        uncertainties = {name: outputs[name].item() for name in _UNCERTAINTIES if name in outputs}
        return (
            [{**answer, **uncertainties} for answer in answers]
            if isinstance(answers, list)
            else {**answers, **uncertainties}
        )
