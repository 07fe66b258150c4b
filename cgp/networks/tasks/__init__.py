"""What a task asks: how outputs and labels become rows, and how answers are scored."""

from .classification import Classification, Dense, Multilabel, Tokens
from .regression import Embeddings, Regression
from .task import Task, as_task

__all__ = ["Classification", "Dense", "Embeddings", "Multilabel", "Regression", "Task", "Tokens", "as_task"]
