"""Set-up of every test: seeds, one thread (or OMP_NUM_THREADS), the default dtype, data if there are any."""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import settings

from tests import shapes

pytest.register_assert_rewrite("tests.contracts", "tests.equivalence")

shapes.install()  # before anything imports cgp
mpl.use("Agg")
# unittest's assertWarns touches names of every loaded module, and jsonargparse warns when its old ones are touched.
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

# Tests that train models, or compare numbers of trained ones. Their results must not rest on how a processor rounds.
TRAIN = (
    "cgp/networks/assess",
    "cgp/networks/convert/test_works_with.py",
    "cgp/networks/model",
    "cgp/regression",
    "cgp/variational",
    "experiments/methods",
    "experiments/runs",
    "experiments/studies",
    "experiments/training",
    "test_readme.py",
)

# No deadline: the first call of a compiled or cached path is slow and says nothing.
# Derandomised, a test that is red in one place is red for everybody.
settings.register_profile("local", deadline=None, max_examples=30)
settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list above."""
    tests = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(tests) and item.path.relative_to(tests).as_posix().startswith(TRAIN):
            item.add_marker(pytest.mark.trains)


@pytest.fixture(autouse=True)
def same_start_for_every_test() -> Iterator[None]:
    """Seed the three generators; put back the default dtype that a test may have changed, and close its figures."""
    random.seed(0)
    np.random.seed(0)  # libraries under test draw from the global generator
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def cgp_data() -> Path:
    """Folder of the data sets, from the environment variable CGP_DATA."""
    folder = os.environ.get("CGP_DATA")
    if not folder:
        pytest.skip("CGP_DATA is not set: it names the folder of the data sets")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"CGP_DATA: expected a folder, got {folder}")
    return path
