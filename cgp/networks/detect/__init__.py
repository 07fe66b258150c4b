"""Scores that are large for inputs of another kind."""
