"""How the gallery is read, and what each example starts from."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

ORDER = (
    "convert_torchvision.py",
    "variance_maps.py",
    "calibrate_pretrained.py",
    "text_with_padding.py",
    "inside_attention.py",
    "regressors.py",
    "neural_process.py",
    "new_block.py",
)
DOTS_AN_INCH = 110  # a column is then 374 pixels wide, and letters are as large in every picture


def reading_order(filename: str) -> int:
    """Place of an example in the gallery."""
    return ORDER.index(filename)


def reset(*_: object) -> None:
    """The same start for each example: seeds, threads, no open figure, size of the pictures."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plt.close("all")
    mpl.rcdefaults()
    mpl.use("agg")
    mpl.rcParams["savefig.dpi"] = DOTS_AN_INCH
