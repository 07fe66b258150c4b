"""DINOv2 ViT-S/14 fine-tuned on CIFAR-10: which of its uncertainties help, and maps of its variance.

The numbers and pictures stand in docs/results/dinov2.md.
`python -m experiments.studies.dinov2 fit|learning|assess|scalings|maps --data DIR --out DIR`
"""
