"""
Calibration of a pretrained model
=================================

A model that was trained to be right is often overconfident, especially on inputs that are not quite what it has
seen. We convert a trained ViT, fit its scales on a validation set, and compare with the model as it was and with
temperature scaling, on clean and on rotated digits.
"""

import matplotlib.pyplot as plt
import torch
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torchvision.models import VisionTransformer
from torchvision.transforms.v2.functional import rotate

import cgp
from cgp.plotting import (
    WIDE,
    curves,
    reliability_diagram,
    risk_coverage,
    style,
    uncertainty_histograms,
)

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None].repeat(1, 3, 1, 1) / 8 - 1
labels = torch.tensor(digits.target)
train, held_out = train_test_split(torch.arange(1797), test_size=1000, stratify=labels, random_state=0)
validation, test = held_out[:300], held_out[300:]

vit = VisionTransformer(
    image_size=8, patch_size=2, num_layers=2, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=10
)
optimizer = torch.optim.AdamW(vit.parameters(), lr=4e-3, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=30 * 13)
for _ in range(30):
    for batch in train[torch.randperm(len(train))].split(64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(vit(images[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
vit.eval()

# %%
# Three models with the same mean
# -------------------------------
# The original; the original with its logits divided by the temperature of least validation NLL; and the converted
# one: the widest posterior, with a temperature, that the same 300 images allow. "joint" draws let the tokens of an
# image err together.

model = cgp.convert(vit, "cgp", layers="all")
loader = list(zip(images[validation].split(60), labels[validation].split(60), strict=True))
report = cgp.calibrate(model, loader, method=cgp.Posterior(sampling="joint"), num_samples=4)
print(report)

with torch.no_grad():
    logits = vit(images[validation])
temperature = minimize_scalar(
    lambda t: float(torch.nn.functional.cross_entropy(logits / t, labels[validation])),
    bounds=(0.1, 10),
    method="bounded",
).x
print(f"temperature {temperature:.2f}")


def probabilities(x):
    """Of each model, by name."""
    with torch.no_grad():
        plain = vit(x)
    converted = cgp.predict(model, x, 16, sampling="joint", seed=0)
    return {
        "softmax": plain.softmax(-1),
        "temperature": (plain / temperature).softmax(-1),
        "converted": converted.probabilities,
    }, converted


# %%
# Under shift
# -----------
# The test images, rotated further and further. Accuracy barely differs, since the mean is the same; the negative
# log-likelihood shows the calibration.

angles = (0, 10, 20, 30, 40)
rotated = {angle: rotate(images[test], angle, fill=-1) for angle in angles}
predicted = {angle: probabilities(x) for angle, x in rotated.items()}


def curve(metric):
    """A number for each model and angle."""
    names = predicted[0][0]
    return {name: [float(metric(predicted[angle][0][name])) for angle in angles] for name in names}


def accuracy(p):
    return (p.argmax(-1) == labels[test]).float().mean()


def nll(p):
    return -p.gather(-1, labels[test][:, None]).clamp(min=1e-12).log().mean()


def ece(p):
    """Expected calibration error in fifteen bins."""
    confidence, right = p.amax(-1), p.argmax(-1) == labels[test]
    bins = (confidence * 15).ceil().clamp(min=1).long() - 1
    gaps = [(confidence - right.float())[bins == b].sum().abs() for b in range(15)]
    return torch.stack(gaps).sum() / len(p)


metrics = {
    "Negative log-likelihood (nats)": nll,
    "Expected calibration error": ece,
    "Accuracy minus confidence": lambda p: accuracy(p) - p.amax(-1).mean(),
}
with style():
    figure, axes = plt.subplots(1, 3, figsize=(WIDE, 2.3), layout="constrained")
    for ax, (name, metric) in zip(axes, metrics.items(), strict=True):
        curves(angles, curve(metric), xlabel="Rotation (degrees)", ylabel=name, ax=ax)

# %%
# Reliability
# -----------
# At 20 degrees: how often is a prediction of confidence 0.8 right? Beneath, on how many images each bar rests.

hard, converted = predicted[20]
right = {name: p.argmax(-1) == labels[test] for name, p in hard.items()}
with style():
    figure, axes = plt.subplots(1, 2, figsize=(WIDE, 3.6), layout="constrained")
    for ax, name in zip(axes, ("softmax", "converted"), strict=True):
        reliability_diagram(hard[name].amax(-1), right[name], bins=10, ax=ax).set_title(name)

# %%
# Which answers to withhold
# -------------------------
# Error rate among the most confident fraction. AURC is the mean over all fractions.

risk_coverage({name: (p.amax(-1), right[name]) for name, p in hard.items()})

# %%
# OOD inputs
# -----------------
# Digits with their pixels shuffled are no digits.

order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
ood = probabilities(images[test].flatten(2)[..., order].unflatten(2, (8, 8)))
digits_seen = predicted[0]
uncertainty_histograms({"digits": digits_seen[1].total, "shuffled": ood[1].total}, xlabel="Total uncertainty (nats)")

# %%
# Confidence of right answers, wrong answers and answers to inputs without a right one:

p, answers = digits_seen[0]["converted"], digits_seen[0]["converted"].argmax(-1) == labels[test]
uncertainty_histograms(
    {"right": p[answers].amax(-1), "wrong": p[~answers].amax(-1), "no digit": ood[0]["converted"].amax(-1)},
    xlabel="Confidence",
    limits=(0, 1),
)
