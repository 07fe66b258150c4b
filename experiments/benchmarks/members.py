"""Training the members of an ensemble one after the other against all at once, as one batched network."""

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jsonargparse import auto_cli
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from cgp.attention import SGPAttention, SoftmaxAttention, SparseCGPAttention
from experiments.benchmarks.timing import Budget, Timing, interleaved
from models import CGPT_CIFAR, DIGITS, TextTransformer, VisionTransformer

__all__ = ["members", "one_after_the_other", "together"]

_METHODS: dict[str, Callable[..., nn.Module]] = {
    "softmax": SoftmaxAttention,
    "sparse correlated GP": SparseCGPAttention,
    "SGPA": SGPAttention,
}
_TEXT = {"vocabulary_size": 3000, "max_length": 64, "depth": 2, "embed_dim": 256, "mlp_dim": 256, "num_heads": 4}
_CASES: dict[str, tuple[str, int]] = {"digits": ("vision", 32), "CoLA": ("text", 32), "CIFAR-10": ("vision", 100)}
_WORDS = 12


def members(
    cases: Sequence[str] = ("digits", "CoLA", "CIFAR-10"),
    methods: Sequence[str] = ("softmax", "sparse correlated GP", "SGPA"),
    count: int = 5,
    device: str = "cpu",
    threads: int = 1,
    seconds: float = 10.0,
) -> None:
    """Print the cost of a training step of all members at once, in steps of all members one after the other.

    Args:
        cases: "digits", "CoLA", "CIFAR-10": the networks and batches of their rows.
        methods: "softmax", "sparse correlated GP", "SGPA".
        count: number of members.
        device: where.
        threads: of torch.
        seconds: of each comparison.
    """
    torch.set_num_threads(threads)
    sys.stdout.write("| network | attention | one after the other, ms | together ÷ one after the other | quartiles |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | --- |\n")
    for case in cases:
        for method in methods:
            first, both = _times(case, method, count, torch.device(device), Budget(seconds))
            cells = (case, method, f"{1e3 * first.seconds:.0f}", f"{both.ratio:.2f}")
            sys.stdout.write(f"| {' | '.join(cells)} | {both.ratio_low:.2f} – {both.ratio_high:.2f} |\n")
            sys.stdout.flush()


def one_after_the_other(networks: Sequence[nn.Module], inputs: Tensor, labels: Tensor) -> Callable[[], list[Tensor]]:
    """A step of Adam of each network on its own batch.

    Args:
        networks: M members.
        inputs: `(M, B, ...)`.
        labels: `(M, B)`.

    Returns:
        The step, which returns the M losses.
    """
    optimisers = [torch.optim.Adam(network.parameters(), 1e-3) for network in networks]

    def step() -> list[Tensor]:
        losses = [_loss(network, *own) for network, *own in zip(networks, inputs, labels, strict=True)]
        for optimiser, loss in zip(optimisers, losses, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return losses

    return step


def together(networks: Sequence[nn.Module], inputs: Tensor, labels: Tensor) -> Callable[[], list[Tensor]]:
    """The same step for all networks at once: their weights stacked, their batches beside each other.

    Args:
        networks: M members; their weights are copied.
        inputs: `(M, B, ...)`.
        labels: `(M, B)`.

    Returns:
        The step, which returns the M losses.
    """
    weights, buffers = stack_module_state(list(networks))
    shape = copy.deepcopy(networks[0])
    optimiser = torch.optim.Adam(list(weights.values()), 1e-3)

    def member(weights: Any, buffers: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        return _loss(lambda x: functional_call(shape, (weights, buffers), x), inputs, labels)

    def step() -> list[Tensor]:
        with _batched_attention(inputs.device):
            losses = vmap(member, randomness="different")(weights, buffers, inputs, labels)
        optimiser.zero_grad()
        losses.sum().backward()
        optimiser.step()
        return list(losses)

    return step


def _loss(network: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(network(inputs), labels)


def _batched_attention(device: torch.device) -> AbstractContextManager[None]:
    """On a CPU the fused softmax attention knows no further batch dimension, and would be called member by member."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()


def _times(case: str, method: str, count: int, device: torch.device, budget: Budget) -> tuple[Timing, Timing]:
    networks = [network.to(device) for network in _networks(case, method, count)]
    inputs, labels = (part.to(device) for part in _batches(case, count))
    steps = {"apart": one_after_the_other(networks, inputs, labels), "together": together(networks, inputs, labels)}
    found = interleaved({name: partial(_waited_for, step, device) for name, step in steps.items()}, budget)
    return found["apart"], found["together"]


def _waited_for(step: Callable[[], Any], device: torch.device) -> None:
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _networks(case: str, method: str, count: int) -> Iterator[nn.Module]:
    factory = _METHODS[method]
    for _ in range(count):
        if _CASES[case][0] == "text":
            yield TextTransformer(**_TEXT, num_classes=2, attention=factory)
        else:
            yield VisionTransformer(**_sizes(case), num_classes=10, attention=factory)


def _sizes(case: str) -> Any:
    return DIGITS if case == "digits" else CGPT_CIFAR


def _batches(case: str, count: int) -> tuple[Tensor, Tensor]:
    kind, size = _CASES[case]
    generator = torch.Generator().manual_seed(0)
    if kind == "text":
        tokens = torch.randint(_TEXT["vocabulary_size"], (count, size, _WORDS), generator=generator)
        return tokens, torch.randint(2, (count, size), generator=generator)
    sizes = _sizes(case)
    shape = (count, size, sizes["channels"], sizes["image_size"], sizes["image_size"])
    return torch.randn(shape, generator=generator), torch.randint(10, (count, size), generator=generator)


if __name__ == "__main__":
    auto_cli(members)
