import pytest
import torch
from gpytorch.constraints import Interval

from cgp.kernels import AffineMap
from cgp.regression.process_map import ProcessMap
from cgp.regression.relative_map import RelativeMap
from cgp.regression.signs import SignedPositive
from cgp.regression.triangular_map import TriangularMap


def test_every_free_map_is_a_triangular_one_rotated():
    weight = torch.randn(2, 4, dtype=torch.float64)
    rotation, upper = torch.linalg.qr(weight[:, :2])
    signs = upper.diagonal().sign()
    target = signs[:, None] * rotation.mT @ weight
    found = TriangularMap(4, 2).double()
    found.diagonal = target.diagonal()
    with torch.no_grad():
        found.entries.copy_(target[torch.ones(2, 4).triu(1).bool()])
    x = torch.randn(7, 4, dtype=torch.float64)
    torch.testing.assert_close(found.weight, target)
    torch.testing.assert_close(torch.cdist(found(x), found(x)), torch.cdist(x @ weight.mT, x @ weight.mT))


def test_coordinates_use_the_gauge():
    maps = [ProcessMap(2, 2, process=p, embedding_dim=2) for p in range(4)]
    with torch.no_grad():
        for one in maps:
            for name, parameter in one.named_parameters():
                if name in ("coordinates", "raw_height"):
                    parameter.fill_(0.7)
    positive = float(torch.tensor(0.7).exp())
    expected = [[0.0, 0.0], [positive, 0.0], [0.7, positive], [0.7, 0.7]]
    torch.testing.assert_close(torch.stack([one.embedding.detach() for one in maps]), torch.tensor(expected))
    assert maps[0].linear.bias is None


def test_correlation_falls_with_the_distance_of_coordinates():
    one = ProcessMap(1, 1, process=1, embedding_dim=1)
    one.height = torch.tensor([0.8])
    z = one(torch.zeros(1, 1)) - ProcessMap(1, 1, process=0, embedding_dim=1)(torch.zeros(1, 1))
    assert float((-0.5 * z.square().sum()).exp().detach()) == pytest.approx(0.7261, abs=1e-4)


def test_relative_maps_follow_the_first():
    first = AffineMap(2, kind="diagonal")
    later = RelativeMap(first)
    later.ratio = torch.tensor([2.0, 0.5])
    first.scales = torch.tensor([3.0, 3.0])
    torch.testing.assert_close(later.weight.detach(), torch.diag(torch.tensor([6.0, 1.5])))
    torch.testing.assert_close(later(torch.ones(1, 2)).detach(), torch.tensor([[6.0, 1.5]]))
    assert {name for name, _ in later.named_parameters()} == {"raw_ratio", "bias"}


def test_signs_survive_the_round_trip():
    constraint = SignedPositive(torch.tensor([1.0, -1.0]))
    assert isinstance(constraint, Interval)
    values = torch.tensor([0.3, -2.0])
    torch.testing.assert_close(constraint.transform(constraint.inverse_transform(values)), values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TriangularMap(2, 3), "out_features: expected 1 to 2, got 3"),
        (lambda: RelativeMap(AffineMap(2)), "reference: expected a diagonal map, got one of kind 'free'"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()
