"""A transformer that classifies, or regresses, texts of any length."""

from collections.abc import Sequence

import torch
from torch import nn

from models.token_embedding import TokenEmbedding
from models.transformer_layer import AttentionFactory, transformer_layers

__all__ = ["TextTransformer"]


class TextTransformer(nn.Module):
    r"""A pre-norm transformer around any attention, over padded sequences.

    .. math:: \mathrm{logits} = W\,\frac1{|R|}\sum_{i \in R} x_i + b, \qquad
        x = \mathrm{norm}(f_L \circ \dots \circ f_1(\mathrm{embed}(t)))

    with R the real tokens. A padded token changes nothing.

    Args:
        vocabulary_size: number of symbols; None for precomputed embeddings.
        input_dim: width of precomputed (contextual) embeddings; None for symbols.
        max_length: longest sequence.
        num_classes: number of classes, or of outputs.
        depth: number L of layers.
        embed_dim: width d of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        attention: factory `(embed_dim, num_heads) -> module`, or a sequence of them, one per layer; the module takes
            `key_padding_mask`.
        dropout: probability of dropping an entry of the embedding and of each branch.

    Raises:
        ValueError: if the sizes do not fit together, or the number of factories is not the depth.

    Reference: SGPA and KEP-SVGP's text models: KEP-SVGP, appendix C.1.

    Example:
        >>> from cgp import SoftmaxAttention
        >>> sizes = {"depth": 1, "embed_dim": 8, "mlp_dim": 16, "num_heads": 2, "max_length": 20}
        >>> model = TextTransformer(vocabulary_size=100, num_classes=2, attention=SoftmaxAttention, **sizes)
        >>> padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        >>> model(torch.zeros(2, 5, dtype=torch.long), padding).shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        *,
        vocabulary_size: int | None = None,
        input_dim: int | None = None,
        max_length: int,
        num_classes: int,
        depth: int,
        embed_dim: int,
        mlp_dim: int,
        num_heads: int,
        attention: AttentionFactory | Sequence[AttentionFactory],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(
            vocabulary_size=vocabulary_size, input_dim=input_dim, max_length=max_length, embed_dim=embed_dim
        )
        self.dropout = nn.Dropout(dropout)
        sizes = {"embed_dim": embed_dim, "mlp_dim": mlp_dim, "num_heads": num_heads, "dropout": dropout}
        self.layers: nn.ModuleList = transformer_layers(attention, depth, **sizes)
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(
        self,
        tokens: torch.Tensor,  # shape: (*batch, n) int64, or (*batch, n, input_dim)
        padding_mask: torch.Tensor | None = None,  # shape: (*batch, n), True = padding
    ) -> torch.Tensor:  # shape: (*batch, classes), or (S, *batch, classes) where a layer draws S
        """Compute the logits."""
        x = self.dropout(self.embedding(tokens))
        if padding_mask is not None:
            x = x.masked_fill(padding_mask[..., None], 0.0)
        for layer in self.layers:
            x = layer(x, key_padding_mask=padding_mask)
        return self.head(_mean_of_real(self.norm(x), padding_mask))


def _mean_of_real(x: torch.Tensor, padding_mask: torch.Tensor | None) -> torch.Tensor:
    if padding_mask is None:
        return x.mean(-2)
    real = ~padding_mask[..., None]
    return x.masked_fill(~real, 0.0).sum(-2) / real.sum(-2).clamp(min=1)
