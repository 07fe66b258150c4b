"""Honest uncertainty for transformers: correlated Gaussian process attention in the GPyTorch ecosystem."""

__all__ = ["__version__"]

__version__ = "0.1.0"
