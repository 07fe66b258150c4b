r"""The papers' formulas as they are printed: explicit inverses, n × n covariances a column, n × n draws.

Written for the benchmark from the papers, to be compared with; not meant for use. Inverses go through batched LU, which
is unsound on the CPU with more than one thread: :func:`one_thread` surrounds it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["TRANSCRIPTIONS", "Transcription", "one_thread"]

_JITTER = 1e-4


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for the time of a `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    """Squared exponential by all differences, a tensor (batch, h, n, m, s)."""
    return torch.exp(-0.5 * (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1))


def _inverse(matrix: Tensor) -> Tensor:
    return torch.linalg.inv(matrix + _JITTER * torch.eye(matrix.shape[-1]))


def _draw(mean: Tensor, covariance: Tensor) -> Tensor:
    """A draw of every column from its own n × n covariance, (batch, h, s, n, n)."""
    factor = torch.linalg.cholesky(covariance + _JITTER * torch.eye(covariance.shape[-1]))
    columns = (factor @ torch.randn_like(mean.mT)[..., None])[..., 0]
    return mean + columns.mT


class Transcription(nn.Module):
    """Projections around a formula.

    Args:
        formula: from the transcription itself and the heads of its processes to a draw of the heads.
        processes: which of "qkvo" the formula takes.
        embed_dim: width d.
        num_heads: h.
        num_inducing: m.
    """

    def __init__(
        self, formula: Callable[..., Tensor], processes: str, embed_dim: int, num_heads: int, num_inducing: int
    ) -> None:
        super().__init__()
        self.formula, self.processes, self.num_heads = formula, processes, num_heads
        self.in_proj = nn.Linear(embed_dim, len(processes) * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        head_dim = embed_dim // num_heads
        nn.init.normal_(self.in_proj.weight, std=(embed_dim * head_dim) ** -0.5)
        self.inducing = nn.Parameter(torch.randn(num_heads, num_inducing, head_dim) * head_dim**-0.5)
        self.roots = nn.Parameter(0.3 * torch.eye(num_inducing).repeat(num_heads, head_dim, 1, 1))
        self.means = nn.Parameter(torch.randn(num_heads, num_inducing, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        """Attend.

        Args:
            x: tokens, `(batch, n, d)`.

        Returns:
            AttentionInputs `(batch, n, d)`.
        """
        parts = self.in_proj(x).unflatten(-1, (len(self.processes), self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out_proj(self.formula(self, *parts).transpose(1, 2).flatten(-2))


def _kernel_attention(_: Transcription, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _kernel(q, k) @ v


def _exact(_: Transcription, q: Tensor, k: Tensor, v: Tensor, o: Tensor, noise: float = 0.01) -> Tensor:
    """CGPT (21)-(25) and (50)-(52), a second moment a column less the outer product of its mean."""
    scaled = noise * torch.eye(q.shape[-2])
    K_q, K_k, K_o = _kernel(q, q), _kernel(k, k), _kernel(o, o)
    K_qo, K_ko = _kernel(q, o), _kernel(k, o)
    inverse_o, inverse_k = _inverse(K_o + scaled), _inverse(K_k + scaled)
    z_k = (K_k + scaled) @ v
    mean_o = K_ko.mT @ inverse_k @ z_k
    mean = K_qo @ inverse_o @ mean_o
    outer_o = mean_o.mT[..., :, None] * mean_o.mT[..., None, :]  # (batch, h, s, n, n)
    second_o = (K_o - K_ko.mT @ inverse_k @ K_ko).unsqueeze(-3) + outer_o
    A_q = (K_qo @ inverse_o).unsqueeze(-3)
    second_q = (K_q - K_qo @ inverse_o @ K_qo.mT).unsqueeze(-3) + A_q @ second_o @ A_q.mT
    return _draw(mean, second_q - mean.mT[..., :, None] * mean.mT[..., None, :])


def _sparse(own: Transcription, q: Tensor, k: Tensor, v: Tensor, o: Tensor, noise: float = 0.01) -> Tensor:
    """CGPT (31)-(35) and appendix D, likewise."""
    S = own.inducing
    K_mm, K_qm, K_om, K_km = _kernel(S, S), _kernel(q, S), _kernel(o, S), _kernel(k, S)
    inverse_o = _inverse(K_mm + K_om.mT @ K_om / noise)
    inverse_k = _inverse(K_mm + K_km.mT @ K_km / noise)
    mean_o = K_om @ inverse_k @ K_km.mT @ v / noise
    mean = K_qm @ inverse_o @ K_om.mT @ mean_o / noise
    outer_o = mean_o.mT[..., :, None] * mean_o.mT[..., None, :]
    second_o = (K_om @ inverse_k @ K_om.mT + noise * torch.eye(o.shape[-2])).unsqueeze(-3) + outer_o
    A_q = (K_qm @ inverse_o @ K_om.mT / noise).unsqueeze(-3)
    second_q = (K_qm @ inverse_o @ K_qm.mT + noise * torch.eye(q.shape[-2])).unsqueeze(-3) + A_q @ second_o @ A_q.mT
    return _draw(mean, second_q - mean.mT[..., :, None] * mean.mT[..., None, :])


def _sgpa(own: Transcription, k: Tensor, v: Tensor) -> Tensor:
    """Decoupled SGPA: a covariance a column at every token, its diagonal drawn as the authors do."""
    S = own.inducing
    K_qk, K_qm, K_km, inverse = _kernel(k, k), _kernel(k, S), _kernel(k, S), _inverse(_kernel(S, S))
    mean = K_qk @ v - K_qm @ inverse @ K_km.mT @ v + K_qm @ own.means
    S_b = own.roots @ own.roots.mT  # (h, s, m, m)
    middle = inverse.unsqueeze(-3) @ S_b @ inverse.unsqueeze(-3) - inverse.unsqueeze(-3)
    explained = (K_qm.unsqueeze(-3) @ middle * K_qm.unsqueeze(-3)).sum(-1)  # (batch, h, s, n)
    return mean + (1.0 + explained).clamp(min=1e-6).sqrt().mT * torch.randn_like(mean)


def _kep(own: Transcription, q: Tensor, k: Tensor) -> Tensor:
    """KEP-SVGP (16)-(21), addition: two branches, each token with its own draw of u from its own factor."""
    rank = own.roots.shape[-1]
    phi_q, phi_k = (nn.functional.normalize(x, dim=-1) for x in (q, k))
    inverse = _inverse(torch.diag_embed(torch.ones(own.num_heads, rank)))  # the singular values, started at one
    drawn = torch.zeros(*q.shape[:-1], rank)
    for phi in (phi_q, phi_k):
        features = phi @ own.inducing.mT
        mean = features @ inverse @ own.means[..., :rank]
        factor = features.unsqueeze(-3) @ inverse.unsqueeze(-3) @ own.roots[:, :rank]
        epsilon = torch.randn(*q.shape[:2], rank, q.shape[-2], rank)
        drawn = drawn + mean + (factor * epsilon).sum(-1).mT
    return drawn @ own.means[:, :, : q.shape[-1]]


TRANSCRIPTIONS: Mapping[str, tuple[Callable[..., Tensor], str]] = {
    "kernel": (_kernel_attention, "qkv"),
    "exact-latent": (_exact, "qkvo"),
    "sparse-latent": (_sparse, "qkvo"),
    "sgpa": (_sgpa, "kv"),
    "kep": (_kep, "qk"),
}
