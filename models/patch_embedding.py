"""Images to tokens."""

import torch
from torch import nn

__all__ = ["PatchEmbedding", "patches"]

# Of the order of the projected patches: at the usual 0.02 small models spend their first epochs telling places apart.
_POSITION_SCALE = 0.5


def patches(
    images: torch.Tensor,  # shape: (*batch, C, H, W)
    patch_size: int,
) -> torch.Tensor:  # shape: (*batch, n, C * patch_size**2)
    """Cut images into square patches, row by row.

    Args:
        images: `(*batch, C, H, W)`.
        patch_size: side p of a patch, in pixels; divides H and W.

    Returns:
        `(*batch, n, C p^2)` with n = H W / p^2.

    Example:
        >>> patches(torch.arange(16.0).reshape(1, 4, 4), 2)[1]
        tensor([2., 3., 6., 7.])
    """
    grid = images.unfold(-2, patch_size, patch_size).unfold(-2, patch_size, patch_size)
    tokens = grid.flatten(-4, -3).movedim(-4, -3)  # (*batch, C, h, w, p, p) to (*batch, n, C, p, p)
    return tokens.flatten(-3)


class PatchEmbedding(nn.Module):
    r"""A linear map of each patch plus a learned position.

    .. math:: x_i = W\,\mathrm{vec}(\mathrm{patch}_i) + b + e_i

    Args:
        image_size: side of the (square) images, in pixels.
        patch_size: side of a patch, in pixels.
        channels: number C of colour channels.
        embed_dim: width d of the tokens.

    Raises:
        ValueError: if the image size is not a multiple of the patch size.

    Example:
        >>> embedding = PatchEmbedding(image_size=8, patch_size=2, channels=1, embed_dim=12)
        >>> embedding(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 16, 12])
    """

    def __init__(self, *, image_size: int, patch_size: int, channels: int, embed_dim: int) -> None:
        super().__init__()
        if patch_size < 1 or image_size % patch_size:
            raise ValueError(f"patch_size: expected a divisor of image_size {image_size}, got {patch_size}")
        self.image_shape = (channels, image_size, image_size)
        self.patch_size = patch_size
        self.num_tokens = (image_size // patch_size) ** 2
        self.projection = nn.Linear(channels * patch_size**2, embed_dim)
        self.positions = nn.Parameter(torch.empty(self.num_tokens, embed_dim))
        nn.init.normal_(self.positions, std=_POSITION_SCALE)

    def forward(
        self,
        images: torch.Tensor,  # shape: (*batch, C, H, W)
    ) -> torch.Tensor:  # shape: (*batch, n, d)
        """Embed the patches of the images; another shape is a ValueError."""
        if tuple(images.shape[-3:]) != self.image_shape:
            raise ValueError(
                f"images: expected shape (*batch, {', '.join(map(str, self.image_shape))}), got {tuple(images.shape)}"
            )
        return self.projection(patches(images, self.patch_size)) + self.positions
