"""Which models `cgp.convert` reaches: families of several libraries, with random weights.

All attention layers are converted (`layers="all"`). A family counts as converted if predictions in mean mode equal the
host's to 1e-5 in float32, and `cgp.predict` with four draws gives outputs that vary and are finite where the host's
are, and finite variances of the tokens. It counts as assessed if `cgp.assess` compares the posterior of all layers with
the model as it is, on two numbers of its mean token as logits of two classes, and the model of `report.apply`
with the widest posterior predicts draws that vary and are those of a conversion by hand with that amplitude.
"""

import importlib
import inspect
import pkgutil
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

import cgp
from cgp.networks.convert import attention_sites
from cgp.networks.methods import Posterior
from cgp.networks.model.tempering import probabilities
from cgp.networks.tasks import Classification
from experiments.atomic_files import write_text
from experiments.grids import markdown_table, write_csv
from experiments.runs.parsing import run_functions

__all__ = ["coverage"]

_TOLERANCE = 1e-5
_DRAWS = 4
_AMPLITUDE = 0.1  # that cgp.convert starts from
_NEXT_TO_ZERO = 2e-5
_MOST = 2.5e7  # largest number of parameters of a model
_MOST_OF_TIMM = 1.5e8  # larger models are built with two layers
_WORDS = re.split(" ", "atto femto pico nano xxs xxt tiny mini xs _0 _s0 _m0 b0 b1 small s")
_TIMM_WITH_ATTENTION = {
    "byobnet": "resnet50_clip",
    "metaformer": "caformer_s18",
    "mobilenetv3": "mobilenetv4_hybrid_medium",
}
_SIZES: Mapping[str, int] = {
    "hidden_size|d_model|n_embd|embed_dim|dim|hidden_dim|embedding_size|word_embed_dim|projection_dim|n_embed": 32,
    "encoder_hidden_size|decoder_hidden_size|out_hidden_size|hidden_dimension|rnn_hidden_size": 32,
    "num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|depth|num_blocks": 2,
    "num_encoder_layers|num_decoder_layers|num_hidden_groups|num_experts_per_tok|num_key_value_heads|num_kv_heads": 2,
    "num_attention_heads|n_heads?|num_heads|encoder_attention_heads|decoder_attention_heads": 4,
    "num_encoder_attention_heads|num_decoder_attention_heads|num_(local_)?experts|n_routed_experts": 4,
    ".*(intermediate|ffn|feedforward|inner|mlp)_?(size|dim|hidden_size|embed_dims)?|d_ff|n_inner|ff_dim": 64,
    "(encoder|decoder)_ffn_dim|max_position_embeddings|max_(source|target)_positions|n_positions": 64,
    "head_dim|d_kv|attention_head_size|patch_size|kv_channels|qk_rope_head_dim|qk_nope_head_dim|v_head_dim": 8,
    "q_lora_rank|kv_lora_rank": 16,
    "(.*_)?vocab_size(_per_layer_input)?|.*codebook_size": 120,
    "image_size": 32,
    "n_shared_experts|n_group|topk_group|first_k_dense_replace|num_nextn_predict_layers": 1,
}


class Host(NamedTuple):
    """A model to convert, with its inputs.

    Attributes:
        name: name of the model.
        build: builds the model.
        inputs: makes inputs of the model.
        kind: "encoder" or "decoder" if the library distinguishes them.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[nn.Module], dict[str, Any] | tuple[Any, ...]]
    kind: str = ""


def coverage(*, library: str = "torch", families: list[str] | None = None, out: Path = Path("docs/results")) -> None:
    """Convert families of a library, and write the results of all families tried so far.

    Args:
        library: name of the library; `torch` includes torchvision's models.
        families: names of families; None is all that are not in the table yet.
        out: folder of `coverage.csv`, which keeps its rows, and `coverage.md`; both are written after every family.
    """
    known, kept = _LIBRARIES[library](), _read(out / "coverage.csv")
    for family in families or sorted(name for name in known if (library, name) not in kept):
        row = {"library": library, "family": family, **_outcome(known[family])}
        print(*row.values(), flush=True)
        kept[library, family] = row
        rows = [kept[key] for key in sorted(kept)]
        write_csv(out / "coverage.csv", rows)
        write_text(out / "coverage.md", _markdown(rows))


def _outcome(make: Callable[[], Host]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        ("model", "kind", "layers", "converted", "outcome", "error", "assessed", "note"), ""
    )
    try:
        host = make()
        row |= {"model": host.name, "kind": host.kind}
        torch.manual_seed(0)
        model = _without_zeros(host.build().eval())
        inputs = host.inputs(model)
        expected = _tensors(_call(model, inputs))
    except Exception as error:  # noqa: BLE001 (a library's models fail in every way)
        return row | {"outcome": "not run", "note": _short(error)}
    sites = attention_sites(model)
    row |= {"layers": len(sites), "converted": 0}
    if not sites:
        return row | {"outcome": "no attention"}
    try:
        converted = cgp.convert(model, layers="all")
    except ValueError as error:
        reached = sum(site.state == "softmax" for site in sites)
        return row | {"converted": reached, "outcome": "partly" if reached else "refused", "note": _reason(error)}
    try:
        row |= {"converted": len(sites)} | _compared(converted, inputs, expected)
        return row | ({"assessed": _assessed(model, host)} if row["outcome"] == "converted" else {})
    except Exception as error:  # noqa: BLE001
        outcome = "refused when it draws" if "expected softmax attention" in str(error) else "failed"
        return row | {"outcome": outcome, "note": _short(error)}


@torch.no_grad()
def _without_zeros(model: nn.Module) -> nn.Module:
    """Draw weights that are initialised at or near zero (heads, gates, SAM): nothing would pass through them."""
    for parameter in model.parameters():
        if parameter.is_floating_point() and not (parameter.abs() > _NEXT_TO_ZERO).any():
            parameter.normal_(std=0.1)
    return model


def _compared(model: nn.Module, inputs: Any, expected: list[Tensor]) -> dict[str, Any]:
    pairs = zip(_tensors(_call(model, inputs)), expected, strict=True)
    error = max(
        (float((output - other).abs().nan_to_num().max()) for output, other in pairs if output.numel()), default=0.0
    )
    torch.manual_seed(0)  # a few mask tokens by chance
    drawn = cgp.predict(model, inputs, _DRAWS, task=None, output=_side_by_side, seed=0)
    assert drawn.epistemic is not None
    variances = list(drawn.token_variance.values())
    is_finite = all(bool(torch.isfinite(variance).all()) for variance in variances)
    is_usual = torch.equal(torch.isfinite(drawn.mean), torch.isfinite(_side_by_side(expected)))
    varies = any(bool((variance > 0).any()) for variance in variances) and bool((drawn.epistemic > 0).any())
    is_good = error < _TOLERANCE and is_finite and is_usual and varies
    note = "" if is_good or error >= _TOLERANCE else "the draws are all the same" if not varies else "draws not finite"
    return {"outcome": "converted" if is_good else "failed", "error": f"{error:.1e}", "note": note}


def _assessed(model: nn.Module, host: Host) -> str:
    """What fails when a model is assessed, and its widest posterior applied and drawn from, or "yes"."""
    torch.manual_seed(0)
    batches = [host.inputs(model) for _ in range(4)]
    data = [(inputs, torch.arange(len(_two_numbers(_call(model, inputs)))) % 2) for inputs in batches]
    try:
        report = cgp.assess(
            model, data, task=Classification(_two_numbers), compare=[Posterior(layers="all")], num_samples=2
        )
        _, factor, temperature = report.choices["widest posterior"]
        options: dict[str, Any] = {"num_samples": _DRAWS, "output": _two_numbers, "seed": 0, "keep_draws": True}
        applied = report.apply(model, "widest posterior")
        by_hand = cgp.convert(model, layers="all", amplitude=_AMPLITUDE * factor)
        torch.manual_seed(0)  # a few mask tokens by chance
        found = cgp.predict(applied, data[:1], **options)
        torch.manual_seed(0)
        expected = cgp.predict(by_hand, data[:1], task="regression", **options)
    except Exception as error:  # noqa: BLE001
        return _short(error)
    assert found.draws is not None
    assert expected.draws is not None
    are_alike = torch.allclose(found.draws, probabilities(expected.draws, temperature), atol=1e-4)
    varies = bool((found.draws.std(0) > 0).any())
    return "yes" if are_alike and varies else "other draws than by hand" if varies else "the draws are all the same"


def _two_numbers(output: Any) -> Tensor:
    """Two numbers for each input, of the mean of its tokens, as a head of two classes would return them."""
    first = _tensors(output)[0].float()
    has_tokens = first.dim() > 2 and first.shape[-1] > 1
    return (first.flatten(1, -2).mean(1) if has_tokens else first.flatten(1))[:, :2]


def _side_by_side(output: Any) -> Tensor:
    """All outputs of a model, flattened to one row."""
    return torch.cat([x.flatten().float() for x in _tensors(output)])[None]


@torch.no_grad()
def _call(model: nn.Module, inputs: Any) -> Any:
    torch.manual_seed(0)  # a few mask tokens by chance
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        output = list(output.values())
    return [x for part in output for x in _tensors(part)] if isinstance(output, list | tuple) else []


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:160].replace("|", "/")


def _reason(error: ValueError) -> str:
    """The first module that cannot be converted, and the reason."""
    line = next((line for line in str(error).split("\n") if line.startswith("  ")), str(error))
    return re.sub(r"\(\S*\.(\w+)\)", r"(\1)", line.strip()).replace("|", "/")


# The libraries


def _timm() -> dict[str, Callable[[], Host]]:
    import timm
    from timm.models._registry import _module_to_models

    def smallest(names: set[str]) -> Host:
        ranked = sorted(names, key=lambda n: (next((i for i, word in enumerate(_WORDS) if word in n), 99), n))[:4]
        counts = {}
        for name in ranked:
            with torch.device("meta"):
                counts[name] = sum(p.numel() for p in timm.create_model(name).parameters())
        name = min(counts, key=lambda key: counts[key])
        options: dict[str, Any] = {} if counts[name] < _MOST_OF_TIMM else {"depth": 2, "img_size": 336}
        return Host(name, lambda: timm.create_model(name, **options), lambda m: _timm_inputs(m, **options))

    known = {module: set(names) for module, names in _module_to_models.items()}
    known |= {module: {name} for module, name in _TIMM_WITH_ATTENTION.items()}
    return {module: partial(smallest, names) for module, names in known.items()}


def _timm_inputs(model: Any, img_size: int | None = None, **options: Any) -> tuple[Any, ...]:
    channels, *size = model.default_cfg["input_size"]
    return (torch.randn(1, channels, *([img_size] * 2 if img_size else size)),)


def _transformers(attention: str) -> dict[str, Callable[[], Host]]:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    def tiny(family: str, name: str) -> Host:
        kind, config = getattr(transformers, name), CONFIG_MAPPING[family]()
        _shrink(config, transformers.PretrainedConfig)
        config._attn_implementation = attention if kind._supports_sdpa else "eager"
        with torch.device("meta"):
            count = sum(p.numel() for p in kind(config).parameters())
        if count > _MOST:
            raise ValueError(f"no tiny configuration ({count / 1e6:.0f} million parameters)")
        role = "encoder-decoder" if config.is_encoder_decoder else "decoder" if family in CAUSAL else "encoder"
        role += "" if kind._supports_sdpa else ", without sdpa"
        return Host(name, lambda: kind(config), _transformers_inputs, role)

    names = {
        family: classes if isinstance(classes, str) else classes[0] for family, classes in MODEL_MAPPING_NAMES.items()
    }
    return {family: partial(tiny, family, name) for family, name in names.items()}


def _shrink(config: Any, kind: type) -> None:
    """Set small sizes in a configuration and its sub-configurations, by attribute names."""
    for name, value in list(vars(config).items()):
        if isinstance(value, kind):
            _shrink(value, kind)
        elif isinstance(value, list) and name in ("layer_types", "mlp_layer_types"):
            setattr(config, name, value[:2])
        elif isinstance(value, int) and not isinstance(value, bool):
            size = next((size for pattern, size in _SIZES.items() if re.fullmatch(pattern, name)), None)
            if name.endswith("token_id") and value >= 120:
                size = 1
            if size is not None and size < value:
                setattr(config, name, size)


def _transformers_inputs(model: Any) -> dict[str, Any]:
    names, batch = inspect.signature(model.forward).parameters, 2
    inputs: dict[str, Any] = {}
    if "input_ids" in names:
        inputs["input_ids"] = torch.randint(3, 100, (batch, 9))
        if "attention_mask" in names:
            inputs["attention_mask"] = (torch.arange(9) < torch.tensor([9, 6])[:, None]).long()
    if "pixel_values" in names and (not inputs or model.main_input_name == "pixel_values"):
        inputs["pixel_values"] = torch.randn(batch, getattr(model.config, "num_channels", 3), 32, 32)
    if "input_values" in names and not inputs:
        inputs["input_values"] = torch.randn(batch, 2000)
    if "input_features" in names and not inputs:
        bins, count = getattr(model.config, "num_mel_bins", 80), getattr(model.config, "max_source_positions", 64)
        inputs["input_features"] = torch.randn(batch, bins, 2 * count)
    if "decoder_input_ids" in names:
        inputs["decoder_input_ids"] = torch.randint(3, 100, (batch, 5))
    return inputs


def _torch() -> dict[str, Callable[[], Host]]:
    from torchvision import models

    def images(size: int, *extra: int) -> Callable[[nn.Module], tuple[Any, ...]]:
        return lambda model: (torch.randn(1, 3, *extra, size, size),)

    sequences = (torch.randn(2, 7, 16), torch.randn(2, 5, 16))
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    hosts = (
        Host("nn.Transformer", lambda: nn.Transformer(16, 2, 2, 2, 32, batch_first=True), lambda m: sequences),
        Host("nn.TransformerEncoder", lambda: nn.TransformerEncoder(layer, 2), lambda m: sequences[:1]),
        Host("nn.MultiheadAttention", lambda: nn.MultiheadAttention(16, 2), lambda m: sequences[:1] * 3),
        Host("vit_b_16", lambda: models.VisionTransformer(32, 8, 2, 4, 32, 64), images(32)),
        Host("swin_t", models.swin_t, images(64)),
        Host("swin_v2_t", models.swin_v2_t, images(64)),
        Host("maxvit_t", models.maxvit_t, images(224)),
        Host("mvit_v1_b", models.video.mvit_v1_b, images(224, 16)),
        Host("swin3d_t", models.video.swin3d_t, images(64, 4)),
    )
    return {host.name: partial(Host, *host) for host in hosts}


_VIT_PYTORCH: Mapping[str, Any] = {
    "image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64,
    "dim_head": 16, "cls_depth": 1, "max_tokens_per_depth": (8, 8), "num_residual_streams": 2,
    "num_register_tokens": 2, "num_memories_per_layer": 2, "k": 8,
}  # fmt: skip


def _vit_pytorch() -> dict[str, Callable[[], Host]]:
    """The image transformer of every module whose constructor has the usual arguments."""
    vit_pytorch = importlib.import_module("vit_pytorch")  # optional

    hosts: dict[str, Callable[[], Host]] = {}
    for entry in pkgutil.iter_modules(vit_pytorch.__path__):
        try:
            module = importlib.import_module(f"vit_pytorch.{entry.name}")
        except ImportError:  # packages that only a few modules need
            continue
        for name, kind in vars(module).items():
            is_defined_here = inspect.isclass(kind) and kind.__module__ == module.__name__
            parameters = inspect.signature(kind).parameters if is_defined_here else {}
            if not {"image_size", "num_classes"} <= parameters.keys():
                continue
            if not any(word in name.lower() for word in ("1d", "3d", "nd", "video", "vivit")):
                options = {key: value for key, value in _VIT_PYTORCH.items() if key in parameters}
                hosts[entry.name] = partial(
                    Host, name, partial(kind, **options), lambda m: (torch.randn(1, 3, 32, 32),)
                )
    return hosts


def _x_transformers() -> dict[str, Callable[[], Host]]:
    x = importlib.import_module("x_transformers")

    def text(layers: Any, **options: Any) -> nn.Module:
        sizes = {"dim": 32, "depth": 2, "heads": 2, "attn_dim_head": 16}
        return x.TransformerWrapper(num_tokens=100, max_seq_len=32, attn_layers=layers(**sizes, **options))

    switches: dict[str, dict[str, Any]] = {
        "decoder": {}, "flash": {"attn_flash": True}, "rotary": {"rotary_pos_emb": True},
        "alibi": {"alibi_pos_bias": True}, "grouped heads": {"attn_kv_heads": 1}, "qk norm": {"attn_qk_norm": True},
        "talking heads": {"attn_pre_talking_heads": True}, "relative positions": {"rel_pos_bias": True},
    }  # fmt: skip
    ids = torch.randint(0, 100, (2, 9))
    hosts: dict[str, Callable[[], Host]]
    hosts = {n: partial(Host, n, partial(text, x.Decoder, **given), lambda m: (ids,)) for n, given in switches.items()}
    hosts["encoder"] = partial(Host, "encoder", partial(text, x.Encoder), lambda m: (ids,))
    sizes = {"num_tokens": 100, "depth": 2, "heads": 2, "max_seq_len": 32}
    both = {f"{part}_{name}": size for part in ("enc", "dec") for name, size in sizes.items()}
    hosts["XTransformer"] = partial(Host, "XTransformer", partial(x.XTransformer, dim=32, **both), lambda m: (ids, ids))
    return hosts


def _open_clip() -> dict[str, Callable[[], Host]]:
    open_clip = importlib.import_module("open_clip")

    image = {"image_size": 32, "patch_size": 8, "width": 64, "layers": 2, "head_width": 32}
    text = {"context_length": 9, "vocab_size": 100, "width": 64, "heads": 2, "layers": 2}
    pooled = {"attentional_pool": True, "attn_pooler_heads": 2}
    captions = {**text, "embed_cls": True, "output_tokens": True, "eos_id": 99, "pad_id": 0}

    def host(name: str, kind: Any, *parts: Any) -> Host:
        inputs = torch.randn(2, 3, 32, 32), torch.randint(1, 99, (2, 9 if kind is open_clip.CLIP else 8))
        return Host(name, partial(kind, 64, *parts), lambda m: inputs)

    return {
        "ViT": partial(host, "CLIP", open_clip.CLIP, image, text),
        "ViT, attentional pool": partial(host, "CLIP", open_clip.CLIP, {**image, **pooled}, text),
        "ResNet": partial(host, "CLIP", open_clip.CLIP, {"image_size": 32, "width": 16, "layers": [1, 1, 1, 1]}, text),
        "CoCa": partial(host, "CoCa", open_clip.CoCa, text, captions, {**image, **pooled, "output_tokens": True}),
    }  # fmt: skip


def _sentence_transformers() -> dict[str, Callable[[], Host]]:
    library = importlib.import_module("sentence_transformers")
    import transformers

    def embedder() -> nn.Module:
        sizes: dict[str, Any] = {"vocab_size": 120, "hidden_size": 32, "intermediate_size": 64}
        sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]))
            transformers.BertTokenizer(str(Path(folder) / "vocab.txt")).save_pretrained(folder)
            transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(folder)
            model: nn.Module = library.SentenceTransformer(folder, device="cpu")
            return model

    mask = (torch.arange(9) < torch.tensor([9, 6])[:, None]).long()
    features = {"input_ids": torch.randint(3, 100, (2, 9)), "attention_mask": mask}
    return {"SentenceTransformer": partial(Host, "BERT, pooled", embedder, lambda m: (dict(features),))}


_LIBRARIES: dict[str, Callable[[], dict[str, Callable[[], Host]]]] = {
    "timm": _timm,
    "transformers": partial(_transformers, "sdpa"),
    "transformers, eager": partial(_transformers, "eager"),
    "torch": _torch,
    "open_clip": _open_clip,
    "vit-pytorch": _vit_pytorch,
    "x-transformers": _x_transformers,
    "sentence-transformers": _sentence_transformers,
}


# The report


def _read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records") if path.exists() else []
    return {(row["library"], row["family"]): {"assessed": "", **row} for row in rows}


def _markdown(rows: list[dict[str, Any]]) -> str:
    table = pd.DataFrame(rows).astype(str)
    table["ran"] = ~table["outcome"].isin(["not run", "no attention"])
    header = ["library", "converted", "of those that ran with attention", "refused, partly", "others", "assessed, of"]
    lines = ["# Which models can be converted", "", _verdict(table), ""]
    lines += [*(sys.modules[__name__].__doc__ or "").split("\n")[2:-1], ""]
    lines += [f"`python -m experiments.studies.coverage --library {'|'.join(_LIBRARIES)}`", ""]
    lines += [markdown_table(header, _summary(table))]
    for library, families in table.groupby("library", sort=False):
        lines += [f"## {library}", "", "<details>", f"<summary>{len(families)} families</summary>", ""]
        lines += [_families(families), "</details>", ""]
    return "\n".join(lines)


def _verdict(table: Any) -> str:
    """How many of the families with attention that ran are converted; each counts once, however it is called."""
    ran = table[table["ran"]].assign(called=table["library"].str.partition(",")[0])
    reached = ran.groupby(["called", "family"])["outcome"].last() == "converted"
    right, tried = _assessed_of(table)
    return (
        f"Of {len(reached)} families with attention that ran here, with random weights, {reached.sum()} are converted "
        "whole. The others are refused layer by layer, with the reason. "
        f"{tried} of the converted were assessed, too, and the report applied: {right} without an error."
    )


def _assessed_of(table: Any) -> tuple[int, int]:
    """How many were assessed without an error, and how many at all."""
    return (table["assessed"] == "yes").sum(), (table["assessed"] != "").sum()


def _summary(table: Any) -> Iterator[list[object]]:
    """A row for each library, and for each kind of its models that ran where it distinguishes them."""
    for library, families in table.groupby("library", sort=False):
        yield [library, *_counts(families)]
        for kind, group in families[families["ran"] & (families["kind"] != "")].groupby("kind", sort=False):
            yield [f"{library}, {kind}{'' if ',' in kind else ', with sdpa'}", *_counts(group)]


def _counts(group: Any) -> tuple[object, ...]:
    ran, reached, (right, tried) = group["ran"].sum(), (group["outcome"] == "converted").sum(), _assessed_of(group)
    return reached, ran, ran - reached, len(group) - ran, f"{right} of {tried}" if tried else ""


def _families(table: Any) -> str:
    ran, header = table[table["ran"]], ["family", "model", "layers", "outcome", "difference", "assessed", "note"]
    shown = ran.assign(layers=ran["converted"] + " of " + ran["layers"], difference=ran["error"])[header]
    text = markdown_table(header, shown.to_numpy(), left=("model", "outcome", "assessed", "note"))
    for outcome, words in (("not run", "Not run (coverage.csv says why)"), ("no attention", "Without attention")):
        if len(idle := table["family"][table["outcome"] == outcome]):
            text += f"\n{words}: {', '.join(idle)}.\n"
    return text


if __name__ == "__main__":
    run_functions(coverage, "studies.coverage")
