"""Named sizes of the vision transformer."""

from typing import Literal, TypedDict

__all__ = ["CGPT_CIFAR", "DIGITS", "KEP_SVGP_CIFAR", "VisionTransformerSizes"]


class VisionTransformerSizes(TypedDict):
    """Everything of a `VisionTransformer` but its attention and its number of classes.

    Example:
        >>> CGPT_CIFAR["embed_dim"], CGPT_CIFAR["depth"]
        (128, 5)
    """

    image_size: int
    patch_size: int
    channels: int
    depth: int
    embed_dim: int
    mlp_dim: int
    num_heads: int
    pooling: Literal["mean", "sequence"]
    dropout: float


# CGPT, section 5 (CIFAR-10 and CIFAR-100).
CGPT_CIFAR: VisionTransformerSizes = {
    "image_size": 32,
    "patch_size": 4,
    "channels": 3,
    "depth": 5,
    "embed_dim": 128,
    "mlp_dim": 128,
    "num_heads": 4,
    "pooling": "sequence",
    "dropout": 0.1,
}

# KEP-SVGP, appendix C (CIFAR-10 and CIFAR-100).
KEP_SVGP_CIFAR: VisionTransformerSizes = {
    "image_size": 32,
    "patch_size": 4,
    "channels": 3,
    "depth": 7,
    "embed_dim": 384,
    "mlp_dim": 384,
    "num_heads": 12,
    "pooling": "mean",
    "dropout": 0.1,
}

# scikit-learn's 8 x 8 digits: 16 tokens, small enough to train in seconds on a laptop.
DIGITS: VisionTransformerSizes = {
    "image_size": 8,
    "patch_size": 2,
    "channels": 1,
    "depth": 2,
    "embed_dim": 48,
    "mlp_dim": 96,
    "num_heads": 4,
    "pooling": "sequence",
    "dropout": 0.1,
}
