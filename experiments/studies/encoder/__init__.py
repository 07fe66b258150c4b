"""A pretrained sentence encoder fine-tuned on intents with Gaussian-process attention in its last layers.

The protocol is in docs/notes/protocols.md, the numbers are in docs/notes/where-it-pays-measured.md.
`python -m experiments.studies.encoder fit|table|assess --data DIR --out DIR`
"""
