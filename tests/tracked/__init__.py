"""Seconds of the commonest calls, which asv follows over versions: `asv run`, `asv continuous main HEAD`."""
