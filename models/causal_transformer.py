"""A small autoregressive transformer: the distribution of each next symbol."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from cgp.attention import Attention, decoding
from cgp.attention.decoding import BlockState, Decoded
from models.token_embedding import TokenEmbedding
from models.transformer_layer import AttentionFactory, transformer_layers

__all__ = ["CausalTransformer", "DecodingState", "DecodingStep"]


class DecodingState(NamedTuple):
    """What is kept of the symbols so far.

    Attributes:
        length: their number.
        layers: state of each layer's attention; of fixed size for sparse Gaussian-process attention.
    """

    length: int
    layers: tuple[BlockState, ...]


class DecodingStep(NamedTuple):
    """The predictions after new symbols.

    Attributes:
        logits: `(*batch, n, V)`, or `(S, *batch, n, V)` where a layer draws S; row i is for the symbol after i.
        variances: of each layer's heads, `(*batch, h, n)`; None for a deterministic layer.
        state: with the new symbols in it.
    """

    logits: torch.Tensor
    variances: tuple[torch.Tensor | None, ...]
    state: DecodingState


class CausalTransformer(nn.Module):
    r"""A pre-norm transformer around any attention that takes a causal mask.

    .. math:: \mathrm{logits}_i = W\,\mathrm{norm}(f_L \circ \dots \circ f_1(\mathrm{embed}(t_{\le i})))_i + b

    Each row sees its own prefix alone, so that with a Gaussian-process attention its uncertainty is that of the prompt.

    Args:
        vocabulary_size: number V of symbols.
        max_length: longest sequence.
        depth: number L of layers.
        embed_dim: width d of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        attention: factory `(embed_dim, num_heads) -> module`, or a sequence of them, one a layer; the module takes
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
        """Compute the logits of every next symbol.

        Args:
            tokens: symbols `(*batch, n)` int64.

        Returns:
            `(*batch, n, V)`, or `(S, *batch, n, V)` where a layer draws S samples; row i is for symbol i + 1.
        """
        x = self.dropout(self.embedding(tokens))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.head(self.norm(x))

    @property
    def can_decode(self) -> bool:
        """Whether every layer's attention steps from symbol to symbol."""
        return all(decoding.can_decode(layer.attention) for layer in self.layers)

    def initial_state(self) -> DecodingState:
        """The state before the first symbol."""
        return DecodingState(0, tuple(decoding.initial_state(layer.attention) for layer in self.layers))

    def prefill(
        self,
        tokens: torch.Tensor,  # shape: (*batch, n) int64
    ) -> DecodingStep:
        """Compute the logits as `forward` does, and the state after the last symbol.

        Args:
            tokens: symbols `(*batch, n)` int64.

        Returns:
            Logits of n rows, variances, state.
        """
        return self._decode(tokens, self.initial_state(), lambda block, _, x: decoding.prefill(block, x))

    def decode_step(
        self,
        tokens: torch.Tensor,  # shape: (*batch, 1) int64
        state: DecodingState,
    ) -> DecodingStep:
        """Compute the next row of `forward` from the state alone.

        With sparse Gaussian-process attention the time does not depend on how many symbols came before.

        Args:
            tokens: the next symbol, `(*batch, 1)` int64.
            state: of the symbols before it.

        Returns:
            Logits of one row, variances, state.
        """
        return self._decode(tokens, state, decoding.step)

    def _decode(
        self,
        tokens: torch.Tensor,
        state: DecodingState,
        attend: Callable[[Attention, BlockState, torch.Tensor], Decoded],
    ) -> DecodingStep:
        """Run the layers with a state each."""
        x = self.dropout(self.embedding(tokens, state.length))
        variances, states = [], []
        for layer, before in zip(self.layers, state.layers, strict=True):
            decoded = attend(layer.attention, before, layer.attention_norm(x))
            x = x + layer.dropout(decoded.output)
            x = x + layer.dropout(layer.mlp(layer.mlp_norm(x)))
            variances.append(decoded.variance)
            states.append(decoded.state)
        after = DecodingState(state.length + tokens.shape[-1], tuple(states))
        return DecodingStep(self.head(self.norm(x)), tuple(variances), after)

    @torch.no_grad()
    def generate(
        self,
        prompt: torch.Tensor,  # shape: (*batch, n) int64
        count: int,
        *,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:  # shape: (*batch, n + count) int64
        """Continue a prompt, one symbol at a time, each drawn from the mean of the predictions if layers draw.

        Up to `max_length` symbols each step continues from the state of the one before, draws included; beyond it the
        window moves, all positions change, and each step is a full forward pass over the window.

        Args:
            prompt: `(*batch, n)` int64, at least one symbol.
            count: number of symbols to add.
            generator: source of randomness for the symbols; None is torch's global one.

        Returns:
            `(*batch, n + count)`; beyond `max_length` the oldest symbols are no longer seen.
        """
        state = None
        for _ in range(count):
            logits, state = self._next_logits(prompt, state)
            probabilities = logits[..., -1, :].softmax(-1)
            if probabilities.dim() > prompt.dim():
                probabilities = probabilities.mean(0)
            drawn = torch.multinomial(probabilities.reshape(-1, probabilities.shape[-1]), 1, generator=generator)
            prompt = torch.cat([prompt, drawn.reshape(*prompt.shape[:-1], 1)], -1)
        return prompt

    def _next_logits(
        self, prompt: torch.Tensor, state: DecodingState | None
    ) -> tuple[torch.Tensor, DecodingState | None]:
        """Logits that end with the row of the last symbol, by the shortest way there is."""
        if not self.can_decode or prompt.shape[-1] > self.embedding.max_length:
            return self(prompt[..., -self.embedding.max_length :]), None
        step = self.prefill(prompt) if state is None else self.decode_step(prompt[..., -1:], state)
        return step.logits, step.state
