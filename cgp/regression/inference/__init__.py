"""Inference: how parameters are found, or sampled."""

from .laplace import Laplace
from .maximum import MAP
from .minibatches import Minibatches
from .nuts import NUTS
from .setting import Automatic, Inference
from .slices import Slices
from .windows import Windows

__all__ = ["MAP", "NUTS", "Automatic", "Inference", "Laplace", "Minibatches", "Slices", "Windows"]
