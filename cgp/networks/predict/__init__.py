"""Predictions of whole networks with their uncertainty: draws, calibration, generated tokens, scores."""
