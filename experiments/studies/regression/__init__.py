"""Evaluation of the regressors on real data, beside GPyTorch's models in the same run."""
