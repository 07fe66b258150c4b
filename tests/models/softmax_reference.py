"""A plain attention for the models' tests, and the vision transformer by hand."""

import torch
import torch.nn.functional as F
from torch import nn

from models import VisionTransformer


class PlainAttention(nn.Module):
    """Multi-head softmax attention, written out."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend by an explicit softmax."""
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.output((weights @ v).transpose(-3, -2).flatten(-2))


class DrawingAttention(PlainAttention):
    """Softmax attention that returns S noisy copies of its output."""

    num_samples = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, and draw."""
        mean = super().forward(x)
        return mean + 0.1 * torch.randn(self.num_samples, *mean.shape, dtype=mean.dtype)


def logits_by_hand(model: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
    """The model in eval mode, from its state dict and library functions alone."""
    w = dict(model.state_dict())
    size, patch = images.shape[-1], model.embedding.patch_size
    x = F.unfold(images, patch, stride=patch).mT  # (B, n, C p^2)
    assert x.shape[1] == (size // patch) ** 2
    x = x @ w["embedding.projection.weight"].T + w["embedding.projection.bias"]
    x = x + w["embedding.positions"]
    for index in range(len(model.layers)):
        x = _layer_by_hand({k.split(".", 2)[2]: v for k, v in w.items() if k.startswith(f"layers.{index}.")}, x)
    x = F.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"])
    if "pooling.score.weight" in w:
        score = torch.softmax(x @ w["pooling.score.weight"][0] + w["pooling.score.bias"], 1)
        x = torch.einsum("bn,bnd->bd", score, x)
    else:
        x = x.sum(1) / x.shape[1]
    return F.linear(x, w["head.weight"], w["head.bias"])


def _layer_by_hand(w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """One pre-norm layer with four heads, by `scaled_dot_product_attention`."""
    batch, n, d = x.shape
    z = F.layer_norm(x, (d,), w["attention_norm.weight"], w["attention_norm.bias"])
    qkv = F.linear(z, w["attention.qkv.weight"], w["attention.qkv.bias"])
    q, k, v = qkv.reshape(batch, n, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
    z = F.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).reshape(batch, n, d)
    x = x + F.linear(z, w["attention.output.weight"], w["attention.output.bias"])
    z = F.layer_norm(x, (d,), w["mlp_norm.weight"], w["mlp_norm.bias"])
    z = F.gelu(F.linear(z, w["mlp.0.weight"], w["mlp.0.bias"]))
    return x + F.linear(z, w["mlp.3.weight"], w["mlp.3.bias"])
