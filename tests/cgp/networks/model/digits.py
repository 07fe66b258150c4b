"""A vision transformer on scikit-learn's digits, trained in seconds."""

import functools

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


class DigitsTransformer(nn.Module):
    """Patches of 2 × 2 pixels, two layers of ``nn.TransformerEncoderLayer``, mean pooling."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(4, width), nn.Parameter(0.1 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def features(self, images: Tensor) -> Tensor:
        patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(images), 16, 4)
        return self.encoder(self.embed(patches) + self.position).mean(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def digits() -> tuple[Tensor, Tensor]:
    """Images ``(1797, 8, 8)`` in [0, 1] and labels, in a fixed random order."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images, dtype=torch.float32).view(-1, 8, 8)[order] / 16, torch.tensor(labels)[order]


@functools.cache
def trained() -> DigitsTransformer:
    """Trained on the first 800 images for 25 epochs; do not change it."""
    return fit().float()


@torch.enable_grad()
def fit(rounding: float = 0.0) -> DigitsTransformer:
    """Train in float64, where the schedule keeps a rounding error small: in float32 every processor ends elsewhere.

    Args:
        rounding: relative change of the starting weights, to see what becomes of it.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, (x, y) = DigitsTransformer().double(), digits()
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 + rounding * torch.empty_like(weight).uniform_(-1, 1))
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, 25 * 8)
        for _ in range(25):
            for rows in torch.randperm(800).split(100):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows].double()), y[rows]).backward()
                optimizer.step()
                schedule.step()
    return model.eval()
