"""`python -m experiments.benchmarks blocks|transcriptions|memory|prediction|vit|all --out DIR [--quick]`."""

from jsonargparse import ArgumentParser

from experiments.benchmarks.benchmark import benchmark


def main() -> None:
    """Run what the command line asks for."""
    parser = ArgumentParser(prog="python -m experiments.benchmarks", description=benchmark.__doc__, allow_abbrev=False)
    # A flag is a flag: jsonargparse would ask for `--quick true`.
    parser.add_function_arguments(benchmark, as_positional=True, skip={"quick"})
    parser.add_argument("--quick", action="store_true", help="tiny sizes, in seconds: for tests, not for figures")
    benchmark(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
