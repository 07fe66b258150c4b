"""Sets of images in files, and their parts."""

import numpy as np
from PIL import Image


def parts(splits):
    return splits.train, splits.validation, splits.test


def random_images(count, side=32, channels=3):
    return np.random.default_rng(count).integers(0, 256, (count, side, side, channels), dtype=np.uint8)


def write_arrays(root, name, split, images, **more):
    (root / name).mkdir(exist_ok=True)
    np.savez(root / name / f"{split}.npz", images=images, **more)


def paint(path, colour="red", size=(20, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
