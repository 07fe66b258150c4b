"""Inference: how parameters are found, or sampled."""
