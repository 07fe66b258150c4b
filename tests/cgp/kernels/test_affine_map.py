import pytest
import torch

from cgp.kernels import AffineMap

SIZES = {"free": (3, 2), "diagonal": (3, 3)}


@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 2)])
@pytest.mark.parametrize("kind", SIZES)
def test_is_affine_for_each_batch_member(kind, batch_shape):
    torch.manual_seed(0)
    d, s = SIZES[kind]
    one = AffineMap(d, s, kind=kind, batch_shape=torch.Size(batch_shape)).double()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(*batch_shape, 5, d, dtype=torch.float64)
    expected = torch.einsum("...nd,...sd->...ns", x, one.weight) + one.bias.unsqueeze(-2)
    torch.testing.assert_close(one(x), expected)
    assert one.weight.shape == (*batch_shape, s, d)


@pytest.mark.parametrize("sizes", [(8, 8), (8, 3), (3, 8)])
def test_initial_distances_do_not_depend_on_the_sizes(sizes):
    torch.manual_seed(2)
    x = torch.randn(2000, sizes[0])
    z = AffineMap(*sizes)(x)
    distance = (z[::2] - z[1::2]).square().sum(-1).mean()
    assert abs(distance - 2.0) < 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 3, "kind": "circular"}, "kind: expected one of"),
        ({"in_features": 0}, "positive sizes"),
        ({"in_features": 3, "out_features": 2, "kind": "diagonal"}, "diagonal map keeps"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        AffineMap(**arguments)


def test_refuses_inputs_of_the_wrong_size_and_a_weight_it_cannot_take():
    with pytest.raises(ValueError, match="expected 3 features"):
        AffineMap(3)(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="kind 'free' only"):
        AffineMap(3, kind="diagonal").weight = torch.eye(3)
