import pytest
import torch

from cgp.regression.whitened import whitened_sums


def leaves(*batch, sizes=(3, 2), n=5):
    generator = torch.Generator().manual_seed(0)
    factors, crosses = [], []
    for m in sizes:
        root = torch.randn(*batch, m, m, generator=generator, dtype=torch.float64)
        factors.append(torch.linalg.cholesky(root @ root.mT + torch.eye(m)))
        crosses.append(torch.randn(*batch, m, n, generator=generator, dtype=torch.float64))
    return factors, crosses, torch.randn(n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("sizes", [(3,), (3, 2)])
def test_sums_and_gradients(batch, sizes):
    factors, crosses, targets = leaves(*batch, sizes=sizes)
    features = torch.cat(
        [torch.linalg.solve_triangular(L, C, upper=False) for L, C in zip(factors, crosses, strict=True)], dim=-2
    )
    gram, product = whitened_sums(factors, crosses, targets)
    torch.testing.assert_close(gram, features @ features.mT)
    torch.testing.assert_close(product, features @ targets)

    def weighted(targets, *arguments):
        # The gradients of the two are neither symmetric nor equal. The lower triangle of a factor alone is read.
        factors = [one.tril() for one in arguments[: len(sizes)]]
        gram, product = whitened_sums(factors, list(arguments[len(sizes) :]), targets)
        weights = torch.arange(float(gram[..., 0, 0].numel() * gram.shape[-1] ** 2)).reshape(gram.shape)
        return (weights * gram).sum() + (weights[..., 0] * product).sum()

    arguments = [one.requires_grad_() for one in (targets, *factors, *crosses)]
    assert torch.autograd.gradcheck(weighted, arguments)
