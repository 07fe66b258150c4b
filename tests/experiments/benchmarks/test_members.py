"""Members trained at once are the members trained one after the other."""

import torch

from cgp.attention import SoftmaxAttention
from experiments.benchmarks.members import members, one_after_the_other, together
from models import DIGITS, VisionTransformer


def test_steps_of_all_members_at_once_have_the_losses_of_each_alone():
    torch.manual_seed(0)
    networks = [
        VisionTransformer(**(DIGITS | {"dropout": 0.0}), num_classes=10, attention=SoftmaxAttention).double()
        for _ in range(3)
    ]
    size = DIGITS["image_size"]
    inputs = torch.randn(3, 4, DIGITS["channels"], size, size, dtype=torch.float64)
    labels = torch.randint(10, (3, 4))
    both = together(networks, inputs, labels)  # copies the weights before the others change
    apart = one_after_the_other(networks, inputs, labels)
    for _ in range(4):
        torch.testing.assert_close(torch.stack(both()), torch.stack(apart()), rtol=1e-7, atol=1e-9)


def test_the_table_has_a_line_for_each_case_and_method(capsys):
    before = torch.get_num_threads()
    members(cases=("digits", "CoLA"), methods=("softmax", "SGPA"), count=2, threads=before, seconds=0.0)
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [cells[:2] for cells in lines] == [
        [f"| {case}", method] for case in ("digits", "CoLA") for method in ("softmax", "SGPA")
    ]
    assert all(float(cells[3]) > 0 for cells in lines)
