"""Parts that the papers' tables share."""

from collections.abc import Mapping

from experiments.reports.papers.names import CATEGORIES
from experiments.reports.papers.specification import Block, Question

__all__ = ["CALIBRATION", "by_category", "cost", "on_test_set", "only"]

CALIBRATION = ("accuracy", "nll", "mce", "ece")
_ALL_KINDS = tuple(kind for kinds in CATEGORIES.values() for kind in kinds)


def only(methods: Mapping[str, str], *names: str) -> dict[str, str]:
    """Some of the methods, in the order of the names."""
    return {name: methods[name] for name in names}


def on_test_set(
    dataset: str,
    folders: tuple[str, ...],
    methods: Mapping[str, str],
    metrics: tuple[str, ...],
    samples: int,
    substitutes: tuple[str, ...] = (),
) -> Block:
    """Rows of a test set."""
    data = folders[0].partition("-")[0]
    return Block(
        dataset,
        folders,
        Question("test"),
        metrics,
        methods,
        samples=samples,
        substitutes=substitutes,
        data=(data,),
        gpu=data != "cola",
    )


def by_category(dataset: str, folder: str, methods: Mapping[str, str]) -> tuple[Block, ...]:
    """Rows of corrupted images: a block a category, and one for the mean over all 19 kinds."""
    groups = dict(CATEGORIES) | {"Avg": _ALL_KINDS}
    return tuple(
        Block(
            dataset,
            (folder,),
            Question("corrupted", kinds),
            CALIBRATION,
            methods,
            shift=shift,
            samples=10_000,
            data=(folder,),
        )
        for shift, kinds in groups.items()
    )


def cost(methods: Mapping[str, str]) -> Block:
    """Rows of time and memory on CIFAR-10."""
    metrics = ("seconds_per_epoch", "peak_memory")
    return Block("CIFAR-10", ("cifar10",), Question("cost"), metrics, methods, data=("cifar10",))
