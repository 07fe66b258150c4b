"""Pure tensor functions and NamedTuples: the formulas, one file a method. Torch only.

Shapes are stated once, and the tests check them in every call: those of arguments and attributes in Args and
Attributes, or behind their names in the text of a function or of its module (``x``, then ``(*batch, N, D)``); those of
results in Returns, or in the first line. Of several shapes those after "or" are alternatives, and the others are of
several tensors. A letter is one number in a call. The ``*batch`` of arguments broadcast, and a result has the outcome;
``·`` is any size, ``...`` are any dimensions; those of what is "broadcastable to" a shape may be 1, or missing at the
front.
"""
