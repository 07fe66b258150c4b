"""Conversion of a trained model: a softmax vision transformer on CIFAR-10 with Gaussian-process attention."""
