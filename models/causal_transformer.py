"""A small autoregressive transformer: the distribution of each next symbol."""

from collections.abc import Sequence

import torch
from torch import nn

from models.token_embedding import TokenEmbedding
from models.transformer_layer import AttentionFactory, transformer_layers

__all__ = ["CausalTransformer"]


class CausalTransformer(nn.Module):
    r"""A pre-norm transformer around any attention that takes a causal mask.

    .. math:: \mathrm{logits}_i = W\,\mathrm{norm}(f_L \circ \dots \circ f_1(\mathrm{embed}(t_{\le i})))_i + b

    Each row sees only its own prefix, so that with a Gaussian-process attention its uncertainty is that of the prompt.

    Args:
        vocabulary_size: number V of symbols.
        max_length: longest sequence.
        depth: number L of layers.
        embed_dim: width d of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        attention: factory `(embed_dim, num_heads) -> module`, or a sequence of them, one per layer; the module takes
            `is_causal`.
        dropout: probability of dropping an entry of the embedding and of each branch.

    Raises:
        ValueError: if the sizes do not fit together, or the number of factories is not the depth.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> sizes = {"depth": 1, "embed_dim": 8, "mlp_dim": 16, "num_heads": 2, "max_length": 20}
        >>> model = CausalTransformer(vocabulary_size=30, attention=SparseCGPAttention, **sizes)
        >>> model(torch.zeros(3, 5, dtype=torch.long)).shape
        torch.Size([3, 5, 30])
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        max_length: int,
        depth: int,
        embed_dim: int,
        mlp_dim: int,
        num_heads: int,
        attention: AttentionFactory | Sequence[AttentionFactory],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary_size=vocabulary_size, max_length=max_length, embed_dim=embed_dim)
        self.dropout = nn.Dropout(dropout)
        sizes = {"embed_dim": embed_dim, "mlp_dim": mlp_dim, "num_heads": num_heads, "dropout": dropout}
        self.layers = transformer_layers(attention, depth, **sizes)
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, vocabulary_size)

    def forward(
        self,
        tokens: torch.Tensor,  # shape: (*batch, n) int64
    ) -> torch.Tensor:  # shape: (*batch, n, V), or (S, *batch, n, V) where a layer draws S
        """Compute the logits of every next symbol: row i is for symbol i + 1."""
        x = self.dropout(self.embedding(tokens))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(
        self,
        prompt: torch.Tensor,  # shape: (*batch, n) int64
        count: int,
        *,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:  # shape: (*batch, n + count) int64
        """Continue a prompt, one symbol at a time, each drawn from the mean of the predictions if layers draw.

        Args:
            prompt: `(*batch, n)` int64, at least one symbol.
            count: number of symbols to add.
            generator: source of randomness for the symbols; None is torch's global one.

        Returns:
            `(*batch, n + count)`; beyond `max_length` the oldest symbols are no longer seen.
        """
        for _ in range(count):
            probabilities = self(prompt[..., -self.embedding.max_length :])[..., -1, :].softmax(-1)
            if probabilities.dim() > prompt.dim():
                probabilities = probabilities.mean(0)
            drawn = torch.multinomial(probabilities.reshape(-1, probabilities.shape[-1]), 1, generator=generator)
            prompt = torch.cat([prompt, drawn.view(*prompt.shape[:-1], 1)], -1)
        return prompt
