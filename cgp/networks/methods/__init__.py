"""Calibration on held-out labels: temperature, amplitudes of a posterior, dropout, read-out, scale of a variance."""
