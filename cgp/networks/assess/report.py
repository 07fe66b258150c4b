"""What the reports of assessments share: their parts as text and HTML, and the calls that apply them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from cgp.comparisons import Difference
from cgp.networks.predict.prediction import data_frame

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Report", "in_nats", "nothing_added"]

_PER_MILLE = ("aurc",)


class Report(ABC):
    """A comparison of methods by their scores, which ends in a recommendation."""

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]

    def __str__(self) -> str:
        """The tables, the sentence, and the calls that apply the recommendation."""
        return f"{self.table()}\n\n{self.sentence}\n\n{self.calls}"

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The recommendation, with its benefit."""

    @property
    @abstractmethod
    def calls(self) -> str:
        """The calls that apply the recommendation, as code."""

    @abstractmethod
    def table(self) -> str:
        """The scores as text."""

    def to_frame(self) -> pd.DataFrame:
        """The scores, one row per method, with "nll_change" and its "nll_change_error"; needs pandas."""
        names = list(next(iter(self.scores.values())))
        columns: dict[str, Any] = {name: [scores[name] for scores in self.scores.values()] for name in names}
        columns["nll_change"] = [self.differences[method]["nll"].mean for method in self.scores]
        columns["nll_change_error"] = [self.differences[method]["nll"].error for method in self.scores]
        return data_frame(columns, list(self.scores))

    def to_html(self) -> str:
        """The sentence and the tables as a fragment of HTML."""
        return f"<section><p>{escape(self.sentence)}</p><pre>{escape(self.table())}</pre></section>"

    def _rows(self, columns: Sequence[str], against: str) -> list[list[str]]:
        """Cells of the table of methods, whose last column is the change of the NLL against the first method."""
        names = [f"{column} ‰" if column in _PER_MILLE else column for column in columns]
        rows = [["method", *names, f"NLL against {against}"]]
        for method, scores in self.scores.items():
            change = "" if method == against else str(self.differences[method]["nll"])
            rows.append([method, *(_cell(column, scores[column]) for column in columns), change])
        return rows


def _cell(column: str, value: float) -> str:
    return f"{1000 * value:.1f}" if column in _PER_MILLE else f"{value:.4f}"


def in_nats(change: Difference) -> str:
    """A change of the NLL in words."""
    return f"{change} nats" if max(abs(change.mean), change.error) >= 5e-5 else "less than 0.0001 nats"


def nothing_added(tried: Mapping[str, Difference]) -> str:
    """That methods, by their names in a sentence, add nothing."""
    named = [f"the {name} (NLL {in_nats(change)})" for name, change in tried.items()]
    return f"{' and '.join(named)} add{'s' if len(named) == 1 else ''} nothing"
