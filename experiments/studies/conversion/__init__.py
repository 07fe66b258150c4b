"""The proof of conversion: a softmax vision transformer on CIFAR-10, and what Gaussian processes make of it."""
