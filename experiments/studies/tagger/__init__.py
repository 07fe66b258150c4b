"""A tagger of errors in sentences, from a package with weights: assessed, applied, and its uncertainty per word."""
