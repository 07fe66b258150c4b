"""Blocks of random forms, sizes, masks and tokens against dense float64 algebra, in float32 and in float64.

``python -m tests.equivalence.dense --trials 2000`` draws that many blocks and prints what is off by more than rounding
allows. The algebra takes the tokens as the block projected them, loops over sequences, heads and, under a causal mask,
queries, and shares no line with the package.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from torch import Tensor

import cgp
from cgp.attention import Attention
from experiments.registry import forms

Array = NDArray[np.float64]
Moments = tuple[Array, Array]
JITTER = {torch.float32: 1e-5, torch.float64: 1e-8}  # of inducing covariances, part of the model
KERNELS: dict[str, Callable[[Array], Array]] = {
    "rbf": lambda d: np.exp(-0.5 * d**2),
    "matern12": lambda d: np.exp(-d),
    "matern32": lambda d: (1 + 3**0.5 * d) * np.exp(-(3**0.5) * d),
    "matern52": lambda d: (1 + 5**0.5 * d + 5 / 3 * d**2) * np.exp(-(5**0.5) * d),
    "rq": lambda d: 1 / (1 + 0.5 * d**2),
}


class Head(NamedTuple):
    """What one head of one sequence has: real tokens, and the block's numbers."""

    q: Array
    k: Array
    v: Array
    o: Array | None
    kernel: Callable[[Array, Array], Array]
    noise: float
    tau: float | None
    observed: bool
    own: Array
    inducing: Array | None
    jitter: float


def gram(name: str, a: Array, b: Array) -> Array:
    """Covariance of points, from their differences."""
    if name == "exponential":
        return np.exp(a @ b.T / a.shape[-1] ** 0.5)
    return KERNELS[name](cdist(a, b))


def scaled_gram(scale: float, name: str, a: Array, b: Array) -> Array:
    """Covariance of points with a variance of its own."""
    return scale * gram(name, a, b)


def conditional(head: Head) -> Moments:
    """Regression or kernel attention, and the variance given noisy keys: exactly, or through inducing inputs."""
    h, eye = head, np.eye(len(head.k))
    prior = np.array([h.kernel(x[None], x[None])[0, 0] for x in h.q])
    if h.inducing is not None:
        return through_inducing(h, prior)
    C, C_own = exact_coupling(h, h.q), exact_coupling(h, h.own)
    K_k = h.kernel(h.k, h.k) + h.noise * eye
    mean = C @ np.linalg.solve(K_k, h.v) if h.observed else C @ h.v
    return scaled(h, mean, prior - np.sum(C * np.linalg.solve(K_k, C.T).T, -1), C_own)


def exact_coupling(h: Head, q: Array) -> Array:
    """Cross-covariance of queries and keys."""
    if h.o is None:
        return h.kernel(q, h.k)
    noisy = h.kernel(h.o, h.o) + h.noise * np.eye(len(h.o))
    return h.kernel(q, h.o) @ np.linalg.solve(noisy, h.kernel(h.o, h.k))


def scaled(h: Head, mean: Array, variance: Array, C_own: Array) -> Moments:
    """With the amplitude of the process; of weights it is such that they sum to at most its square, on average."""
    if h.tau is None:
        return mean, variance
    square = h.tau**2 if h.observed else h.tau**2 / max(1.0, C_own.sum() / max(len(C_own), 1))
    return mean if h.observed else square * mean, square * variance


def through_inducing(h: Head, prior: Array) -> Moments:
    """The deterministic training conditional, one hop or two."""
    assert h.inducing is not None
    K_mm = h.kernel(h.inducing, h.inducing)
    K_mm = K_mm + h.jitter * np.diag(K_mm).mean() * np.eye(len(K_mm))
    root = np.linalg.cholesky(K_mm)
    A_q, A_k, A_own = (np.linalg.solve(root, h.kernel(h.inducing, x)) for x in (h.q, h.k, h.own))
    eye, unexplained = np.eye(len(K_mm)), prior - np.sum(A_q**2, 0)
    of_keys = np.linalg.inv(eye + A_k @ A_k.T / h.noise)
    mean, covariance = of_keys @ A_k @ h.v / h.noise if h.observed else A_k @ h.v, of_keys
    if h.o is not None:
        A_o = np.linalg.solve(root, h.kernel(h.inducing, h.o))
        of_latent = np.linalg.inv(eye + A_o @ A_o.T / h.noise)
        hop = of_latent @ A_o @ A_o.T / h.noise
        mean = hop @ of_keys @ A_k @ h.v / h.noise
        covariance = of_latent + hop @ (of_latent + of_keys @ hop)
    variance = np.sum(A_q * (covariance @ A_q), 0) + np.maximum(unexplained, 0.0)
    return scaled(h, A_q.T @ mean, variance, A_own.T @ A_k)


def around_softmax(block: Any, index: int, head: Head) -> Moments:
    """Softmax attention, and the bounded covariance around it."""
    part, size = block.softmax, head.q.shape[-1]
    scores = head.q @ head.k.T / size**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    length = float(part.log_lengthscale[index].exp())
    shift = part.key_shift[index].detach().double().numpy()
    points: dict[str, Any] = {"q": head.q * size**-0.25 / length, "k": (head.k * size**-0.25 + shift) / length}
    inducing = None if head.inducing is None else head.inducing / length
    points["own"] = points["k"]
    _, variance = conditional(head._replace(**points, inducing=inducing, noise=float(part.noise[index]), tau=None))
    return weights / weights.sum(-1, keepdims=True) @ head.v, float(part.log_amplitude[index].exp()) ** 2 * variance


def sgpa_standard(block: Any, index: int, head: Head) -> Moments:
    """Kernel attention, and what sites of the keys' precision leave of the prior."""
    slope, offset = (x.detach().double().numpy() for x in (block.precision_map[index], block.precision_offset[index]))
    root = np.sqrt(np.logaddexp(0.0, (head.k @ slope)[:, 0] + offset))
    K_qk, K_kk = head.kernel(head.q, head.k), head.kernel(head.k, head.k)
    B = np.eye(len(head.k)) + root[:, None] * K_kk * root
    prior = np.array([head.kernel(x[None], x[None])[0, 0] for x in head.q])
    scaled = K_qk * root
    return K_qk @ head.v, prior - np.sum(scaled * np.linalg.solve(B, scaled.T).T, -1)


def sgpa(block: Any, index: int, head: Head) -> Moments:
    """The decoupled form; the variance averaged over the columns."""
    points = block.global_keys().points[index].detach().double().numpy()
    K_bb = head.kernel(points, points)
    root = np.linalg.cholesky(K_bb + head.jitter * np.diag(K_bb).mean() * np.eye(len(points)))
    T_q, T_k = (np.linalg.solve(root, head.kernel(points, x)) for x in (head.q, head.k))
    variables = block.variational_strategy
    w, roots = (x[index].detach().double().numpy() for x in (variables.variational_mean, variables.root))
    mean = head.kernel(head.q, head.k) @ head.v + T_q.T @ (w.T - T_k @ head.v)
    prior = np.array([head.kernel(x[None], x[None])[0, 0] for x in head.q])
    columns = np.stack([np.sum((R.T @ T_q) ** 2, 0) for R in roots])
    return mean, np.maximum(prior - np.sum(T_q**2, 0), 0.0) + columns.mean(0)


def expected(block: Any, tokens: Any) -> tuple[Array, Array]:
    """Mean ``(B, h, Nq, s)`` and variance ``(B, h, Nq)``; NaN at padded queries."""
    arrays: list[Any] = [None if x is None else x.detach().double().numpy() for x in tokens[:4]]
    q, k, v, o = arrays
    mean, variance = np.full((*q.shape[:-1], v.shape[-1]), np.nan), np.full(q.shape[:-1], np.nan)
    inducing, scale = getattr(block, "inducing_points", None), getattr(block, "log_outputscale", None)
    tau, noise = getattr(block, "log_amplitude", None), getattr(block, "noise", 1.0)
    noises = np.broadcast_to(noise.detach().double() if isinstance(noise, Tensor) else noise, q.shape[1])
    if isinstance(block, cgp.SGPAttention):
        inducing = None
    for b, h in np.ndindex(q.shape[:2]):
        real: Any = np.ones(k.shape[2], bool) if tokens.key_padding is None else ~tokens.key_padding[b, 0].numpy()
        amplitude = 1.0 if scale is None else float(scale[h].exp())
        head = Head(
            q[b, h],
            k[b, h][real],
            v[b, h][real],
            None if o is None else o[b, h][real],
            partial(scaled_gram, amplitude, block.canonical.name),
            float(noises[h]),
            None if tau is None else float(tau[h].exp()),
            getattr(block, "regresses", False),
            k[b, h][real] if tokens.own is None else tokens.own[b, h].detach().double().numpy()[real],
            None if inducing is None else inducing[h].detach().double().numpy(),
            JITTER[tokens.q.dtype],
        )
        for rows, keys in visible(tokens, b, real):
            part = head._replace(
                q=head.q[rows],
                k=head.k[keys],
                v=head.v[keys],
                own=head.own[keys],
                o=None if head.o is None else head.o[keys],
            )
            mean[b, h, rows], variance[b, h, rows] = moments(block, h, part)
    return mean, variance


def visible(tokens: Any, b: int, real: NDArray[np.bool_]) -> list[tuple[list[int], NDArray[np.bool_]]]:
    """Queries that see the same keys, and which of the real keys these are."""
    queries = [i for i in range(tokens.q.shape[2]) if tokens.query_padding is None or not tokens.query_padding[b, 0, i]]
    if not tokens.is_causal:
        return [(queries, np.ones(int(real.sum()), bool))]
    return [([t], np.flatnonzero(real) <= t) for t in queries]


def moments(block: Any, index: int, head: Head) -> Moments:
    """By the algebra of the block's form."""
    if getattr(block, "softmax", None) is not None:
        return around_softmax(block, index, head)
    if isinstance(block, cgp.StandardSGPAttention):
        return sgpa_standard(block, index, head)
    return sgpa(block, index, head) if isinstance(block, cgp.SGPAttention) else conditional(head)


_OTHERS = ("softmax", "kep_svgp", "primal")  # without a Gaussian-process covariance of tokens
FORMS: dict[str, Callable[..., Attention]] = {
    "kernel": cgp.KernelAttention,
    "kernel symmetric": partial(cgp.KernelAttention, symmetric=True),
    **{name: form.make for name, form in forms().items() if name not in _OTHERS},
}


class Trial(NamedTuple):
    """One block on one input."""

    name: str
    block: Any
    inputs: tuple[Tensor, ...]
    masks: dict[str, Any]


def draw(seed: int, dtype: torch.dtype) -> Trial:
    """A block with random options and parameters, and tokens: usual ones, repeated, huge, or padded."""
    rng, _ = np.random.default_rng(seed), torch.manual_seed(seed)
    name = list(FORMS)[seed % len(FORMS)]
    heads, size = int(rng.integers(1, 4)), int(rng.choice([1, 2, 5, 16]))
    options = drawn_options(name, rng)
    block: Any = FORMS[name](heads * size, heads, **options).to(dtype).eval()
    with torch.no_grad():
        for parameter_name, parameter in block.named_parameters():
            if "noise" not in parameter_name and "root" not in parameter_name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    batch, n = int(rng.integers(1, 3)), int(rng.integers(1, 25))
    lengths = (n,) if rng.random() < 0.75 or "symmetric" in name else (n, n + 2)
    is_bounded = options.get("kernel") == "exponential"  # what is huge overflows, and is refused
    kind = str(rng.choice(["usual", "usual", "repeated", *([] if is_bounded else ["huge", "clusters"])]))
    inputs = tuple(drawn_tokens((batch, length, heads * size), kind, rng).to(dtype) for length in lengths)
    masks: dict[str, Any] = {}
    if rng.random() < 0.5:
        masks["key_padding_mask"] = torch.from_numpy(rng.random((batch, lengths[-1])) < 0.4)
        masks["key_padding_mask"][:, 0] = False  # under a causal mask every real query then sees a key
    if len(lengths) == 1 and block.takes_causal and rng.random() < 0.4:
        masks["is_causal"] = True
    return Trial(f"{name} {options} {kind} {tuple(masks)}", block, inputs, masks)


def drawn_options(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """Kernel, noise and number of inducing inputs, where the block has them."""
    options: dict[str, Any] = {}
    if "softmax" not in name:
        options["kernel"] = str(rng.choice(["rbf", "exponential"] if "sgpa" in name else [*KERNELS, "exponential"]))
    if name.startswith(("cgp", "sparse_cgp")):
        options["noise"] = float(10.0 ** rng.uniform(-3, 0))
    if name.startswith("sparse") or name == "sgpa":
        options["num_inducing"] = int(rng.integers(1, 9))
    return options


def drawn_tokens(shape: tuple[int, int, int], kind: str, rng: np.random.Generator) -> Tensor:
    """Normal numbers; half of them repeated, some huge, or a part far from the other."""
    x, scale = torch.randn(shape), float(10.0 ** rng.uniform(1, 4))
    if kind == "repeated":
        x[:, shape[1] // 2 :] = x[:, :1]
    if kind == "huge":
        x[:, rng.random(shape[1]) < 0.3] *= scale
    if kind == "clusters":
        x[:, ::2] += scale * torch.randn(shape[-1])
    return x


class Outcome(NamedTuple):
    """Errors of mean and variance over what rounding allows, or that the block refused its input."""

    trial: Trial
    mean: float = 0.0
    variance: float = 0.0
    refused: str = ""


@torch.no_grad()
def compare(seed: int, dtype: torch.dtype = torch.float32) -> Outcome:
    """One trial, in units of the error that its condition explains: above one it is wrong."""
    trial = draw(seed, dtype)
    tokens = trial.block.project(*trial.inputs, **trial.masks)
    try:
        if trial.block.stochastic:
            posterior = trial.block.gaussian(tokens)
            computed = posterior.mean.double().numpy(), posterior.variance.double().numpy()
        else:
            computed = trial.block.attend(tokens).double().numpy(), None
    except ValueError as error:
        return Outcome(trial, refused=str(error))
    mean, variance = expected(trial.block, tokens)
    eps, real = torch.finfo(dtype).eps, ~np.isnan(variance)
    of_keys = trial.block.canonical.diagonal(tokens.k).sum(-1).max().item()  # their number, if the kernel is stationary
    condition = of_keys / min(float(torch.as_tensor(getattr(trial.block, "noise", 1.0)).min()), 1.0)
    if hasattr(trial.block, "num_inducing"):
        condition += 0.1 / JITTER[dtype]  # of the inducing covariance
    allowed = min(2.0 * eps * condition + (1e-4 if dtype == torch.float32 else 1e-8), 1e-2)
    if not (np.isfinite(mean[real]).all() and np.isfinite(computed[0]).all()):
        return Outcome(trial, np.inf)
    sizes = np.abs(mean[real]).max(initial=0.0) + 1e-3 * np.abs(tokens.v.double().numpy()).max()
    errors = np.abs(computed[0] - mean)[real].max(initial=0.0) / sizes / allowed
    if computed[1] is None:
        return Outcome(trial, errors)
    prior = trial.block.canonical.diagonal(tokens.q).double().numpy()
    apart = np.abs(computed[1] - variance)[real] / np.maximum(prior, variance)[real]
    return Outcome(trial, errors, apart.max(initial=0.0) / allowed)


def main() -> int:
    """Draw, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="half of them in each precision")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.trials // 2):
        for dtype in (torch.float32, torch.float64):
            outcome = compare(seed, dtype)
            is_wrong = not max(outcome.mean, outcome.variance) <= 1.0
            counts["refused" if outcome.refused else "wrong" if is_wrong else "right"] += 1
            if is_wrong:
                print(f"{seed} {dtype} mean {outcome.mean:.2g} variance {outcome.variance:.2g} {outcome.trial.name}")
    print(dict(counts))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
