"""The report on a transformer that scores speech, distillmos: the quality of a clip, heard through noise.

Clips are synthetic speech of espeak-ng. There are no listeners' scores: the value to predict is the network's score
of the clean clip, its input the same clip with noise, every other one clipped, too.
`python -m experiments.studies.speech --count 100`
"""

import ctypes
import math
import sys
from contextlib import redirect_stdout
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jsonargparse import auto_cli
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import Tensor

import cgp
from cgp.networks.tasks import Regression
from experiments.studies.packages import package

__all__ = ["assess", "clips", "degraded", "host", "in_length", "score", "states"]

Batch = tuple[Tensor, Tensor]

_RATE = 16_000  # Hz
_LENGTH = 122_880  # samples that the network reads, 7.68 s
_BATCH = 10
_SYNCHRONOUS, _SPEED, _PITCH, _UTF8 = 2, 1, 3, 1  # numbers of espeak-ng's interface
_SENTENCES = (
    "The birch canoe slid on the smooth planks.", "Glue the sheet to the dark blue background.",
    "It's easy to tell the depth of a well.", "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.", "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.", "The hogs were fed chopped corn and garbage.",
    "Four hours of steady work faced us.", "A large size in stockings is hard to sell.",
)  # fmt: skip
_VOICES = (*(f"en-us+m{number}" for number in range(1, 8)), *(f"en-us+f{number}" for number in range(1, 6)))


def assess(*, count: int = 100, num_samples: int = 4) -> None:
    """Assess the scores of degraded clips, apply the recommendation and the other methods, and score them on others.

    Args:
        count: clips to assess with, as many to train the read-out on, and as many to score.
        num_samples: draws of the posterior.
    """
    network, clean = host(), clips(3 * count)
    with torch.inference_mode():
        values = torch.cat([score(network(states(part))) for part in clean.split(_BATCH)]).clone()
    train, known, new = (
        list(zip(x.split(_BATCH), y.split(_BATCH), strict=True))
        for x, y in zip(states(degraded(clean)).split(count), values.split(count), strict=True)
    )
    report = cgp.assess(network, known, task=Regression(score), train=train, num_samples=num_samples)
    print(report, flush=True)
    for method in report.scores:
        applied = report.apply(network, method)
        prediction = cgp.predict(applied, iter(new), num_samples, task=Regression(score), seed=0)
        scores = prediction.score()
        if method != "scale":  # whose variance is the same everywhere
            scores["rmse of the surest 80 %"] = _surest(prediction)
        print(f"{method}: " + ", ".join(f"{name} {value:.3f}" for name, value in scores.items()), flush=True)
    print(
        f"a straight line through the network's scores: rmse {_of_line(report.apply(network, 'scale'), train, new):.3f}"
    )


def _of_line(network: Any, train: list[Batch], new: list[Batch]) -> float:
    """Root mean square error of a line from scores to values: what is gained without any variance."""
    known, unknown = (cgp.predict(network, iter(part), task="regression", output=score) for part in (train, new))
    slope, offset = np.polyfit(known.mean[:, 0].double(), torch.cat([y for _, y in train])[:, 0].double(), 1)
    return float((torch.cat([y for _, y in new]) - slope * unknown.mean - offset).square().mean().sqrt())


def _surest(prediction: Any, coverage: float = 0.8) -> float:
    """Root mean square error of the answers that :meth:`cgp.Prediction.abstain` leaves."""
    errors = (prediction.labels - prediction.mean)[~prediction.abstain(coverage=coverage)]
    return float(errors.square().mean().sqrt())


def score(returned: Tensor) -> Tensor:
    """Scores ``(N, 1)`` from 1 (bad) to 5 (excellent) of what the transformer returns, ``(N,)``."""
    return 1.0 + 4.0 * returned[:, None]


def host() -> Any:
    """The transformer of the network, which reads what its convolutions return."""
    return _network().transformer_pool_attn


@torch.inference_mode()
def states(waves: Tensor) -> Tensor:
    """What the convolutions, which stay as they are, return for clips: ``(N, 384, 1024)``."""
    convolutions = _network().cnn
    loudest = waves.abs().amax(1, keepdim=True) + 1e-8
    parts = [convolutions(part).transpose(1, 2) for part in (waves / loudest).split(_BATCH)]
    return torch.cat(parts).clone()


@cache
def _network() -> Any:
    """The package's network.

    Raises:
        ModuleNotFoundError: if the packages named in the page are not installed.
    """
    if find_spec("torchaudio") is None:  # with which only its command line reads files
        sys.modules["torchaudio"] = ModuleType("torchaudio")
    module = package("distillmos", "--no-deps distillmos xls-r-sqa")
    with redirect_stdout(None):  # it prints where its weights lie
        return module.ConvTransformerSQAModel().eval()


def clips(count: int, seed: int = 0) -> Tensor:
    """Speech of the twelve voices of espeak-ng for American English, ``(count, 122880)`` at 16 kHz.

    Args:
        count: number of clips of three sentences, of which 7.68 s are kept.
        seed: of the sentences, the voices, their speed and their pitch.
    """
    rng, speaker, waves = np.random.default_rng(seed), _Speaker(), []
    for number in range(count):
        text = " ".join(rng.choice(_SENTENCES, 3, replace=False))
        words_a_minute, pitch = int(rng.integers(130, 200)), int(rng.integers(30, 70))
        waves.append(in_length(speaker.say(text, _VOICES[number % len(_VOICES)], words_a_minute, pitch)))
    return torch.from_numpy(np.stack(waves))


def in_length(wave: NDArray[Any], length: int = _LENGTH) -> NDArray[np.float32]:
    """The beginning of a wave, with silence after it if it is shorter."""
    kept = np.zeros(length, np.float32)
    kept[: len(wave)] = wave[:length]
    return kept


def degraded(waves: Tensor, seed: int = 0) -> Tensor:
    r"""Clips with white noise, 0 to 30 dB below the speech; every second is then clipped.

    .. math:: y = x + \sqrt{\overline{x^2}}\; 10^{-d/20} ε, \qquad |y| ≤ c \max|y|

    Args:
        waves: clips ``(N, samples)``.
        seed: of d ~ U(0, 30), c ~ U(0.1, 0.5) and ε ~ N(0, 1).

    Returns:
        Clips of the same shape.

    Example:
        >>> wave = torch.sin(torch.arange(4000.0))[None]
        >>> noise = degraded(wave) - wave
        >>> bool(0.0 < float((wave.square().mean() / noise.square().mean()).log10()) < 3.0)
        True
    """
    generator = torch.Generator().manual_seed(seed)
    decibel, share = (
        torch.rand(2, len(waves), 1, generator=generator) * torch.tensor([30.0, 0.4])[:, None, None]
    ).unbind()
    noise = torch.randn(waves.shape, generator=generator) * waves.square().mean(1, keepdim=True).sqrt()
    noisy = waves + noise * 10.0 ** (-decibel / 20.0)
    limit = noisy.abs().amax(1, keepdim=True) * (0.1 + share)
    limit[::2] = torch.inf
    return noisy.clamp(-limit, limit)


class _Speaker:
    """espeak-ng of the package `espeakng-loader`."""

    def __init__(self) -> None:
        loader = package("espeakng_loader", "--no-deps espeakng-loader")
        self.library = ctypes.CDLL(loader.get_library_path())
        self.rate = self.library.espeak_Initialize(_SYNCHRONOUS, 0, loader.get_data_path().encode(), 0)
        self.heard: list[NDArray[np.int16]] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self.callback = kind(self._hear)  # kept, as the library keeps no reference
        self.library.espeak_SetSynthCallback(self.callback)

    def _hear(self, samples: Any, count: int, _events: Any) -> int:
        if samples and count > 0:
            self.heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def say(self, text: str, voice: str, words_a_minute: int, pitch: int) -> NDArray[np.float32]:
        """Samples at 16 kHz, in [-1, 1]."""
        self.heard.clear()
        for parameter, value in ((_SPEED, words_a_minute), (_PITCH, pitch)):
            self._check(self.library.espeak_SetParameter(parameter, value, 0))
        self._check(self.library.espeak_SetVoiceByName(voice.encode()))
        code = text.encode() + b"\0"
        self._check(self.library.espeak_Synth(code, ctypes.c_size_t(len(code)), 0, 0, 0, _UTF8, None, None))
        wave = np.concatenate(self.heard) / np.float32(2**15)
        common = math.gcd(self.rate, _RATE)
        return resample_poly(wave, _RATE // common, self.rate // common).astype(np.float32)

    def _check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"espeak-ng failed with status {status}")


if __name__ == "__main__":
    auto_cli(assess, as_positional=False, prog="python -m experiments.studies.speech")
