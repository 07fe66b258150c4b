"""The limit of BLAS threads holds while a function computes under it, and ends with the last one."""

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from cgp.functional.threads import one_blas_thread, one_thread, threads_for, without_denormals
from cgp.regression import CorrelatedGPRegressor
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.processes import matern_process
from cgp.statespace.space import state_space


def counts() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}


@pytest.fixture
def three_threads():
    """More than one thread, whatever the environment says."""
    with ThreadpoolController().limit(limits=3, user_api="blas"):
        if counts() != {3}:
            pytest.skip("BLAS cannot use three threads here")
        yield


def test_limit_holds_and_ends(three_threads):
    inner = one_blas_thread(counts)
    outer = one_blas_thread(lambda: (inner(), counts()))
    assert outer() == ({1}, {1})
    assert counts() == {3}


def test_limit_ends_after_an_error(three_threads):
    with pytest.raises(ZeroDivisionError):
        one_blas_thread(lambda: 1 / 0)()
    assert counts() == {3}


def test_limit_ends_with_the_last_of_several_threads(three_threads):
    entered, release = threading.Event(), threading.Event()

    @one_blas_thread
    def wait():
        entered.set()
        release.wait()

    other = threading.Thread(target=wait)
    other.start()
    entered.wait()
    try:
        assert one_blas_thread(counts)() == {1}
    finally:
        release.set()
        other.join()
    assert counts() == {3}


def test_recursions_of_a_state_space_use_one_thread(three_threads, monkeypatch):
    seen = []
    monkeypatch.setattr("cgp.statespace.factors.lanes_are_faster", lambda *_: False)
    monkeypatch.setattr(
        "cgp.statespace.filter.dpotrf", lambda a, **_: seen.append(counts()) or (np.linalg.cholesky(a), 0)
    )
    process = matern_process(torch.zeros(1, dtype=torch.float64), 1)
    space = state_space([process], [torch.ones(1, 1)], torch.zeros(2, dtype=torch.long))
    y = torch.ones(2, 1, dtype=torch.float64)
    _ = StateSpacePosterior(space, y, y, y.bool()).variance
    assert len(seen) == 4
    assert all(threads == {1} for threads in seen)


def test_fits_to_few_observations_take_one_thread(three_threads, monkeypatch):
    """And learning from windows, of any series; predictions from many observations may take more."""

    with one_thread():
        assert torch.get_num_threads() == 1
        assert counts() == {1}
    for observations, expected in ((2000, {1}), (2001, {3})):
        with threads_for(observations):
            assert counts() == expected
    seen = []
    monkeypatch.setattr("cgp.regression.inference.fitting.minimise", lambda *_, **__: seen.append(counts()) or 1 / 0)
    monkeypatch.setattr("cgp.regression.inference.windows.window_evidence", lambda *_: seen.append(counts()) or 1 / 0)
    x = np.arange(30.0)[:, None]
    for options in ({"inference": "map"}, {"structure": "multiscale"}):
        with pytest.raises(ZeroDivisionError):
            CorrelatedGPRegressor(**options).fit(x, np.sin(x[:, 0]))
    assert seen == [{1}, {1}]
    assert counts() == {3}


def test_numbers_near_zero_are_zeros_within_a_fit_only():
    """Of few observations; one that had none before has none afterwards, also after an error."""
    tiny = torch.tensor([1e-310], dtype=torch.float64)
    assert (tiny * 1.0).item() > 0.0
    for observations, are_zero in ((2000, True), (2001, False)):
        with threads_for(observations):
            assert ((tiny * 1.0).item() == 0.0) == are_zero
    with without_denormals():
        with pytest.raises(ZeroDivisionError), without_denormals():
            assert 1 / 0
        assert (tiny * 1.0).item() == 0.0
    assert (tiny * 1.0).item() > 0.0
