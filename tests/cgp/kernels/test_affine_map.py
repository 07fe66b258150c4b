import pytest
import torch

from cgp.kernels import AffineMap
from tests.cgp.helpers import moved

SIZES = {"free": (3, 2), "diagonal": (3, 3)}


@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 2)])
@pytest.mark.parametrize("kind", SIZES)
def test_is_affine_for_each_batch_member(kind, batch_shape):
    d, s = SIZES[kind]
    affine = moved(AffineMap(d, s, kind=kind, batch_shape=torch.Size(batch_shape)).double())
    x = torch.randn(*batch_shape, 5, d, dtype=torch.float64)
    expected = torch.einsum("...nd,...sd->...ns", x, affine.weight) + affine.bias.unsqueeze(-2)
    torch.testing.assert_close(affine(x), expected)
    assert affine.weight.shape == (*batch_shape, s, d)


@pytest.mark.parametrize("sizes", [(8, 8), (8, 3), (3, 8)])
def test_initial_distances_do_not_depend_on_the_sizes(sizes):
    torch.manual_seed(2)
    x = torch.randn(2000, sizes[0])
    z = AffineMap(*sizes)(x)
    distance = (z[::2] - z[1::2]).square().sum(-1).mean()
    assert abs(distance - 2.0) < 0.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AffineMap(3, kind="circular"), "kind: expected one of"),
        (lambda: AffineMap(0), "positive sizes"),
        (lambda: AffineMap(3, 2, kind="diagonal"), "diagonal map keeps"),
        (lambda: AffineMap(3)(torch.zeros(4, 2)), "expected 3 features"),
        (lambda: setattr(AffineMap(3, kind="diagonal"), "weight", torch.eye(3)), "kind 'free' only"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_inputs_of_another_precision_are_refused():
    affine, x = AffineMap(3, 2), torch.randn(5, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"x: expected torch.float32, .* or convert the model by .to\(torch.float64\)"):
        affine(x)
    assert affine.to(torch.float64)(x).dtype == torch.float64
