"""Sets, intervals and abstaining that hold with a given probability, by held-out labels."""
