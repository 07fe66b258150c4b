"""Tiny models of every family, random weights from their configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

BATCH = 3


class Host(NamedTuple):
    """A model, what it takes, and what of its output is compared."""

    model: nn.Module
    inputs: Any
    output: Callable[[Any], Tensor]


def images(size: int = 16) -> Tensor:
    return torch.randn(BATCH, 3, size, size)


def spread(model: nn.Module) -> nn.Module:
    """Weights large enough that attention is far from uniform and no head is zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def tensor(output: Any) -> Tensor:
    return output


def logits(output: Any) -> Tensor:
    return output.logits


def padding(length: int, *real: int) -> Tensor:
    """True = real, in as many rows as numbers."""
    return torch.arange(length) < torch.tensor(real)[:, None]


def torchvision_vit() -> Host:
    from torchvision.models import VisionTransformer

    return Host(spread(VisionTransformer(16, 4, 3, 2, 16, 32, num_classes=5)), images(), tensor)


def timm_vit(**options: Any) -> Host:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 5}
    return Host(spread(timm.models.VisionTransformer(**sizes, **options)), images(), tensor)


def timm_qk_norm() -> Host:
    from timm.layers import RmsNorm

    return timm_vit(qk_norm=True, norm_layer=RmsNorm, scale_attn_norm=True, reg_tokens=2, init_values=0.5)


def timm_deit() -> Host:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 5}
    return Host(spread(timm.models.deit.VisionTransformerDistilled(**sizes)), images(), tensor)


def timm_eva(**options: Any) -> Host:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 5}
    options = {"use_rot_pos_emb": True, "qkv_fused": True, **options}
    return Host(spread(timm.models.eva.Eva(**sizes, **options)), images(), tensor)


def timm_eva_separate() -> Host:
    return timm_eva(qkv_fused=False, scale_attn_inner=True, qk_norm=True, num_reg_tokens=2)


def timm_rope() -> Host:
    return timm_eva(attn_type="rope", rope_rotate_half=True, use_abs_pos_emb=False)


def _vision_sizes() -> dict[str, Any]:
    return {
        "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 16, "patch_size": 4,
        "num_labels": 5,
    }  # fmt: skip


def transformers_vit() -> Host:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(**_vision_sizes(), intermediate_size=32)
    return Host(spread(transformers.ViTForImageClassification(config)), {"pixel_values": images()}, logits)


def transformers_dinov2() -> Host:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.Dinov2Config(**_vision_sizes(), mlp_ratio=2)
    return Host(spread(transformers.Dinov2ForImageClassification(config)), {"pixel_values": images()}, logits)


def transformers_dinov2_with_registers() -> Host:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.Dinov2WithRegistersConfig(**_vision_sizes(), mlp_ratio=2, num_register_tokens=2)
    model = transformers.Dinov2WithRegistersForImageClassification(config)
    return Host(spread(model), {"pixel_values": images()}, logits)


def _text_inputs(length: int = 7) -> dict[str, Tensor]:
    ids = torch.randint(3, 40, (BATCH, length))
    return {"input_ids": ids, "attention_mask": padding(length, length, 4, 2).long()}


def _text(name: str, implementation: str) -> Host:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = getattr(transformers, f"{name}Config")(
        vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, num_labels=5, attn_implementation=implementation,
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    return Host(spread(model), _text_inputs(), logits)


def transformers_bert() -> Host:
    return _text("Bert", "sdpa")


def transformers_bert_eager() -> Host:
    return _text("Bert", "eager")


def transformers_roberta() -> Host:
    return _text("Roberta", "sdpa")


def torch_encoder(*, batch_first: bool = True, norm_first: bool = False, bias: bool = True) -> Host:
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, batch_first=batch_first, norm_first=norm_first, bias=bias, activation="gelu"
    )
    nested = batch_first and bias and not norm_first
    model = spread(nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested))
    x, real = torch.randn(BATCH, 7, 16), padding(7, 7, 4, 2)
    inputs = {"src": x if batch_first else x.transpose(0, 1), "src_key_padding_mask": ~real}
    return Host(model, inputs, lambda out: (out if batch_first else out.transpose(0, 1))[real])


def torch_encoder_sequence_first() -> Host:
    return torch_encoder(batch_first=False)


def torch_encoder_norm_first() -> Host:
    return torch_encoder(norm_first=True, bias=False)


def torch_attention() -> Host:
    model = spread(nn.MultiheadAttention(16, 2, batch_first=True))
    x = torch.randn(BATCH, 7, 16)
    inputs = {"query": x, "key": x, "value": x, "key_padding_mask": ~padding(7, 7, 4, 2), "need_weights": False}
    return Host(model, inputs, lambda out: out[0])


HOSTS = (
    torchvision_vit, timm_vit, timm_qk_norm, timm_deit, timm_eva, timm_eva_separate, timm_rope, transformers_vit,
    transformers_dinov2, transformers_dinov2_with_registers, transformers_bert, transformers_bert_eager,
    transformers_roberta, torch_encoder, torch_encoder_sequence_first, torch_encoder_norm_first, torch_attention,
)  # fmt: skip
