"""`python -m experiments.studies.tagger assess|words`."""

from jsonargparse import auto_cli

from experiments.studies.tagger.study import assess, words

if __name__ == "__main__":
    auto_cli([assess, words], as_positional=False, prog="python -m experiments.studies.tagger")
