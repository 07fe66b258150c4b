"""What a block would cost where we cannot measure: operations, traffic and time of a layer on an accelerator.

A model, not a measurement: each part takes the longer of its operations at a rate and its traffic at a bandwidth.
"""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ACCELERATOR", "BLOCKS", "Accelerator", "Layer", "Part", "layer_seconds", "parts", "projection_table"]


class Accelerator(NamedTuple):
    """Rates that are reached, not peaks.

    Attributes:
        half: matrix products in half precision, FLOP/s.
        single: small matrix products in float32, FLOP/s.
        batched: factorisations of batches of small matrices, FLOP/s.
        bandwidth: bytes/s of memory.
    """

    half: float
    single: float
    batched: float
    bandwidth: float


ACCELERATOR = Accelerator(half=450e12, single=25e12, batched=1e12, bandwidth=2.5e12)


class Layer(NamedTuple):
    """Sizes of a transformer layer on one device.

    Attributes:
        tokens: n.
        batch: sequences on the device.
        width: d.
        heads: h.
        inducing: m.
        expansion: width of the perceptron over d.
        is_causal: whether attention sees the prefix alone.
    """

    tokens: int
    batch: int
    width: int = 1024
    heads: int = 16
    inducing: int = 16
    expansion: int = 4
    is_causal: bool = False


class Part(NamedTuple):
    """A part of a layer's forward pass.

    Attributes:
        half: FLOPs in half precision.
        single: FLOPs of products in float32.
        batched: FLOPs of factorisations.
        traffic: bytes.
    """

    half: float = 0.0
    single: float = 0.0
    batched: float = 0.0
    traffic: float = 0.0

    def seconds(self, device: Accelerator) -> float:
        """The longer of computing and moving.

        Args:
            device: rates.
        """
        computing = self.half / device.half + self.single / device.single + self.batched / device.batched
        return max(computing, self.traffic / device.bandwidth)


def _frame(layer: Layer) -> Part:
    """Projections and perceptron, with norms and residuals."""
    tokens = layer.batch * layer.tokens
    products = (8 + 4 * layer.expansion) * tokens * layer.width**2
    return Part(half=products, traffic=(20 + 4 * layer.expansion) * tokens * layer.width)


def _softmax(layer: Layer) -> Part:
    pairs = layer.batch * layer.tokens**2 * layer.width * (0.5 if layer.is_causal else 1.0)
    return Part(half=4 * pairs, traffic=8 * layer.batch * layer.tokens * layer.width)


def _hop(layer: Layer, processes: int, passes: float) -> Part:
    """One inducing set: Gram matrices, whitening, capacitance, mean, variance; each pass reads or writes the tokens."""
    n, m = layer.tokens, layer.inducing
    tokens = layer.batch * n
    products = (2 * processes + 4) * tokens * m * layer.width + (2 * processes + 4) * tokens * m**2 * layer.heads
    groups = layer.batch * (max(1, n // 32) if layer.is_causal else 1) * layer.heads
    return Part(single=products, batched=(processes - 1) * groups * 2 * m**3, traffic=4 * passes * tokens * layer.width)


def _exact(layer: Layer) -> Part:
    n, matrices = layer.tokens, layer.batch * layer.heads
    products = 6 * layer.batch * n**2 * layer.width + 2 * matrices * n**3
    return Part(single=products, batched=2 * matrices * n**3 / 3, traffic=10 * 4 * matrices * n**2)


def _latent(layer: Layer) -> Part:
    hop, tokens = _hop(layer, 3, 14), layer.batch * layer.tokens
    return hop._replace(half=2 * tokens * layer.width**2)


# Passes over the tokens in float32: about 30 where every operation is a launch, 10 compiled, 4 in one kernel.
BLOCKS: Mapping[str, tuple[str, ...]] = {
    "softmax": ("softmax",),
    "sparse GP, direct, eager": ("hop 30",),
    "sparse GP, direct, compiled": ("hop 10",),
    "sparse GP, direct, one kernel": ("hop 4",),
    "sparse GP, latent, compiled": ("latent",),
    "softmax's mean, sparse covariance, compiled": ("softmax", "hop 10"),
    "exact GP, direct": ("exact",),
}


def parts(layer: Layer, block: str) -> list[Part]:
    """The parts of a layer's forward pass.

    Args:
        layer: sizes.
        block: one of :data:`BLOCKS`.
    """
    found = [_frame(layer)]
    for name in BLOCKS[block]:
        kind, _, passes = name.partition(" ")
        found.append(
            _hop(layer, 2, float(passes))
            if kind == "hop"
            else {"softmax": _softmax, "latent": _latent, "exact": _exact}[kind](layer)
        )
    return found


def layer_seconds(layer: Layer, block: str, device: Accelerator = ACCELERATOR) -> float:
    """Seconds of a layer's forward pass.

    Args:
        layer: sizes.
        block: one of :data:`BLOCKS`.
        device: rates.

    Example:
        >>> layer = Layer(4096, 4, is_causal=True)
        >>> layer_seconds(layer, "sparse GP, direct, one kernel") < layer_seconds(layer, "softmax")
        True
    """
    return sum(part.seconds(device) for part in parts(layer, block))


def projection_table(layer: Layer, depth: int = 24) -> list[list[str]]:
    """A line a block: share of the GP part, and ratio to softmax in every layer and in the last alone.

    Args:
        layer: sizes.
        depth: layers.
    """
    softmax = layer_seconds(layer, "softmax")
    table = [["", "ms a layer, forward", "share of attention", "all layers", "last layer alone"]]
    for block in BLOCKS:
        seconds, frame = layer_seconds(layer, block), _frame(layer).seconds(ACCELERATOR)
        last = (seconds + (depth - 1) * softmax) / (depth * softmax)
        line = [block, f"{1e3 * seconds:.2f}", f"{100 * (1 - frame / seconds):.0f} %", f"{seconds / softmax:.2f}"]
        table.append([*line, f"{last:.2f}"])
    return table


if __name__ == "__main__":
    sizes = {
        "ViT-L/16, 197 tokens, 128 images a device": Layer(197, 128),
        "causal, 8 192 tokens, 4 sequences a device": Layer(8192, 4, is_causal=True),
        "causal, 32 768 tokens, 1 sequence a device": Layer(32768, 1, is_causal=True),
    }
    for title, size in sizes.items():
        head, *body = projection_table(size)
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
        print(f"{title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
