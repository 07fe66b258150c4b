"""Columns of any kind: increasing functions that make them more Gaussian, chosen or declared, and undone."""
