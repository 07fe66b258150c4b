"""Structures: how outputs are related, as covariances of rows (input, output)."""
