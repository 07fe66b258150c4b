"""Tiny models of every family, random weights from their configurations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from cgp.networks.convert import ConvertedHeads
from cgp.networks.model.inputs import call_model

BATCH = 3


class Host(NamedTuple):
    """A model, what it takes, and what of its output is compared."""

    model: nn.Module
    inputs: Any
    output: Callable[[Any], Tensor] = lambda out: getattr(out, "logits", out)

    def call(self, model: nn.Module) -> Tensor:
        """What is compared, of another model on the same inputs."""
        return self.output(call_model(model, self.inputs))

    @torch.no_grad()
    def run(self, model: nn.Module | None = None) -> Tensor:
        """The same without gradients, by default of the host itself."""
        return self.call(self.model if model is None else model)


def images(size: int = 16) -> Tensor:
    return torch.randn(BATCH, 3, size, size)


def spread(model: nn.Module) -> nn.Module:
    """Weights large enough that attention is far from uniform and no head is zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_((0.2 if parameter.dim() > 1 else 0.1) * torch.randn_like(parameter))
    return model.eval()


def padding(length: int, *real: int) -> Tensor:
    """True = real, in as many rows as numbers."""
    return torch.arange(length) < torch.tensor(real)[:, None]


def offers(kind: Callable[..., nn.Module], option: str) -> bool:
    """Whether the installed version of a library has an option."""
    return option in inspect.signature(kind).parameters


def torchvision_vit() -> Host:
    from torchvision.models import VisionTransformer

    return Host(spread(VisionTransformer(16, 4, 3, 2, 16, 32, num_classes=5)), images())


def timm_vit(name: str = "VisionTransformer", **options: Any) -> Host:
    kind = getattr(pytest.importorskip("timm.models"), name)
    sizes: dict[str, Any] = {
        "img_size": 16,
        "patch_size": 4,
        "embed_dim": 16,
        "depth": 3,
        "num_heads": 2,
        "num_classes": 5,
    }
    return Host(spread(kind(**sizes, **options)), images())


def timm_qk_norm() -> Host:
    timm = pytest.importorskip("timm")
    newer: dict[str, Any] = (
        {"scale_attn_norm": True} if offers(timm.models.VisionTransformer, "scale_attn_norm") else {}
    )
    return timm_vit(qk_norm=True, norm_layer=timm.layers.RmsNorm, reg_tokens=2, init_values=0.5, **newer)


def timm_deit() -> Host:
    return timm_vit("VisionTransformerDistilled")


def timm_eva(**options: Any) -> Host:
    return timm_vit("Eva", **{"use_rot_pos_emb": True, "qkv_fused": True, **options})


def timm_eva_separate() -> Host:
    # without qk_norm, registers and positions of timm 1.0.15 do not fit
    newer = {"qk_norm": True, "num_reg_tokens": 2} if offers(pytest.importorskip("timm.models").Eva, "qk_norm") else {}
    return timm_eva(qkv_fused=False, scale_attn_inner=True, **newer)


def transformers_vit(name: str = "ViT", **options: Any) -> Host:
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 16, "patch_size": 4}
    options = options or {"intermediate_size": 32}
    config = getattr(pytest.importorskip("transformers"), f"{name}Config")(**sizes, **options, num_labels=5)
    model = getattr(pytest.importorskip("transformers"), f"{name}ForImageClassification")(config)
    return Host(spread(model), {"pixel_values": images()})


def transformers_dinov2() -> Host:
    return transformers_vit("Dinov2WithRegisters", mlp_ratio=2, num_register_tokens=2)


def _text_inputs(length: int = 7) -> dict[str, Tensor]:
    ids = torch.randint(3, 40, (BATCH, length))
    return {"input_ids": ids, "attention_mask": padding(length, length, 4, 2).long()}


def transformers_bert(implementation: str = "sdpa") -> Host:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, num_labels=5, attn_implementation=implementation,
    )  # fmt: skip
    return Host(spread(transformers.BertForSequenceClassification(config)), _text_inputs())


def torch_encoder(*, batch_first: bool = True, norm_first: bool = False, bias: bool = True) -> Host:
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, batch_first=batch_first, norm_first=norm_first, bias=bias, activation="gelu"
    )
    nested = batch_first and bias and not norm_first
    model = spread(nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested))
    x, real = torch.randn(BATCH, 7, 16), padding(7, 7, 4, 2)
    inputs: dict[str, Any] = {"src": x if batch_first else x.transpose(0, 1), "src_key_padding_mask": ~real}
    return Host(model, inputs, lambda out: (out if batch_first else out.transpose(0, 1))[real])


def torch_encoder_sequence_first() -> Host:
    return torch_encoder(batch_first=False, norm_first=True, bias=False)


def torch_attention() -> Host:
    model = spread(nn.MultiheadAttention(16, 2, batch_first=True))
    x = torch.randn(BATCH, 7, 16)
    inputs = {"query": x, "key": x, "value": x, "key_padding_mask": ~padding(7, 7, 4, 2), "need_weights": False}
    return Host(model, inputs, lambda out: out[0])


def decoder(name: str, attention: str = "sdpa", **options: Any) -> Host:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32,
        "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**{**sizes, **options}, attn_implementation=attention)
    names = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
    model = getattr(transformers, names.get(name, f"{name}ForCausalLM"))(config)
    inputs = _text_inputs(9)
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)  # decoders are padded on the left
    inputs["attention_mask"][:, -2:] = 1
    real = inputs["attention_mask"].bool()
    return Host(spread(model), inputs, lambda out: out.logits[real])


def llama() -> Host:
    """Grouped heads."""
    return decoder("Llama", num_key_value_heads=2)


def mistral() -> Host:
    """Grouped heads in windows."""
    return decoder("Mistral", num_key_value_heads=2, sliding_window=3)


def gemma() -> Host:
    """Heads wider than the model divided by their number."""
    return decoder("Gemma", num_key_value_heads=1, head_dim=8)


def gpt2() -> Host:
    return decoder("GPT2")


def encoder_decoder(name: str, **options: Any) -> Host:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(vocab_size=40, d_model=16, decoder_start_token_id=0, **options)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)  # sdpa; older T5 has eager attention only
    inputs = {**_text_inputs(), "decoder_input_ids": torch.randint(3, 40, (BATCH, 5))}
    return Host(spread(model), inputs)


def bart() -> Host:
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return encoder_decoder("Bart", **sizes, **heads, max_position_embeddings=32)


def t5() -> Host:
    """A bias by relative position."""
    return encoder_decoder("T5", d_ff=32, d_kv=8, num_layers=1, num_decoder_layers=2, num_heads=2)


def timm_swin() -> Host:
    """Windows with a bias by relative position."""
    timm = pytest.importorskip("timm")
    sizes: dict[str, Any] = {
        "img_size": 16,
        "patch_size": 2,
        "embed_dim": 8,
        "depths": (1, 2),
        "num_heads": (2, 4),
        "window_size": 4,
    }
    model = timm.models.SwinTransformer(**sizes, num_classes=5)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = True
    return Host(spread(model), images())


class Own(nn.Module):
    """Somebody's own attention: values of another width, a scale, a helper function."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        self.maps = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 6), nn.Linear(6, 16)])

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (m(tokens).unflatten(-1, (2, -1)).transpose(1, 2) for m in list(self.maps)[:3])
        return tokens + self.maps[3](_attend(q, k, v).transpose(1, 2).flatten(-2))


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, scale=0.1)


def custom() -> Host:
    return Host(spread(nn.Sequential(Own(), Own())), torch.randn(BATCH, 7, 16))


def torch_transformer() -> Host:
    model = spread(nn.Transformer(16, 2, 1, 2, 32, batch_first=True))
    inputs: dict[str, Any] = {"src": torch.randn(BATCH, 7, 16), "tgt": torch.randn(BATCH, 5, 16)}
    inputs |= {"src_key_padding_mask": ~padding(7, 7, 4, 2), "memory_key_padding_mask": ~padding(7, 7, 4, 2)}
    inputs |= {"tgt_mask": torch.ones(5, 5).triu(1).bool(), "tgt_is_causal": True}
    return Host(model, inputs)


def wide_attention() -> Host:
    """Keys and values of widths of their own."""
    model = spread(nn.MultiheadAttention(16, 2, kdim=6, vdim=10, batch_first=True))
    inputs = {"query": torch.randn(BATCH, 7, 16), "key": torch.randn(BATCH, 5, 6), "value": torch.randn(BATCH, 5, 10)}
    return Host(model, inputs, lambda out: out[0])


ENCODERS = (
    torchvision_vit, timm_vit, timm_qk_norm, timm_deit, timm_eva, timm_eva_separate, transformers_vit,
    transformers_dinov2, transformers_bert, torch_encoder, torch_encoder_sequence_first, torch_attention, timm_swin,
    custom, wide_attention,
)  # fmt: skip
DECODERS = (llama, mistral, gemma, gpt2)
HOSTS = (*ENCODERS, *DECODERS, bart, t5, torch_transformer)


def heads_of(model: nn.Module) -> list[ConvertedHeads]:
    return [module for module in model.modules() if isinstance(module, ConvertedHeads)]


def watched(model: nn.Module, mode: str = "marginal", layer: ConvertedHeads | None = None) -> list[Any]:
    """Let the first converted layer draw, or another; the posteriors that it will be asked for."""
    heads: Any = layer or heads_of(model)[0]
    heads.sampling, gaussian = mode, heads.gaussian
    seen: list[Any] = []

    def keep(inputs: Any) -> Any:
        seen.append(gaussian(inputs))
        return seen[-1]

    heads.gaussian = keep
    return seen
