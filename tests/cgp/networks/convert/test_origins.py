"""Arguments from which the tensors of a forward pass are computed."""

import gc
import weakref

import torch

from cgp.networks.convert.origins import Origins


def test_a_tensor_covers_the_arguments_it_is_computed_from():
    x, y = torch.ones(2), torch.ones(2)
    origins = Origins((x,), {"context": [y]})
    q, both = 2 * x, x + y
    origins.follow([x], q)
    origins.follow([x, y], both)
    assert origins.cover(q, x)
    assert not origins.cover(q, y)
    assert not origins.cover(q, both)
    assert origins.cover(both, q)


def test_tensors_from_no_argument_cover_nothing_and_are_not_covered():
    x, cache = torch.ones(2), torch.ones(2)
    origins = Origins(x)
    origins.follow([cache], k := 3 * cache)
    assert not origins.cover(x, k)
    assert not origins.cover(k, x)
    assert not origins.cover(k, k)


def test_integer_arguments_such_as_positions_are_no_origins():
    x, positions = torch.ones(2), torch.arange(2)
    origins = Origins(x, positions)
    origins.follow([positions], table := positions.float())
    assert not origins.cover(table, table)


def test_every_output_of_a_function_is_followed():
    x = torch.ones(4)
    origins = Origins(x)
    parts = x.chunk(2)
    origins.follow([x], parts)
    assert all(origins.cover(part, x) for part in parts)


def test_intermediate_tensors_are_not_kept_alive():
    x = torch.ones(2)
    origins = Origins(x)
    intermediate = x + 1
    origins.follow([x], intermediate)
    alive = weakref.ref(intermediate)
    del intermediate
    gc.collect()
    assert alive() is None
