"""Calibration methods, each an object: what a network's predictions are, with a temperature or a scale."""

from cgp.networks.predict.method import Method

from .dropout import Dropout
from .known import Posterior, Readout, Scale, Temperature

__all__ = ["Dropout", "Method", "Posterior", "Readout", "Scale", "Temperature"]
