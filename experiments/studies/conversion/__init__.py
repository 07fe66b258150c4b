"""Conversion of a trained model: a softmax vision transformer on CIFAR-10, and what Gaussian processes make of it."""
