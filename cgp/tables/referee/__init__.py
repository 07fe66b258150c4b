"""Which imputer fills the gaps of a table best: blocks hidden as its gaps are, and scores of what fills them."""
