"""The registry of attention blocks is used by rows, benchmarks and tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from cgp import attention
from cgp.attention import Attention, CorrelatedAttention, GaussianProcessAttention
from experiments import benchmarks
from experiments.configuration import MethodConfig
from experiments.registry import BLOCKS, block_class, forms
from experiments.runs.parsing import resolve

ROOT = Path(__file__).resolve().parents[2]


def test_every_block_of_the_library_is_in_the_list():
    exported = {getattr(attention, name) for name in attention.__all__}
    blocks = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Attention)}
    assert {block_class(name) for name in BLOCKS} == blocks - {Attention, GaussianProcessAttention, CorrelatedAttention}


def test_the_benchmarks_time_every_form_against_softmax():
    assert list(benchmarks.BLOCKS) == [form.title for form in forms().values()]
    assert next(iter(benchmarks.BLOCKS)) == "softmax attention"
    assert forms()["cgp latent"].make(8, 2).coupling == "latent"


def test_a_row_takes_any_of_them_and_no_other(capsys):
    for name in BLOCKS:
        row = resolve(["digits/softmax"], [f"method.attention={name}"])
        assert row.method == MethodConfig(**{**vars(row.method), "attention": name})
    with pytest.raises(SystemExit):
        resolve(["digits/softmax"], ["method.attention=softmaxx"])
    assert "method.attention: expected one of " in (said := capsys.readouterr().err)
    assert ", got softmaxx" in said
    with pytest.raises(ValueError, match="attention: expected one of softmax, .*primal, got 'softmaxx'"):
        block_class("softmaxx")


def test_the_names_are_known_without_torch():
    script = "import sys, experiments.configuration; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
