"""Where the sequence is the data set: which parts of a model of functions pay, from attention to exact conditioning.

Contexts (x, y) are observed, targets are asked. `python -m experiments.studies.in_context train --out DIR` trains and
scores what is missing, `... table --out DIR` writes docs/results/in-context.csv and prints the tables of its page.
"""
