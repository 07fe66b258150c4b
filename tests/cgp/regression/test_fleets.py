"""Many tables, a model each: the guide's recipe on two local workers of joblib, and of dask where that is installed."""

import contextlib
import os
import pickle
import re
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch

from cgp.regression import CorrelatedGPRegressor

GUIDE = Path(__file__).parents[3] / "docs/guides/regression-more.md"


def recipe():
    """The guide's function, as a worker gets it: without a module that it could import."""
    block = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if "Parallel" in block)
    names = {"CorrelatedGPRegressor": CorrelatedGPRegressor, "__name__": "__main__"}
    exec(block.split("tables =")[0], names)

    def fitted(x, y):
        torch.set_num_threads(2)  # as on a machine with several cores
        model = names["fitted"](x, y)
        return model, os.getpid(), torch.get_num_threads()

    fitted.__module__ = "__main__"
    return fitted


@contextlib.contextmanager
def workers(backend):
    if backend == "loky":
        yield
        return
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster), joblib.parallel_config(backend):
        yield


def tables(count):
    x = np.linspace(0.0, 6.0, 60)[:, None]
    generator = np.random.default_rng(0)
    return [(x, np.sin(x + np.arange(2)) + 0.1 * generator.normal(size=(60, 2))) for _ in range(count)]


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_two_workers_fit_what_one_process_fits(backend):
    fitted, some = recipe(), tables(4)
    with workers(backend):
        answers = joblib.Parallel(n_jobs=2)(joblib.delayed(fitted)(*table) for table in some)
    assert os.getpid() not in {process for _, process, _ in answers}
    assert {threads for *_, threads in answers} == {1}
    for (model, *_), (x, y) in zip(answers, some, strict=True):
        expected = CorrelatedGPRegressor("matern32", structure="coregionalised", random_state=0).fit(x, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_allclose(again.predict(x), expected.predict(x), atol=1e-6)
