"""Networks that people have: posteriors around their attention, and how sure they are, measured."""
