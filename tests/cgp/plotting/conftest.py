import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def luminance(colour):
    """Relative luminance (WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


def legend(container):
    """The words in the legend of a figure or of axes."""
    legends = container.legends if hasattr(container, "legends") else [container.get_legend()]
    return [text.get_text() for text in legends[0].get_texts()]
