"""Random crops and flips of whole batches, inside the model: active in training mode only."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["CropAndFlip"]


class CropAndFlip(nn.Module):
    """Pads each image with black, crops it to its size at a random place, and mirrors it with probability 1/2."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, images: Tensor) -> Tensor:
        """Crop and flip a batch `(B, C, H, W)`."""
        if not self.training:
            return images
        count, _, height, width = images.shape
        places = torch.randint(0, 2 * self.padding + 1, (2, count, 1), device=images.device)
        rows = places[0] + torch.arange(height, device=images.device)
        columns = places[1] + torch.arange(width, device=images.device)
        mirrored = torch.rand(count, 1, device=images.device) < 0.5
        columns = torch.where(mirrored, columns.flip(-1), columns)
        padded = F.pad(images, [self.padding] * 4).permute(0, 2, 3, 1)  # (B, H', W', C)
        which = torch.arange(count, device=images.device)[:, None, None]
        return padded[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
