"""`python -m experiments`: see `python -m experiments --help`."""

from experiments.cli import main

if __name__ == "__main__":
    main()
