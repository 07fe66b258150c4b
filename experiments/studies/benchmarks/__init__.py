"""Other people's benchmarks, by their rules: their data, their gaps, their scores, their published figures."""
