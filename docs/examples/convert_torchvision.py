"""
Convert a torchvision ViT
=========================

A softmax transformer becomes a Gaussian process without one of its predictions changing: the posterior's mean *is*
softmax attention, the variance comes besides. We train torchvision's own ``VisionTransformer`` on handwritten digits,
convert it, and look at which digits it is unsure of.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torchvision.models import VisionTransformer

import cgp
from cgp.plotting import example_gallery, uncertainty_histograms

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
labels = torch.tensor(digits.target)
train, held_out = train_test_split(range(len(labels)), test_size=720, stratify=labels, random_state=0)
validation, test = held_out[:360], held_out[360:]

# %%
# A model as you may have one
# ---------------------------
# Any vision transformer would do. This one has sixteen patches of 2 × 2 pixels, and nothing in it knows of ``cgp``.


class DigitsViT(VisionTransformer):
    """torchvision expects three colours: the grey value stands for each."""

    def forward(self, x):
        return super().forward(x.expand(-1, 3, -1, -1))


vit = DigitsViT(image_size=8, patch_size=2, num_layers=3, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=10)
optimizer = torch.optim.AdamW(vit.parameters(), lr=4e-3, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=20 * 17)
for _ in range(20):
    for batch in torch.tensor(train)[torch.randperm(len(train))].split(64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(vit(images[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
vit.eval()

with torch.no_grad():
    original = vit(images[test])
print(f"accuracy {(original.argmax(-1) == labels[test]).float().mean():.3f}")

# %%
# Convert
# -------
# ``layers`` is ``"last"``, ``"all"`` or indices. The original is not changed, the projections are kept.

model = cgp.convert(vit, "cgp", layers="all")
print(cgp.describe(model))

with torch.no_grad():
    print(f"largest change of a logit: {(model(images[test]) - original).abs().max():.1e}")

# %%
# Choose the width
# ----------------
# How large the variance is, the softmax model does not say. Calibration takes the largest amplitude that images which
# the model was not trained on allow, and a temperature. Everything else stays.

loader = list(zip(images[validation].split(60), labels[validation].split(60), strict=True))
report = cgp.calibrate(model, loader)
print(report)

# %%
# Predict
# -------
# Sixteen draws of the network. Their average is the prediction, and what they disagree about is the *epistemic* part
# of its uncertainty.

prediction = cgp.predict(model, images[test], num_samples=16, seed=0)
print(prediction.probabilities.shape, prediction.epistemic.shape)

example_gallery(
    images[test] / 2 + 0.5,
    prediction.epistemic,
    prediction.probabilities.argmax(-1),
    labels=labels[test],
    probabilities=prediction.probabilities.amax(-1),
)

# %%
# Draws disagree more where the answer is wrong:

wrong = prediction.probabilities.argmax(-1) != labels[test]
uncertainty_histograms(
    {"right": prediction.epistemic[~wrong], "wrong": prediction.epistemic[wrong]},
    bins=20,
    xlabel="Epistemic uncertainty (nats)",
)

# %%
# Keep it
# -------
# Tensors as safetensors, what was done as JSON; equal to the bit when read again.

import tempfile

from cgp import from_pretrained, save_pretrained

with tempfile.TemporaryDirectory() as folder:
    save_pretrained(model, folder)
    again = from_pretrained(folder, vit)

first, second = (cgp.predict(each, images[test], 4, seed=0).probabilities for each in (model, again))
print("equal:", torch.equal(first, second))
