"""Inference: how parameters are found, or sampled."""

from .maximum import MAP
from .minibatches import Minibatches
from .nuts import NUTS
from .sampling import Laplace, Slices
from .setting import Automatic, Inference
from .windows import Windows

__all__ = ["MAP", "NUTS", "Automatic", "Inference", "Laplace", "Minibatches", "Slices", "Windows"]
