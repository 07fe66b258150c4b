"""Inference: how parameters are found, or sampled."""

from .laplace import Laplace
from .maximum import MAP
from .minibatches import Minibatches
from .nuts import NUTS
from .setting import Inference
from .slices import Slices
from .windows import Windows

__all__ = ["MAP", "NUTS", "Inference", "Laplace", "Minibatches", "Slices", "Windows"]
