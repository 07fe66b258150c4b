"""Pure tensor functions and NamedTuples: the formulas, one file a method. Torch only."""
