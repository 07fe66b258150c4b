import gpytorch.kernels as stock
import pytest
import torch

from cgp.functional.kernels import canonical
from cgp.kernels import BASE_KERNELS, CorrelatedKernel, check_positive_semidefinite

ACCEPTED = {
    "rbf": stock.RBFKernel,
    "matern": stock.MaternKernel,
    "rq": stock.RQKernel,
    "periodic": stock.PeriodicKernel,
    "piecewise": lambda: stock.PiecewisePolynomialKernel(q=1),
    "scaled": lambda: stock.ScaleKernel(stock.RBFKernel()),
    "ard": lambda: stock.RBFKernel(ard_num_dims=3),
    "mixture": lambda: stock.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3),
    "features": lambda: stock.RFFKernel(num_samples=16),
    "sum": lambda: stock.RBFKernel() + stock.PeriodicKernel(),
    "product": lambda: stock.RBFKernel() * stock.MaternKernel(),
    "linear": stock.LinearKernel,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_joint_covariance_is_psd_for_any_stock_kernel(name):
    kernel = CorrelatedKernel(ACCEPTED[name](), 2, 2, canonical_dim=3).double()
    joint = kernel.joint([torch.randn(6, 2).double(), torch.randn(7, 2).double()]).to_dense()
    assert torch.linalg.eigvalsh(joint)[0] > -1e-9 * joint.diagonal().max()


@pytest.mark.parametrize("name", BASE_KERNELS)
def test_named_kernels_are_the_functional_ones(name):
    kernel = CorrelatedKernel(name, 2, 3).double()
    x1, x2 = torch.randn(5, 3).double(), torch.randn(4, 3).double()
    z1, z2 = kernel.input_maps[0](x1), kernel.input_maps[1](x2)
    torch.testing.assert_close(kernel.cross(0, 1)(x1, x2).to_dense(), canonical(name).gram(z1, z2))
    assert not kernel.covar_module.raw_lengthscale.requires_grad


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_cosine_is_refused_beyond_one_dimension(dim):
    check_positive_semidefinite(stock.CosineKernel(), 1)
    with pytest.raises(ValueError, match=f"not positive semi-definite in {dim} dimensions"):
        CorrelatedKernel(stock.CosineKernel(), 2, dim)


def test_refuses_kernels_that_are_no_canonical_covariance():
    with pytest.raises(ValueError, match="expected a kernel or one of"):
        CorrelatedKernel("rbfs", 2, 1)
    with pytest.raises(ValueError, match="expected a gpytorch Kernel"):
        CorrelatedKernel(torch.nn.Identity(), 2, 1)
    with pytest.raises(ValueError, match="one output an input"):
        CorrelatedKernel(stock.RBFKernelGrad(), 2, 1)
    with pytest.raises(ValueError, match="cannot be evaluated in 2 dimensions"):
        CorrelatedKernel(stock.RBFKernel(ard_num_dims=3), 2, 2)


def test_the_check_leaves_the_kernel_and_the_generator_alone():
    kernel = stock.RQKernel()
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    state = torch.random.get_rng_state()
    check_positive_semidefinite(kernel, 3)
    assert torch.equal(state, torch.random.get_rng_state())
    assert kernel.dtype == torch.float32
    assert all(torch.equal(before[name], value) for name, value in kernel.state_dict().items())


class Lowered(stock.RBFKernel):
    """A kernel minus a constant: its Gram matrices have one negative eigenvalue, and no more."""

    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag=diag, **params) - 0.5


def test_one_negative_eigenvalue_is_refused():
    with pytest.raises(ValueError, match="not positive semi-definite in 1 dimensions"):
        check_positive_semidefinite(Lowered(), 1)
