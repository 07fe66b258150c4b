from . import tasks
from .detect.scores import InputScore
from .guarantees.conformal import SetScore
from .methods import Method

__all__ = ["InputScore", "Method", "SetScore", "tasks"]
