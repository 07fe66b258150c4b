import itertools

import numpy as np
import pytest
import torch
from matplotlib.colors import LogNorm, to_rgb

from cgp.plotting import example_gallery, variance_map, variance_maps
from cgp.plotting._arrays import as_image
from tests.cgp.helpers import is_whole

GREY = np.linspace(0, 1, 64).reshape(8, 8)
COLOUR = np.random.default_rng(0).random((8, 6, 3))


def test_images_of_every_layout_come_out_alike():
    assert as_image(GREY).shape == as_image(GREY[None]).shape == as_image(GREY[..., None]).shape == (8, 8)
    np.testing.assert_array_equal(as_image(np.moveaxis(COLOUR, -1, 0)), COLOUR)
    np.testing.assert_array_equal(as_image(torch.tensor(COLOUR, requires_grad=True)), COLOUR)
    integers = (COLOUR * 255).astype(np.uint8)
    np.testing.assert_allclose(as_image(integers), integers / 255)
    np.testing.assert_allclose(as_image(torch.tensor(integers)), integers / 255)


def test_a_map_lies_beside_its_image_patch_by_patch():
    variance = np.arange(4.0).reshape(2, 2)
    ax = variance_map(GREY, variance, label="sd")
    image, shown = ax.images
    np.testing.assert_array_equal(image.get_array(), GREY)
    np.testing.assert_array_equal(shown.get_array(), variance)
    (left, right, *_), (start, end, *_) = image.get_extent(), shown.get_extent()
    assert right < start
    assert end - start == pytest.approx(right - left)
    assert ax.get_xlim() == (left, end)
    assert shown.get_clim() == (0, 3)
    assert ax.figure.axes[1].get_ylabel() == "sd"


@pytest.mark.parametrize("draw", ["map", "maps"])
def test_one_colour_is_one_value_whatever_the_image(draw):
    image, variance = np.array([[0.0, 1.0], [1.0, 0.0]]).repeat(4, 0).repeat(4, 1), np.array([[0.0, 1.0]])
    maps = variance_maps(image, variance[None], relative=False)
    ax = maps[0, 1] if draw == "maps" else variance_map(image, variance)
    ax.figure.canvas.draw()
    pixels = np.asarray(ax.figure.canvas.buffer_rgba())[..., :3].astype(int)
    height = pixels.shape[0]

    def colour(axes, transform, x, y):
        column, row = transform.transform((x, y))
        return pixels[height - 1 - int(row), int(column)]

    start, end, *_ = ax.images[-1].get_extent()
    bar = ax.figure.axes[-1]
    for part, value in ((0.25, 0.004), (0.75, 0.996)):
        shown = [colour(ax, ax.transData, start + part * (end - start), y) for y in (1.5, 5.5)]
        np.testing.assert_array_equal(*shown)
        assert np.abs(shown[0] - colour(bar, bar.transAxes, 0.5, value)).max() < 4


def test_table_of_heads_shares_one_scale_if_it_is_not_relative():
    variance = np.random.default_rng(0).random((3, 2, 2))
    axes = variance_maps(GREY, variance, relative=False)
    assert axes.shape == (1, 4)
    np.testing.assert_array_equal(axes[0, 0].images[0].get_array(), GREY)
    for ax, grid in zip(axes[0, 1:], variance, strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), grid)
        assert ax.images[0].get_clim() == (variance.min(), variance.max())
    assert [ax.get_title() for ax in axes[0]] == ["input", "head 1", "head 2", "head 3"]


def test_table_of_heads_of_one_image():
    variance = np.random.default_rng(0).random((2, 3, 2, 2))
    axes = variance_maps(COLOUR, variance, rows=["layer 1", "layer 2"], columns=["a", "b", "c"])
    assert axes.shape == (2, 4)
    assert not axes[1, 0].images
    assert [ax.get_ylabel() for ax in axes[:, 1]] == ["layer 1", "layer 2"]
    assert [ax.get_title() for ax in axes[0]] == ["input", "a", "b", "c"]
    np.testing.assert_allclose(axes[1, 3].images[0].get_array(), variance[1, 2] / np.median(variance[1, 2]))
    assert axes[0, 0].figure.axes[-1].get_ylabel() == "Variance / median of its map (log scale)"


def test_heads_are_shown_in_units_of_their_own():
    variance = np.random.default_rng(0).random((2, 3, 2, 2))
    axes = variance_maps([GREY, GREY], variance)
    shown = [[ax.images[0].get_array() for ax in row[1:]] for row in axes]
    np.testing.assert_allclose(shown, variance / np.median(variance, axis=(0, 2, 3))[:, None, None])
    louder = variance_maps([GREY, GREY], variance * np.array([1.0, 100.0, 1e-6])[:, None, None])
    np.testing.assert_allclose([[ax.images[0].get_array() for ax in row[1:]] for row in louder], shown)
    assert axes[0, 0].figure.axes[-1].get_ylabel() == "Variance / median of its column (log scale)"
    assert not variance_maps(GREY, np.zeros((1, 2, 2)))[0, 1].images[0].get_array().any()


@pytest.mark.parametrize(
    "image", [COLOUR, np.moveaxis(COLOUR, -1, 0), COLOUR[None], GREY, GREY[None], GREY[None, None]]
)
def test_one_row_takes_an_image_with_or_without_its_row(image):
    axes = variance_maps(image, np.ones((2, 2, 2)))
    expected = COLOUR if 3 in image.shape else GREY
    np.testing.assert_array_equal(axes[0, 0].images[0].get_array(), expected)


def test_three_images_in_colour_are_three_rows():
    images = np.stack([np.moveaxis(COLOUR, -1, 0)] * 3) * np.array([0.2, 0.5, 1.0]).reshape(3, 1, 1, 1)
    axes = variance_maps(torch.tensor(images), np.ones((3, 1, 2, 2)))
    np.testing.assert_allclose(axes[0, 0].images[0].get_array(), 0.2 * COLOUR)


def test_figures_have_one_scale_by_common_units_and_limits():
    """As the docstring says it: the colours of all maps of a figure are one object."""
    variance = np.random.default_rng(0).random((2, 3, 2, 2)) + 0.5
    units = np.median(variance[0], axis=(1, 2), keepdims=True)
    shown = [variance_maps(GREY, each / units, relative=False, scale="log") for each in variance]
    for axes in shown:
        axes[0, 1].images[0].set_clim(0.1, 10.0)
    colours = [[ax.images[0].to_rgba(np.array([0.5, 2.0])) for ax in axes[0, 1:]] for axes in shown]
    np.testing.assert_array_equal(colours, np.broadcast_to(colours[0][0], np.shape(colours)))
    assert all(axes[0, 0].figure.axes[-1].get_ylabel() == "Predictive variance\n(log scale)" for axes in shown)
    assert all(is_whole(axes[0, 0].figure) for axes in shown)  # a bar of one row is short


def test_the_name_of_a_bar_is_whole_beside_one_row_of_maps():
    assert is_whole(variance_maps(GREY, np.ones((4, 2, 2)) + np.eye(2))[0, 0].figure)


def test_gallery_is_sorted_and_marks_errors():
    images = np.arange(5.0)[:, None, None] * np.ones((5, 4, 4))
    predicted, labels = ["cat", "dog", "bird", "cat", "dog"], ["cat", "dog", "dog", "cat", "dog"]
    options = {"labels": labels, "probabilities": [0.7, 0.95, 0.4, 0.8, 0.6]}
    axes = example_gallery(images, [0.3, 0.1, 0.5, 0.2, 0.4], predicted, **options)
    order = [[int(ax.images[0].get_array()[0, 0]) for ax in row] for row in axes]
    assert order == [[1, 3, 0, 4, 2], [2, 4, 0, 3, 1]]
    assert [ax.get_title() for ax in axes[0, ::4]] == ["dog (0.95)\ntrue: dog", "bird (0.40)\ntrue: dog"]
    colours = [to_rgb(ax.title.get_color()) for ax in axes[0]]
    assert colours[0] == colours[1] == colours[2] == colours[3] != colours[4]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["most certain", "least certain"]


def test_a_logarithmic_scale_shows_orders_of_magnitude_and_takes_zero():
    grid = np.array([[0.0, 1e-4], [1e-2, 1.0]])
    axes = variance_maps(np.eye(4), grid[None], scale="log", relative=False)
    bar, norm = axes[0, 0].figure.axes[-1], axes[0, 1].images[-1].norm
    assert {"0.001", "0.01", "0.1"} <= {text.get_text() for text in bar.get_yticklabels()}
    assert (norm.vmin, norm.vmax) == (1e-4, 1.0)
    np.testing.assert_allclose(norm(grid), [[0, 0], [0.5, 1]], atol=1e-12)
    assert variance_maps(np.eye(4), np.zeros((1, 2, 2)), scale="log").shape == (1, 2)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.8, 1.6, ["0.8", "1", "1.2", "1.4", "1.6"]),
        (0.74, 1.17, ["0.8", "0.9", "1", "1.1"]),
        (0.6, 4.0, ["1", "2", "3", "4"]),
        (0.2, 3.0, ["0.2", "0.5", "1", "2"]),
    ],
)
def test_a_short_logarithmic_bar_has_ticks_to_read_a_range_from(low, high, ticks):
    bar = variance_maps(np.eye(4), np.array([[[low, 1.0], [1.0, high]]])).ravel()[0].figure.axes[-1]
    shown = dict(zip(bar.get_yticks(), (text.get_text() for text in bar.get_yticklabels()), strict=True))
    assert [text for tick, text in shown.items() if low * 0.999 <= tick <= high * 1.001] == ticks


def test_ratios_are_logarithmic_by_default_and_span_four_decades():
    """One patch far above the median left all others in one colour."""
    grid = np.array([[1e-9, 1.0], [1.0, 4.8]])
    norms = [
        variance_maps(np.eye(4), grid[None], relative=relative)[0, 1].images[-1].norm for relative in (True, False)
    ]
    assert [isinstance(norm, LogNorm) for norm in norms] == [True, False]
    assert (norms[0].vmin, norms[0].vmax) == pytest.approx((4.8e-4, 4.8))


def test_thin_lines_part_the_patches_of_an_image_unless_they_are_small():
    ax = variance_map(np.zeros((8, 12)), np.ones((2, 3)))
    rows, columns = (lines.get_segments() for lines in ax.collections[:2])
    assert [line[0, 1] for line in rows] == [3.5]
    assert [line[0, 0] for line in columns] == [3.5, 7.5]
    assert not variance_map(np.zeros((40, 40)), np.ones((20, 20))).collections


def test_titles_of_a_gallery_stand_on_one_line_whatever_their_letters():
    """A descender, or no tall letter in the second line, moved the first."""
    names = ["ship", "plane", "deer", "car", "dog", "horse"]
    axes = example_gallery(np.zeros((6, 4, 4)), np.arange(6), names, labels=names[::-1])
    axes[0, 0].figure.canvas.draw()
    for row in axes:
        low, high = zip(*(ax.title.get_window_extent().intervaly for ax in row), strict=True)
        assert max(np.ptp(low), np.ptp(high)) < 0.5  # pixels
    assert example_gallery(np.zeros((1, 4, 4)), [0.0], [""])[0, 0].get_title() == ""


def test_titles_of_a_gallery_have_one_size_the_smallest_that_fits():
    axes = example_gallery(np.zeros((12, 4, 4)), np.arange(12), ["cat"] * 6 + ["automobile"] * 6, labels=["cat"] * 12)
    sizes = {ax.title.get_fontsize() for ax in axes.flat}
    assert sizes == {8.0}
    long = example_gallery(np.zeros((12, 4, 4)), np.arange(12), ["cat"] * 11 + ["a" * 28], labels=["cat"] * 12)
    assert {ax.title.get_fontsize() for ax in long.flat} == {4.0}


def test_long_names_of_a_gallery_leave_gaps_and_brackets_are_explained():
    axes = example_gallery(np.zeros((6, 4, 4)), np.arange(6), ["automobile"] * 6, probabilities=[0.16] * 6)
    figure = axes[0, 0].figure
    figure.canvas.draw()
    boxes = [ax.title.get_window_extent() for ax in axes[0]]
    assert all(right.x0 - left.x1 > 0.05 * figure.dpi for left, right in itertools.pairwise(boxes))
    assert figure.get_supxlabel() == "in brackets: probability of the predicted class"
