"""The typed configuration of a run; `experiments/configs` holds the values."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from experiments.registry import BLOCKS

__all__ = [
    "CorruptionConfig",
    "DataConfig",
    "EvaluationConfig",
    "MethodConfig",
    "ModelConfig",
    "Protocol",
    "RunConfig",
    "TrainerConfig",
    "TrainingConfig",
    "each_seed",
    "flattened",
]


Protocol = Literal["pooled", "cgpt", "kep", "sgpa"]
"""How the numbers of a table are computed from predictions: our protocol, and those of three papers."""

if TYPE_CHECKING:
    AttentionName = str
else:
    AttentionName = Literal[tuple(BLOCKS)]  # checked on the command line and in YAML files


@dataclass(frozen=True, kw_only=True)
class CorruptionConfig:
    """The corrupted test images to predict.

    Args:
        kinds: names of corruptions; None for all of the data set (19 for CIFAR, 5 for the digits, none for
            other sets), an empty list for none.
        severities: severities, of 1 to 5.
        limit: number of test images, the same images for every kind, severity and seed; None for all.
        source: "official" reads the published CIFAR-10-C or CIFAR-100-C files, "generated" generates images, "auto"
            reads the published files if they exist.
        seed: seed of the noise and places of generated corruptions.
    """

    kinds: tuple[str, ...] | None = None
    severities: tuple[int, ...] = (1, 3, 5)
    limit: int | None = 1000
    source: Literal["auto", "official", "generated"] = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if not set(self.severities) <= {1, 2, 3, 4, 5}:
            raise ValueError(f"data.corruptions.severities: expected some of 1 to 5, got {self.severities}")
        _check_counts("data.corruptions", self, "limit")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """A data set, its split, and the inputs that are predicted besides its test part.

    Args:
        name: digits, cifar10, cifar100, svhn, textures, lsun_crop, lsun_resize, tiny_imagenet, tiny_imagenet_crop,
            tiny_imagenet_resize, cola, imdb, sst2 or clinc150; or another name, with `folder` or
            `<root>/<name>/<split>.npz`.
        root: folder of the data sets; None for the environment variable CGP_DATA.
        folder: folder of your own images, one sub-folder per class (or such folders in train/, validation/ and test/).
        download: let torchvision or pytorch-ood download missing files into `root`.
        split: split of CoLA: "pooled" (train and dev together, 80 : 20, as in CGPT's code), "selected" (70 : 10 : 20)
            or "official" (8,551 : 527); a part of the training texts is always held out for selection.
        split_seed: seed of the held-out examples; None for the seed of the run. Runs of one split can be
            joined to an ensemble.
        validation: share of the training examples that is held out if a set has no validation part.
        unchecked: accept files that are not the published ones (number of examples, checksum): differences are then
            listed in the description's deviations instead of being an error.
        limit_train: largest number of training examples ("reduced").
        limit_validation: largest number of validation examples.
        limit_test: largest number of test examples.
        limit_ood: largest number of inputs of each OOD set; None for as many as the test part has.
        image_size: side to which images are resized and cropped; None for the set's size (for `folder`: 32).
        ood: OOD inputs: names of image sets, folders of images, .npz files, or kinds that
            are made from the test images (inverted, shuffled-patches, uniform-noise, gaussian-noise); None for the four
            kinds with the digits, and nothing with other sets.
        corruptions: the corrupted test images.
        encoder: folder or hub name of a transformers encoder whose frozen states are the tokens' embeddings; None for
            learned embeddings.
        max_length: tokens after which a text is cut; None for the set's length.
        vocabulary_size: largest number of symbols, the most frequent ones; None for all.
        min_count: smallest count of a word in the training part for a symbol of its own; rarer words share
            one symbol, so that the meaning of unknown words is learned.
        cache: folder of the encoders' states, which are computed once; None for the environment variable
            CGP_CACHE, or else the user's cache.
    """

    name: str = "digits"
    root: Path | None = None
    folder: Path | None = None
    download: bool = False
    split: Literal["pooled", "selected", "official"] = "selected"
    split_seed: int | None = 0
    validation: float = 0.1
    unchecked: bool = False
    limit_train: int | None = None
    limit_validation: int | None = None
    limit_test: int | None = None
    limit_ood: int | None = None
    image_size: int | None = None
    ood: tuple[str, ...] | None = None
    corruptions: CorruptionConfig = field(default_factory=CorruptionConfig)
    encoder: str | None = None
    max_length: int | None = None
    vocabulary_size: int | None = None
    min_count: int = 2
    cache: Path | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.validation < 1.0:
            raise ValueError(f"data.validation: expected a share between 0 and 1, got {self.validation}")
        limits = ("limit_train", "limit_validation", "limit_test", "limit_ood")
        _check_counts("data", self, *limits, "image_size", "max_length", "vocabulary_size", "min_count")
        if self.name == "digits" and self.folder is None and self.image_size is not None:
            raise ValueError(f"data.image_size: expected none with the digits, 8 x 8 images, got {self.image_size}")

    @property
    def data_root(self) -> Path:
        """The folder of the data sets.

        Raises:
            ValueError: if neither `root` nor CGP_DATA says where it is.
            FileNotFoundError: if the folder does not exist.
        """
        named = self.root or os.environ.get("CGP_DATA")
        if not named:
            raise ValueError(
                f"data.root: expected the folder that holds the data set {self.name!r}, got nothing; set it, or the "
                "environment variable CGP_DATA"
            )
        root = Path(named).expanduser()
        if not root.is_dir() and not self.download:
            raise FileNotFoundError(f"data.root: expected a folder, got {root}, which is not there")
        return root

    def check_place(self) -> None:
        """Fail where the folder of the data is not there; what is in it is checked as it is read.

        Raises:
            ValueError: if nothing says where it is.
            FileNotFoundError: if it is not there.
        """
        if self.folder is None:
            _ = self.name == "digits" or self.data_root
        elif not self.folder.expanduser().is_dir():
            raise FileNotFoundError(
                f"data.folder: expected a folder with one sub-folder a class, {self.folder} is not there"
            )

    @property
    def cache_folder(self) -> Path:
        """The folder of the encoders' states."""
        named = self.cache or os.environ.get("CGP_CACHE")
        users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(named).expanduser() if named else Path(users) / "cgp"


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the transformer, the same for every method.

    Args:
        depth: number of layers.
        embed_dim: width of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        dropout: probability of dropping an entry of the embedding and of each branch.
        patch_size: for images, the side of a patch in pixels.
        pooling: for images, how the tokens are combined to one vector; for texts it is their mean.
    """

    depth: int
    embed_dim: int
    mlp_dim: int
    num_heads: int
    dropout: float
    patch_size: int | None = None
    pooling: Literal["mean", "sequence"] = "mean"

    def __post_init__(self) -> None:
        _check_counts("model", self, "depth", "embed_dim", "mlp_dim", "num_heads", "patch_size")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout: expected a probability in [0, 1), got {self.dropout}")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The training budget, the same for every method.

    Args:
        epochs: passes over the training examples.
        batch_size: examples per step, over all devices together.
        warmup_epochs: number of epochs over which the learning rate increases.
        gradient_clip: largest norm of the gradient; None for no limit.
        validation_draws: number of draws of the validation predictions by which the best epoch is selected.
        optimizer: "adamw" decouples the weight decay, "adam" adds it to the gradient.
        schedule: learning rate after the warm-up: "one_cycle" (a cosine to nearly 0, its warm-up a cosine too),
            "cosine" or "linear" to `final_learning_rate`.
        final_learning_rate: final learning rate of "cosine" and "linear".
        monitor: validation metric that selects the best epoch; "epoch" takes the last one.
        augmentation: augmentation of training images: "crop_and_flip" pads by 4 pixels, crops and flips at random.
        share: trained share of the epochs and of the warm-up: 0.02 means 12 of 600 epochs, and 4 of 200 for a row from
            which another one starts.
    """

    epochs: int
    batch_size: int
    warmup_epochs: float
    gradient_clip: float | None
    validation_draws: int
    optimizer: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["one_cycle", "cosine", "linear"] = "one_cycle"
    final_learning_rate: float = 1e-5
    monitor: Literal["validation_nll", "validation_accuracy", "validation_mcc", "epoch"] = "validation_nll"
    augmentation: Literal["none", "crop_and_flip"] = "none"
    share: float = 1.0

    def __post_init__(self) -> None:
        _check_counts("training", self, "epochs", "batch_size", "validation_draws")
        if self.warmup_epochs < 0:
            raise ValueError(f"training.warmup_epochs: expected none or more, got {self.warmup_epochs}")
        if not 0 < self.share <= 1:
            raise ValueError(f"training.share: expected a share of the epochs in (0, 1], got {self.share}")

    @property
    def passes(self) -> int:
        """Number of epochs that are trained, at least one."""
        return max(1, round(self.share * self.epochs))


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Where and how a training runs; it affects results only by rounding, and by the draws on several devices.

    Args:
        accelerator: hardware to train on.
        devices: number of processes per machine, each with one device.
        num_nodes: number of machines.
        strategy: "auto" for one device, "ddp" for several.
        precision: floating-point precision, except for Gaussian-process algebra, which stays in float32.
        progress: whether to show a progress bar, or a line per epoch if the output is no terminal.
        threads: number of threads of each process on the CPU; None for one if the model is less than 128 wide, as that
            of digits, else torch's default.
    """

    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: Literal["auto", "ddp"] = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    progress: bool = True
    threads: int | None = None

    def __post_init__(self) -> None:
        _check_counts("trainer", self, "devices", "num_nodes", "threads")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The predictions of the trained models.

    Args:
        draws: number of draws of a prediction.
        batch_size: examples per batch.
        full: predict all corrupted test images at all severities, not a fixed part of them.
    """

    draws: int
    batch_size: int = 256
    full: bool = False

    def __post_init__(self) -> None:
        _check_counts("evaluation", self, "draws", "batch_size")


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """One row of the table: an attention and the values selected for it on validation data.

    Args:
        label: name in tables and pictures.
        attention: name of the attention in `experiments.registry`.
        options: keyword arguments of the attention, or of the method that `kind` names.
        learning_rate: largest learning rate.
        weight_decay: weight decay of the optimizer.
        alpha: weight of the log-density terms at the end of their annealing.
        alpha_start: weight of the log-density terms at the beginning.
        alpha_annealing: share of the training over which this weight increases linearly.
        layers: layers with this attention, "all" or "last"; the others have softmax.
        annealing: share of the training over which the weight of the divergences increases from 0 to 1.
        init_from: row of the same data and seed whose weights the training starts from.
        kind: "attention", or a modification of the softmax transformer ("mfvi", "sngp"), or a method derived
            from trained runs of `base` without training ("temperature", "mc_dropout", "kfllla", "ensemble").
        base: row that a derived method needs.
    """

    label: str
    attention: AttentionName = "softmax"
    options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float
    weight_decay: float = 0.0
    alpha: float = 0.0
    alpha_start: float = 0.0
    alpha_annealing: float = 0.5
    layers: Literal["all", "last"] = "all"
    annealing: float = 0.0
    init_from: str | None = None
    kind: Literal["attention", "mfvi", "sngp", "temperature", "mc_dropout", "kfllla", "ensemble"] = "attention"
    base: str | None = None


_TRAINED_KINDS = ("attention", "mfvi", "sngp")  # the other kinds of methods are derived


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One row of a table with a seed: data, model, method, training and predictions.

    Args:
        name: `<data>/<method>`, the folder of its runs.
        data: the data set and the inputs that are predicted besides its test part.
        model: sizes of the transformer.
        method: the attention, or the method derived from another row.
        training: the training budget.
        evaluation: draws and scope of the predictions.
        seed: seed of initial weights, order of the examples and draws, and of the split if the data say so.
        deviations: deviations from the paper, in words.
        reduced: further reductions, in words.
    """

    name: str
    data: DataConfig
    model: ModelConfig
    method: MethodConfig
    training: TrainingConfig
    evaluation: EvaluationConfig
    seed: int = 0
    deviations: list[str] = field(default_factory=list)
    reduced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts = self.name.split("/")
        if len(parts) != 2 or not all(_is_plain(part) for part in parts):
            raise ValueError(f"name: expected <data>/<method> of letters, digits and ._-+=, got {self.name!r}")
        if self.seed < 0:
            raise ValueError(f"seed: expected none or a positive whole number, got {self.seed}")
        kind, base = self.method.kind, self.method.base
        if (kind in _TRAINED_KINDS) != (base is None):
            expected = "none" if kind in _TRAINED_KINDS else "the row that it is derived from"
            raise ValueError(f"method.base: expected {expected} for kind {kind!r}, got {base!r}")

    @property
    def epochs(self) -> int:
        """Number of epochs of the training; 1 for a derived method."""
        return self.training.passes if self.method.base is None else 1

    def folder(self, out: Path) -> Path:
        """Return the folder of the run."""
        return out / self.name / f"seed-{self.seed}"

    def needs(self) -> list[tuple[str, int]]:
        """Return name and seed of every run that must be complete before this one begins."""
        other = self.method.init_from if self.method.base is None else self.method.base
        if other is None:
            return []
        count = int(self.method.options.get("members", 5)) if self.method.kind == "ensemble" else 1
        beside = f"{self.name.partition('/')[0]}/{other}"
        return [(beside, count * self.seed + member) for member in range(count)]

    def plain(self) -> dict[str, Any]:
        """Return the values as YAML reads them back: no tuples, no paths."""
        return _plain(asdict(self))


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested mapping by their dotted names.

    Args:
        values: nested mapping, such as a configuration.
        prefix: prefix of the names.

    Example:
        >>> dict(flattened({"seed": 1, "data": {"root": "here"}}))
        {'seed': 1, 'data.root': 'here'}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _is_plain(name: str) -> bool:
    """Whether a name may appear in paths, tables and pages: no formula, no markup, no control character."""
    return name[:1].isalnum() and all(character.isalnum() or character in "._-+=" for character in name)


def _check_counts(part: str, configuration: object, *names: str) -> None:
    """Raise for counts below one; None is no limit."""
    for name in names:
        count = getattr(configuration, name)
        if count is not None and count < 1:
            raise ValueError(f"{part}.{name}: expected at least 1, got {count}")


def each_seed(given: int | Sequence[int]) -> tuple[int, ...]:
    """One seed or several, as a command is given them; none is refused.

    Example:
        >>> each_seed(3), each_seed([0, 1])
        ((3,), (0, 1))
    """
    seeds = (given,) if isinstance(given, int) else tuple(given)
    if not seeds:
        raise ValueError("seeds: expected one or several, such as [0,1,2], got none")
    return seeds
