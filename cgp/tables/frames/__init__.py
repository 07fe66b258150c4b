"""Tables as numbers and back: inputs of rows, values, codes for what is missing, the pattern of gaps, and the disk."""
