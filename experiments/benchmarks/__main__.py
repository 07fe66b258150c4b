"""`python -m experiments.benchmarks …` is `python -m experiments benchmark …`."""

import sys

from experiments.cli import main

if __name__ == "__main__":
    main(["benchmark", *sys.argv[1:]])
