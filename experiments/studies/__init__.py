"""One short script a question."""
