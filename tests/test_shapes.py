"""The shapes that docstrings of the formulas state are those that calls have."""

import importlib
import inspect
import pkgutil
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from cgp.functional.gaussians import DenseGaussian, MarginalGaussian
from cgp.functional.linalg import solve_lower
from tests.shapes import PACKAGES, WrongShapeError, checked, stated

MODULES = [
    importlib.import_module(f"{package}.{module.name}")
    for package in PACKAGES
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
]
PUBLIC = [
    pytest.param(value, module.__doc__ if inspect.isfunction(value) else None, id=f"{module.__name__}.{name}")
    for module in MODULES
    for name, value in vars(module).items()
    if name in module.__all__
    if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception))
]
TENSORS = ("Tensor", "Tensor | None", "Tensor | float", "Tensor | int")


@pytest.mark.parametrize(("formula", "module_doc"), PUBLIC)
def test_formulas_state_the_shape_of_every_tensor(formula, module_doc):
    signature, shapes = inspect.signature(formula), stated(formula.__doc__, module_doc)
    tensors = [name for name, of in signature.parameters.items() if of.annotation in TENSORS]
    assert [name for name in tensors if name not in shapes.arguments] == []
    if inspect.isfunction(formula):
        assert shapes.results or not signature.return_annotation.startswith(("Tensor", "tuple[Tensor, "))


def test_the_formulas_are_checked():
    with pytest.raises(WrongShapeError, match=r"solve_lower: rhs: expected \(\*batch, n, k\), .* got \(3, 1\), where"):
        solve_lower(torch.eye(2), torch.ones(3, 1))
    with pytest.raises(WrongShapeError, match=r"mean: expected \(\*batch, n, s\), .* got \(3,\)"):
        MarginalGaussian(torch.ones(3), torch.ones(3))
    with pytest.raises(WrongShapeError, match=r"value: expected \(\*batch, n, s\), .* got \(2, 1\)"):
        DenseGaussian(torch.ones(3, 1), torch.eye(3)).log_prob(torch.ones(2, 1))


def stacked(a: Tensor, b: Tensor, noise: Tensor | float = 1.0) -> Tensor:
    """Rows of both, ``(*batch, 2n, ·)``.

    Args:
        a: ``(*batch, n, d)``.
        b: ``(*batch, n, d)`` or ``(d,)``.
        noise: a number or broadcastable to ``(*batch, n)``.
    """
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return torch.cat([x.expand(*batch, *a.shape[-2:]) for x in (a, b)], -2)


@pytest.mark.parametrize(
    "given",
    [
        [(3, 2), (3, 2)],
        [(5, 1, 3, 2), (4, 3, 2)],
        [(3, 2), (2,)],
        [(3, 2), (3, 2), ()],
        [(5, 3, 2), (3, 2), (5, 1)],
        [(3, 2), (3, 2), (3,)],
    ],
)
def test_letters_are_one_number_in_a_call_and_batches_broadcast(given):
    assert checked(stacked)(*map(torch.ones, given)).shape[-2:] == (6, 2)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ([(3, 2), (4, 2)], "b"),
        ([(3, 2), (3,)], "b"),
        ([(3,), (3, 2)], "a"),
        ([(5, 3, 2), (4, 3, 2)], "b"),
        ([(3, 2), (3, 2), (4,)], "noise"),
        ([(5, 3, 2), (3, 2), (4, 1)], "noise"),
    ],
)
def test_an_argument_of_another_shape_is_refused(given, name):
    with pytest.raises(WrongShapeError, match=f"stacked: {name}: expected"):
        checked(stacked)(*map(torch.ones, given))


def test_a_result_of_another_shape_is_refused():
    def transposed(x: Tensor) -> tuple[Tensor, Tensor]:
        """``(*batch, n, d)`` and ``(*batch, d)``.

        Args:
            x: ``(*batch, n, d)``.
        """
        return x.mT, x[..., 0, :]

    def unstacked(a: Tensor) -> Tensor:
        return a

    unstacked.__doc__ = stacked.__doc__
    assert checked(transposed)(torch.ones(4, 2, 2))[0].shape == (4, 2, 2)
    with pytest.raises(WrongShapeError, match=r"transposed: the result: .* got \(2, 3\), where .* x \(3, 2\)"):
        checked(transposed)(torch.ones(3, 2))
    with pytest.raises(WrongShapeError, match=r"the result: expected \(\*batch, 2n, ·\)"):
        checked(unstacked)(torch.ones(3, 2))


def test_attributes_bind_the_letters_of_methods():
    @checked
    class Points(NamedTuple):
        """Points.

        Attributes:
            places: ``(n, d)``.
        """

        places: Tensor

        @checked
        def sums(self, dim: int) -> Tensor:
            """Of each point, ``(n,)``."""
            return self.places.sum(dim)

    assert Points(torch.ones(3, 2)).sums(-1).shape == (3,)
    with pytest.raises(WrongShapeError, match=r"sums: the result: expected \(n,\), .* got \(2,\)"):
        Points(torch.ones(3, 2)).sums(0)
    with pytest.raises(WrongShapeError, match=r"places: expected \(n, d\), .* got \(3,\)"):
        Points(torch.ones(3))


def test_the_text_of_functions_and_modules_states_shapes():
    shapes = stated("Sums of ``x`` ``(*batch, n)``, ``(*batch,)``.", "Noise :math:`a`: ``noise`` a number or ``(n,)``.")
    assert {name: places[0][0].text for name, places in shapes.arguments.items()} == {
        "x": "(*batch, n)",
        "noise": "(n,)",
    }
    assert shapes.results[0][0].text == "(*batch,)"
