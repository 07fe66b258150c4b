"""Proof of the regressors on real data, against GPyTorch's models in the same run."""
