"""Base class of attention blocks: projections, heads, masks, sampling, frozen factors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Self, SupportsIndex

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor, nn

from cgp.functional.correlated import ObservedKeys
from cgp.functional.gaussians import SAMPLING, check_sampling
from cgp.functional.linalg import may_read
from cgp.functional.padding import mask_tokens
from cgp.spelling import listed, meant

from .inputs import AttentionInputs, EncodedKeys, full_precision
from .masks import MaskReading, check_key_noise, check_padding, read_masks

__all__ = ["MIN_NOISE", "Attention", "FreezableModule", "SamplingMixin"]

MIN_NOISE = 1e-6
_OPTIONS = (  # that a block's repr says
    "coupling",
    "mean",
    "kernel",
    "symmetric",
    "num_inducing",
    "approximation",
    "inducing",
    "branches",
    "noise",
    "objective",
)


class SamplingMixin:
    """For modules that can draw.

    Attributes:
        stochastic: whether the module can draw at all.
        num_samples: S, number of draws, a leading dimension of the output; None is one draw without that dimension.
    """

    stochastic: bool = True
    num_samples: int | None = None
    training: bool
    _sampling: str | None = None

    @property
    def sampling(self) -> str:
        """What ``forward`` returns: the "mean", or a "marginal" or "joint" draw.

        If it is not set (None), "marginal" in training and "mean" in eval mode.
        """
        if self._sampling is not None:
            return self._sampling
        return "marginal" if self.training and self.stochastic else "mean"

    @sampling.setter
    def sampling(self, value: str | None) -> None:
        if value is not None:
            check_sampling(value, SAMPLING)
        self._sampling = value

    @property
    def draw_shape(self) -> torch.Size:
        """Leading shape of draws: ``num_samples`` if that is set and the module draws."""
        if self.num_samples is None or self.sampling == "mean":
            return torch.Size()
        if self.num_samples < 1:
            raise ValueError(f"num_samples: expected at least 1, or None for one draw, got {self.num_samples}")
        return torch.Size([self.num_samples])


class FreezableModule(gpytorch.Module):
    """A module that can keep matrix factors of its weights until the weights change."""

    def __init__(self) -> None:
        super().__init__()
        self._frozen: dict[str, Tensor] = {}

    def weight_factors(self) -> dict[str, Tensor]:
        """Factors that depend only on weights, by name; empty if the method has none."""
        return {}

    def freeze(self) -> None:
        """Compute :meth:`weight_factors` once, in eval mode; ``train()``, ``load_state_dict`` and ``to`` drop them."""
        if self.training:
            raise RuntimeError("freeze: expected a block in eval mode, got one in training mode")
        with torch.no_grad(), full_precision(next(self.parameters()).device):
            self._frozen = {name: factor.detach() for name, factor in self.weight_factors().items()}

    @property
    def is_frozen(self) -> bool:
        """Whether the module holds factors computed by :meth:`freeze`."""
        return bool(self._frozen)

    def frozen_factor(self, name: str) -> Tensor | None:
        """A factor computed by :meth:`freeze`, or None."""
        return self._frozen.get(name)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and drop frozen factors."""
        self._frozen = {}
        return super().train(mode)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._frozen = {}
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        self._frozen = {}
        return super()._apply(*args, **kwargs)


class _OptionsChecked:
    """Base of the classes whose unknown options are refused by the name of the class that was called."""

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """The object; raise TypeError for options that its class does not have, before any of its bases is called."""
        unknown = [name for name in options if not _takes(cls, name)]
        if unknown:
            others = sorted({other.__name__ for other in _without_subclasses(Attention) if _takes(other, unknown[0])})
            known = [name for name in inspect.signature(cls).parameters if name not in ("embed_dim", "num_heads")]
            near = meant(unknown[:1], known) or f"; its options are {listed(known)}"
            near = f"; it is an option of {listed(others)}" if others else near
            raise TypeError(f"{cls.__name__}: unexpected option {unknown[0]!r}{near}")
        return super().__new__(cls)


class Attention(SamplingMixin, FreezableModule, _OptionsChecked):
    r"""Base of all attention blocks: :math:`X \mapsto [\text{head}_1, \dots, \text{head}_h]\,W_{\text{out}}`.

    A subclass names its processes and turns :class:`AttentionInputs` into head outputs. It takes the arguments below;
    its docstring lists only the additional ones.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d; each head has width s = d / h.
        processes: names of the projections, among "query" (omitted if queries use the keys' map), "key", "value" and
            "latent".
        dropout: probability with which a channel of the heads' outputs is zero in training. (The weights of a posterior
            cannot be dropped: what is left is no posterior.)

    Attributes:
        takes_any_mask: whether the block accepts any ``attn_mask``, not only padding or a causal one.
        takes_causal: whether the block accepts a causal mask.
        stochastic: whether the block can draw.
        weighs_values: whether the mean is a weighted sum of the values.
        queries_of_keys: whether cross-attention maps the keys' tokens as queries, too.

    Raises:
        ValueError: if the sizes are not positive or the heads do not divide the width.
    """

    takes_any_mask = False
    takes_causal = False
    stochastic = False
    weighs_values = False
    queries_of_keys = False
    batch_first, _qkv_same_embed_dim = True, False  # torch.nn.TransformerEncoderLayer asks for them

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        processes: tuple[str, ...] = ("query", "key", "value"),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = embed_dim, num_heads
        if not all(isinstance(size, SupportsIndex) for size in sizes) or min(sizes) < 1 or embed_dim % num_heads:
            raise ValueError(
                f"embed_dim, num_heads: expected positive sizes with num_heads dividing embed_dim, "
                f"got {embed_dim!r} and {num_heads!r}"
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.processes = processes
        self.in_proj = nn.Linear(embed_dim, len(processes) * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self._reset_projections()

    def extra_repr(self) -> str:
        """The sizes and the options of the class; of a noise that is learned, its present mean over the heads."""
        canonical, noise = getattr(self, "canonical", None), getattr(self, "noise", None)
        if isinstance(noise, Tensor):
            noise = float(noise.detach().mean()) if may_read(noise) else None
        said = {"kernel": canonical and canonical.name, "noise": noise and float(f"{noise:.3g}")}
        values = {name: said.get(name, getattr(self, name, None)) for name in _OPTIONS if _takes(type(self), name)}
        sizes = {"embed_dim": self.embed_dim, "num_heads": self.num_heads}
        return ", ".join(f"{name}={value!r}" for name, value in (sizes | values).items() if value is not None)

    __call__ = nn.Module.__call__  # gpytorch.Module's skips forward hooks, on which converters and tracers rely

    def _reset_projections(self) -> None:
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | EncodedKeys | None = None,
        value: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        query_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        key_noise: Tensor | None = None,
        need_weights: bool | None = None,
    ) -> Any:
        """Attend: self-attention of ``query``, or cross-attention with ``key`` and ``value``.

        Args:
            query: tokens, ``(*batch, Nq, d)``.
            key: tokens, ``(*batch, Nk, d)``, or what :meth:`encode` made of them; None for self-attention.
            value: tokens, ``(*batch, Nk, d)``; None stands for ``key``.
            key_padding_mask: ``(*batch, Nk)`` bool, True = padding; in self-attention it also masks the queries.
            query_padding_mask: ``(*batch, Nq)`` bool, True = padding; for cross-attention only.
            attn_mask: ``(Nq, Nk)`` or broadcastable to ``(*batch, h, Nq, Nk)``; bool, True = not attended, as in
                :class:`torch.nn.MultiheadAttention`, or an additive float.
            is_causal: whether token t sees only the tokens up to t.
            key_noise: variance of the noise of each key, ``(*batch, Nk)``, instead of the block's; of blocks that have
                ``takes_key_noise``.
            need_weights: for callers of :class:`torch.nn.MultiheadAttention`, which returns a pair: the tokens, and
                the weights of the mean, averaged over heads (True, of blocks with ``weighs_values``), or None (False).

        Returns:
            Tokens ``(*batch, Nq, d)``; ``(S, *batch, Nq, d)`` if ``num_samples`` is S and the block draws. A pair if
            ``need_weights`` is given; weights ``(*batch, Nq, Nk)``.

        Raises:
            ValueError: if weights are needed of a block that has none.
        """
        if need_weights and not self.weighs_values:
            raise ValueError(f"need_weights: {type(self).__name__} has no weights of its values; expected False")
        masks: dict[str, Any] = {"key_padding_mask": key_padding_mask, "query_padding_mask": query_padding_mask}
        masks |= {"attn_mask": attn_mask, "is_causal": is_causal, "key_noise": key_noise}
        tokens = self.project(query, key, value, **masks)
        attended = self.merge(self.attend(tokens), query.dtype)
        if need_weights is None:
            return attended
        return attended, self._weights(tokens).mean(-3).to(query.dtype) if need_weights else None

    @property
    def in_proj_bias(self) -> Tensor:
        """Biases of the input projection, by the name in :class:`torch.nn.MultiheadAttention`."""
        return self.in_proj.bias

    def _weights(self, tokens: AttentionInputs) -> Tensor:
        """Weights of the values in the mean, ``(*batch, h, Nq, Nk)``."""
        count = tokens.k.shape[-2]
        each = torch.eye(count, dtype=tokens.v.dtype, device=tokens.v.device).expand(*tokens.v.shape[:-1], count)
        with full_precision(tokens.q.device):
            return self.mean_heads(tokens._replace(v=each, observed=None))

    def mean_heads(self, tokens: AttentionInputs) -> Tensor:
        """Mean of the heads, ``(*batch, h, Nq, s)``."""
        return self.attend(tokens)

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """Head outputs ``(*batch, h, Nq, s)`` of projected tokens; draws are a leading dimension."""
        raise NotImplementedError

    def posterior(
        self, query: Tensor, key: Tensor | EncodedKeys | None = None, value: Tensor | None = None, **masks: Any
    ) -> MultivariateNormal:
        """The predictive distribution of the head outputs; a deterministic block raises TypeError."""
        raise TypeError(f"{type(self).__name__} is deterministic: it has no posterior")

    def token_variance(
        self, query: Tensor, key: Tensor | EncodedKeys | None = None, value: Tensor | None = None, **masks: Any
    ) -> Tensor:
        """Predictive variance of each token; a deterministic block raises TypeError."""
        raise TypeError(f"{type(self).__name__} is deterministic: it has no variance")

    @property
    def takes_key_noise(self) -> bool:
        """Whether the block accepts a noise for each key."""
        return False

    def encode(
        self,
        key: Tensor,
        value: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        key_noise: Tensor | None = None,
    ) -> EncodedKeys:
        """Project keys that many queries will attend to, and factorise them if the block does: ``block(query, keys)``.

        They give what the tokens themselves would. They hold the parameters of this moment, and their graph: encode
        again after a step of training.

        Args:
            key: tokens, ``(*batch, Nk, d)``.
            value: tokens, ``(*batch, Nk, d)``; None stands for ``key``.
            key_padding_mask: ``(*batch, Nk)`` bool, True = padding.
            key_noise: variance of the noise of each key, ``(*batch, Nk)``; None for the block's.

        Returns:
            The keys of any number of queries.

        Example:
            >>> import torch
            >>> from cgp import CGPAttention
            >>> block, contexts = CGPAttention(8, 2).eval(), torch.randn(3, 5, 8)
            >>> keys = block.encode(contexts)
            >>> torch.equal(block(torch.ones(3, 2, 8), keys), block(torch.ones(3, 2, 8), contexts))
            True
        """
        tokens = self.project(key, key, value, key_padding_mask=key_padding_mask, key_noise=key_noise)
        with full_precision(tokens.k.device):
            return EncodedKeys(tokens._replace(observed=self.observe(tokens)))

    def observe(self, tokens: AttentionInputs) -> ObservedKeys | None:
        """The keys as data of a posterior; None of a block that does not factorise them."""
        return None

    def project(
        self,
        query: Tensor,
        key: Tensor | EncodedKeys | None = None,
        value: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        query_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        key_noise: Tensor | None = None,
    ) -> AttentionInputs:
        """Project the tokens for every process, split them into heads and read the masks; arguments of :meth:`forward`.

        Returns:
            The projected tokens, in float32 at least, also under autocast.

        Raises:
            ValueError: if a shape does not fit, or the block does not accept a mask.
        """
        if isinstance(key, EncodedKeys):
            self._check_encoded(value, key_padding_mask, attn_mask, key_noise, is_causal)
            return self._ask(query, key.tokens, query_padding_mask)
        self._check_inputs(query, key, value)
        is_self = key is None
        if is_self and query_padding_mask is not None:
            raise ValueError(
                "query_padding_mask: expected it with key, got self-attention, which takes key_padding_mask"
            )
        memory = query if key is None else key
        masks = MaskReading(None, None, False)
        if is_causal or key_padding_mask is not None or attn_mask is not None:
            given = key_padding_mask, attn_mask, is_causal
            masks = read_masks(memory, query.shape[-2], *given, any_mask=self.takes_any_mask)
        if masks.is_causal and not self.takes_causal:
            name = "is_causal" if is_causal else "attn_mask"
            raise ValueError(
                f"{name}: {type(self).__name__} as configured is not defined under a causal mask; SoftmaxAttention, "
                "KernelAttention, and CGPAttention and SparseCGPAttention of direct coupling, are"
            )
        key_noise = self._read_key_noise(key_noise, memory, masks)
        of_queries = masks.key_padding if is_self else check_padding("query", query, query_padding_mask)
        query = query if of_queries is None else mask_tokens(query, of_queries)
        if masks.key_padding is not None:
            memory = query if is_self else mask_tokens(memory, masks.key_padding)
            value = value if value is None else mask_tokens(value, masks.key_padding)
        heads = self._project_heads(query, memory, value, is_self)
        return AttentionInputs(
            heads["query"],
            heads["key"],
            heads["value"],
            heads.get("latent"),
            _of_heads(of_queries),
            _of_heads(masks.key_padding),
            masks.attn_mask,
            masks.is_causal,
            _of_heads(key_noise),
            own=heads.get("own"),
        )

    def _read_key_noise(self, noise: Tensor | None, memory: Tensor, masks: MaskReading) -> Tensor | None:
        """The checked noise of each key, if it is given."""
        if noise is None:
            return None
        if not self.takes_key_noise or masks.is_causal:
            causal = " under a causal mask" if masks.is_causal else ""
            raise ValueError(f"key_noise: {type(self).__name__} as configured takes none{causal}")
        return check_key_noise(noise, memory, masks.key_padding, least=MIN_NOISE)

    def _check_encoded(self, *given: Tensor | bool | None) -> None:
        """Raise where a call with encoded keys has what belongs to them."""
        if any(argument is not None and argument is not False for argument in given):
            raise ValueError(
                "key: expected value, key_padding_mask and key_noise in the call of encode, and no mask over pairs, "
                "got one of them beside encoded keys"
            )

    def _ask(self, query: Tensor, keys: AttentionInputs, query_padding_mask: Tensor | None) -> AttentionInputs:
        """Projected queries beside encoded keys."""
        self._check_inputs(query, None, None)
        padding = check_padding("query", query, query_padding_mask)
        query = query if padding is None else mask_tokens(query, padding)
        process = "query" if "query" in self.processes else "key"
        heads = self._split(nn.functional.linear(query, *self._maps()[process]))
        return keys._replace(q=heads, query_padding=_of_heads(padding))

    def merge(self, heads: Tensor, dtype: torch.dtype) -> Tensor:
        """Concatenate heads ``(*batch, h, N, s)`` and apply the output projection, ``(*batch, N, d)`` in ``dtype``."""
        return self.out_proj(self.dropout(heads.transpose(-2, -3).flatten(-2).to(dtype)))

    def _project_heads(self, query: Tensor, memory: Tensor, value: Tensor | None, is_self: bool) -> dict[str, Tensor]:
        """Tokens of every process, by its name; one fused product for self-attention."""
        parts = len(self.processes)
        if is_self:
            projected = self.in_proj(query).chunk(parts, -1)
            heads = {name: self._split(x) for name, x in zip(self.processes, projected, strict=True)}
            queries = heads.get("query", heads["key"])
            return {**heads, "query": queries, "own": queries}
        maps = self._maps()
        sources = {"query": query, "key": memory, "value": memory if value is None else value, "latent": memory}
        heads = {}
        for name in dict.fromkeys(("query", *self.processes)):
            heads[name] = self._split(nn.functional.linear(sources[name], *maps.get(name, maps["key"])))
        if self.queries_of_keys:
            heads["own"] = self._split(nn.functional.linear(memory, *maps.get("query", maps["key"])))
        return heads

    def _maps(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Weight and bias of each process."""
        parts = len(self.processes)
        parameters = self.in_proj.weight.chunk(parts), self.in_proj.bias.chunk(parts)
        return dict(zip(self.processes, zip(*parameters, strict=True), strict=True))

    def _reset_process_maps(self, *, stationary: bool, equal: bool = False) -> None:
        """Draw maps such that unit-variance tokens give E‖z − z'‖² = 2 (unit variance if not stationary).

        If ``equal``, all processes start with one map: they are perfectly correlated.
        """
        std = (self.embed_dim * self.head_dim) ** -0.5 if stationary else self.embed_dim**-0.5
        weights = [weight for name, (weight, _) in self._maps().items() if name != "value"]
        with torch.no_grad():
            for weight in weights[:1] if equal else weights:
                weight.normal_(0.0, std)
            for weight in weights[1:] if equal else ():
                weight.copy_(weights[0])

    def _split(self, x: Tensor) -> Tensor:
        """(*batch, n, d) → (*batch, h, n, s), in float32 at least."""
        heads = x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-2, -3)
        return heads.float() if heads.dtype in (torch.float16, torch.bfloat16) else heads

    def _check_inputs(self, query: Tensor, key: Tensor | None, value: Tensor | None) -> None:
        if key is None and value is not None:
            raise ValueError("key: expected tokens because value was given, got None")
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x is not None and (x.dim() < 2 or x.shape[-1] != self.embed_dim or x.shape[-2] < 1):
                raise ValueError(
                    f"{name}: expected tokens (*batch, n >= 1, {self.embed_dim}), got shape {tuple(x.shape)}"
                )
            if x is not None and self._refuses(x):
                own = self.in_proj.weight.dtype
                kind = f"{own}, as the weights of {type(self).__name__}"
                raise ValueError(f"{name}: expected {kind}, got {x.dtype} (pass {name}.to({own}))")
        if key is not None and value is not None and key.shape[-2] != value.shape[-2]:
            raise ValueError(f"value: expected as many tokens as key, {key.shape[-2]}, got {value.shape[-2]}")

    def _refuses(self, x: Tensor) -> bool:
        """Whether tokens have another dtype than the weights, and nothing casts them."""
        own: Any = self.in_proj.weight
        if not isinstance(own, Tensor) or not own.is_floating_point():  # a quantised map
            return False
        return x.dtype != own.dtype and not torch.is_autocast_enabled(x.device.type)


def _of_heads(values: Tensor | None) -> Tensor | None:
    """Padding or noise ``(*batch, n)`` with a dimension for the heads."""
    return None if values is None else values[..., None, :]


def _takes(block: type, option: str) -> bool:
    parameters = inspect.signature(block).parameters
    return option in parameters or any(each.kind == each.VAR_KEYWORD for each in parameters.values())


def _without_subclasses(block: type[Attention]) -> Iterator[type[Attention]]:
    """The library's own classes of blocks that are no base of others of its own."""
    subclasses = [each for each in block.__subclasses__() if each.__module__.startswith("cgp.")]
    if not subclasses:
        yield block
    for subclass in subclasses:
        yield from _without_subclasses(subclass)
