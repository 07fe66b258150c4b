"""What acts on a whole network: its blocks, the objective, prediction, calibration, diagnostics."""
