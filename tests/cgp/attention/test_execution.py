"""The blocks beyond plain eager execution: inductor, torch.func ensembles, distributed training."""

import copy
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from cgp import CategoricalLikelihood, CGPAttention, Objective, SparseCGPAttention, convert
from cgp.networks.model.blocks import attention_blocks
from models import DIGITS, VisionTransformer
from tests.blocks import BLOCKS, CORRELATED
from tests.cgp.networks.convert import hosts

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
@pytest.mark.parametrize("name", ["cgp", "cgp latent", "sparse_cgp", "sparse_cgp latent"])
def test_inductor_draws_and_regularises(name):
    torch._dynamo.reset()
    block, x = BLOCKS[name](12, 3, objective="marginal"), torch.randn(2, 5, 12)
    objective = Objective(nn.Sequential(block, nn.Flatten(), nn.Linear(60, 3)), CategoricalLikelihood(3), 10, alpha=0.1)
    compiled = torch.compile(objective, fullgraph=True)
    losses = [compiled(x, torch.tensor([0, 1])) for _ in range(2)]
    losses[0].backward()
    assert all(torch.isfinite(loss) for loss in losses)
    assert losses[0] != losses[1]


def test_objective_compiles_whole():
    torch._dynamo.reset()
    block, x = BLOCKS["sparse_cgp latent"](12, 3, objective="marginal"), torch.randn(2, 5, 12)
    block.sampling = "mean"
    model = nn.Sequential(block, nn.Flatten(), nn.Linear(60, 3))
    objective = Objective(model, CategoricalLikelihood(3), 10, alpha=0.1)
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    y = torch.tensor([0, 1])
    torch.testing.assert_close(compiled(x, y), objective(x, y))


@pytest.mark.parametrize("name", ["cgp softmax's mean", "sparse_cgp latent"])
def test_a_whole_model_exports_in_eval(name):
    sizes = DIGITS | {"embed_dim": 12, "mlp_dim": 16, "num_heads": 3, "depth": 1}
    model = VisionTransformer(**sizes, num_classes=3, attention=BLOCKS[name]).eval()
    images = torch.rand(2, 1, 8, 8)
    exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images), model(images))


NETWORKS = ("blocks", "mean of a host", "draws")


def make_objective(name: str) -> Objective:
    torch.manual_seed(0)
    if name == "blocks":
        blocks = CGPAttention(12, 3), SparseCGPAttention(12, 3, coupling="latent", objective="marginal")
        model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(60, 5)).double()
    else:
        model = convert(hosts.timm_vit().model.double(), layers="all", amplitude=0.5).train()
    for block in attention_blocks(model):
        block.sampling = "marginal" if name == "draws" else "mean"  # processes can be compared
    return Objective(model, CategoricalLikelihood(5), num_data=8, alpha=0.2 if name == "blocks" else 0.0)


def make_batch(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    size = (8, 5, 12) if name == "blocks" else (8, 3, 16, 16)
    return torch.randn(size, dtype=torch.float64, generator=generator), torch.arange(8) % 3


def two_steps(objective: nn.Module, parts: list[tuple[int, torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Weights after two steps on the mean over parts of a batch, each with a seed for its draws."""
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.1)
    for step in range(2):  # the second fails where a gradient was waited for in vain
        optimizer.zero_grad()
        for seed, x, y in parts:
            torch.manual_seed(10 * step + seed)
            (objective(x, y) / len(parts)).backward()
        optimizer.step()
    return {name.removeprefix("module."): p.detach().clone() for name, p in objective.named_parameters()}


def half(name: str, rank: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    x, y = make_batch(name)
    rows = slice(4 * rank, 4 * rank + 4)
    return rank, x[rows], y[rows]


def run_rank(rank: int, folder: Path) -> None:
    """One of two processes: half the batch each; the weights are saved in the folder."""
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", meeting, rank=rank, world_size=2, timeout=timedelta(minutes=3))
    found = {}
    for name in NETWORKS:
        parallel = DistributedDataParallel(make_objective(name), find_unused_parameters=name != "draws")  # amplitudes
        found[name] = two_steps(parallel, [half(name, rank)])
    dist.destroy_process_group()
    torch.save(found, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, dict[str, torch.Tensor]]]:
    """Weights that two processes found, this one and another."""
    folder = tmp_path_factory.mktemp("ranks")
    other = torch.multiprocessing.get_context("spawn").Process(target=run_rank, args=(1, folder))
    other.start()
    run_rank(0, folder)
    other.join()
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", NETWORKS)
def test_two_processes_step_as_one_on_the_joined_batch(name, ranks):
    draws = name == "draws"  # those of the halves, then
    expected = two_steps(make_objective(name), [half(name, 0), half(name, 1)] if draws else [(0, *make_batch(name))])
    start = {key: parameter.detach() for key, parameter in make_objective(name).named_parameters()}
    for key, weight in expected.items():
        torch.testing.assert_close(ranks[0][name][key], ranks[1][name][key], rtol=0, atol=0)
        torch.testing.assert_close(ranks[0][name][key], weight, rtol=1e-7, atol=1e-9)
    moved = {key for key, weight in expected.items() if not torch.equal(weight, start[key])}
    assert any("qkv.weight" in key or "in_proj.weight" in key for key in moved)
    assert any("gp.log_amplitude" in key for key in moved) == draws
