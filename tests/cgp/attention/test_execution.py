"""The blocks beyond plain eager execution: inductor, torch.func ensembles, distributed training."""

import copy
import os
import socket

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from cgp import CategoricalLikelihood, CGPAttention, Objective, SparseCGPAttention
from models import DIGITS, VisionTransformer
from tests.blocks import BLOCKS, CORRELATED

NAMES = ("softmax", "kernel", *CORRELATED)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's own attention has no vmap rule on the CPU
@pytest.mark.parametrize("sampling", ["mean", "marginal"])
@pytest.mark.parametrize("name", NAMES)
def test_ensembles_by_functional_call_and_vmap_equal_a_loop(name, sampling):
    members, x = [BLOCKS[name](12, 3).double().eval() for _ in range(3)], torch.randn(2, 5, 12, dtype=torch.float64)
    for block in members:
        block.sampling = sampling
    parameters, buffers = torch.func.stack_module_state(members)

    def call(parameters, buffers):
        return torch.func.functional_call(members[0], (parameters, buffers), (x,))

    together = torch.func.vmap(call, randomness="different")(parameters, buffers)
    assert together.shape == (3, 2, 5, 12)
    assert torch.isfinite(together).all()
    if sampling == "mean":
        for member, out in zip(members, together, strict=True):
            torch.testing.assert_close(out, member(x))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_by_torch_func_equal_autograd(name):
    block, x = BLOCKS[name](12, 3).double().eval(), torch.randn(2, 5, 12, dtype=torch.float64)
    parameters = dict(block.named_parameters())
    gradients = torch.func.grad(lambda p: torch.func.functional_call(block, p, (x,)).square().sum())(parameters)
    block(x).square().sum().backward()
    for key, parameter in parameters.items():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[key], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_inductor_equals_eager_in_value_and_gradient(name):
    torch._dynamo.reset()
    block, x = BLOCKS[name](12, 3), torch.randn(2, 5, 12)
    block.sampling = "mean"
    twin = copy.deepcopy(block)
    compiled = torch.compile(twin, fullgraph=True)
    torch.testing.assert_close(compiled(x), block(x), rtol=1e-4, atol=1e-5)
    compiled(x).square().sum().backward()
    block(x).square().sum().backward()
    for a, b in zip(twin.parameters(), block.parameters(), strict=True):
        if b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3 * b.grad.abs().max().item())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "exact latent", "sparse", "sparse latent"])
def test_inductor_draws_and_regularises(name):
    torch._dynamo.reset()
    block, x = BLOCKS[name](12, 3), torch.randn(2, 5, 12)
    objective = Objective(nn.Sequential(block, nn.Flatten(), nn.Linear(60, 3)), CategoricalLikelihood(3), 10, alpha=0.1)
    compiled = torch.compile(objective, fullgraph=True)
    losses = [compiled(x, torch.tensor([0, 1])) for _ in range(2)]
    losses[0].backward()
    assert all(torch.isfinite(loss) for loss in losses)
    assert losses[0] != losses[1]


def test_objective_compiles_whole():
    torch._dynamo.reset()
    block, x = BLOCKS["sparse latent"](12, 3), torch.randn(2, 5, 12)
    block.sampling = "mean"
    model = nn.Sequential(block, nn.Flatten(), nn.Linear(60, 3))
    objective = Objective(model, CategoricalLikelihood(3), 10, alpha=0.1)
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    y = torch.tensor([0, 1])
    torch.testing.assert_close(compiled(x, y), objective(x, y))


@pytest.mark.parametrize("name", ["exact softmax", "sparse latent"])
def test_a_whole_model_exports_in_eval(name):
    sizes = DIGITS | {"embed_dim": 12, "mlp_dim": 16, "num_heads": 3}
    model = VisionTransformer(**sizes, num_classes=3, attention=BLOCKS[name]).eval()
    images = torch.rand(2, 1, 8, 8)
    exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images), model(images))


class Model(nn.Module):
    """Two GP blocks and a head, deterministic so that processes can be compared."""

    def __init__(self):
        super().__init__()
        self.first, self.second = CGPAttention(12, 3), SparseCGPAttention(12, 3, num_inducing=4, coupling="latent")
        self.head = nn.Linear(12, 3)
        self.first.sampling = self.second.sampling = "mean"

    def forward(self, x):
        x = x + self.first(x)
        return self.head((x + self.second(x)).mean(-2))


def one_step(objective: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    optimiser = torch.optim.SGD(objective.parameters(), lr=0.1)
    objective(x, y).backward()
    optimiser.step()
    return {name: p.detach().clone() for name, p in objective.named_parameters()}


def make_objective() -> Objective:
    torch.manual_seed(0)
    return Objective(Model().double(), CategoricalLikelihood(3), num_data=8, alpha=0.2)


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 5, 12, dtype=torch.float64, generator=generator), torch.arange(8) % 3


def run_rank(rank: int, port: int, results) -> None:
    """One of two processes: half the batch each."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    x, y = make_batch()
    half = slice(4 * rank, 4 * rank + 4)
    weights = one_step(DistributedDataParallel(make_objective()), x[half], y[half])
    results[rank] = {name.removeprefix("module."): w.numpy() for name, w in weights.items()}
    dist.destroy_process_group()


def test_two_processes_step_as_one_on_the_joined_batch():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with torch.multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(run_rank, args=(port, results), nprocs=2)
        results = dict(results)
    alone = one_step(make_objective(), *make_batch())
    start = dict(make_objective().named_parameters())
    for name, weight in alone.items():
        torch.testing.assert_close(torch.tensor(results[0][name]), torch.tensor(results[1][name]))
        torch.testing.assert_close(torch.tensor(results[0][name]), weight)
    assert any(not torch.equal(alone[name], start[name]) for name in alone)
