import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cgp.plotting import PALETTE, filled_maps, filled_table, pair_correlations, residual_maps, residual_panels
from tests.cgp.plotting.conftest import legend


def table(columns=2, rows=8):
    generator = np.random.default_rng(0)
    values, missing = generator.normal(size=(rows, columns)), np.zeros((rows, columns), dtype=bool)
    missing[2:5, 0] = True
    return np.arange(float(rows)), values, np.where(missing, 0.5, 0.0), missing


def test_gaps_are_seen_in_the_map_and_in_their_column():
    x, values, sd, missing = table()
    order = np.random.default_rng(1).permutation(8)
    inputs = (each[order] for each in (x, values, sd, missing))
    overview, first = filled_table(*inputs, names=["a", "b"], xlabel="hour", figure=Figure())
    (mesh,) = overview.collections
    colours = mesh.to_rgba(mesh.get_array())[..., :3]
    is_gap = (np.abs(colours - to_rgb(PALETTE[1])) < 0.01).all(-1)
    np.testing.assert_array_equal(is_gap, missing.T)
    assert [label.get_text() for label in overview.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in overview.texts] == ["38 %", "0 %"]
    seen, filled = first.lines[:2]
    np.testing.assert_array_equal(seen.get_ydata(), np.where(missing[:, 0], np.nan, values[:, 0]))
    np.testing.assert_array_equal(filled.get_ydata()[1:6], values[1:6, 0])  # joined to what is beside the gap
    assert np.isnan(filled.get_ydata()[[0, 6, 7]]).all()
    (band,) = first.collections
    vertices = band.get_paths()[0].vertices
    at = vertices[vertices[:, 0] == 3.0, 1]
    np.testing.assert_allclose((at.min(), at.max()), values[3, 0] + np.array([-1.96, 1.96]) * 0.5)
    assert (first.get_title(loc="left"), first.get_xlabel()) == ("a", "hour")


def test_columns_without_gaps_are_in_the_map_only():
    """Unless no column has any."""
    x, values, sd, missing = table(columns=3)
    overview, *shown = filled_table(x, values, sd, missing[:, [1, 0, 2]], names=["a", "b", "c"], figure=Figure())
    assert [label.get_text() for label in overview.get_yticklabels()] == ["a", "b", "c"]
    assert [ax.get_title(loc="left") for ax in shown] == ["b"]
    np.testing.assert_array_equal(shown[0].lines[1].get_ydata()[2:5], values[2:5, 1])
    whole = filled_table(x, values, 0.0 * sd, 0 * missing, names=["a", "b", "c"], figure=Figure())
    assert [ax.get_title(loc="left") for ax in whole[1:]] == ["a", "b", "c"]


def test_short_gaps_of_a_long_table_have_one_dot():
    """In their middle: their lines are slivers, and dots side by side are blobs. Longer gaps have none."""
    values, missing = np.arange(700.0)[:, None], np.zeros((700, 1), dtype=bool)
    missing[[0, 50, 300, 301, 302, 699]] = missing[400:450] = missing[600:606] = True
    _, column = filled_table(np.arange(700), values, values, missing, names=["a"], figure=Figure())
    lines, dots = column.lines[1:3]
    assert dots.get_xdata().tolist() == dots.get_ydata().tolist() == [0, 50, 301, 699]
    assert (dots.get_marker(), dots.get_linestyle(), to_rgb(dots.get_color())) == ("o", "None", to_rgb(PALETTE[1]))
    assert (lines.get_marker(), np.isfinite(lines.get_ydata()[599:607]).all()) == ("None", True)


@pytest.mark.parametrize("rows", [150, 700])
def test_a_single_fill_is_a_dot_with_its_interval(rows):
    """Not joined to what is beside it, which would be read as a spike; the legend has the interval's colour."""
    values, missing = np.arange(float(rows))[:, None], np.arange(rows)[:, None] == 50
    overview, column = filled_table(np.arange(rows), values, 0.5 * missing, missing, names=["a"], figure=Figure())
    (bar,) = column.collections
    _, line, dots = column.lines[:3]
    np.testing.assert_allclose(bar.get_segments(), [[[50.0, 50.0 - 0.98], [50.0, 50.0 + 0.98]]])
    assert np.flatnonzero(np.isfinite(line.get_ydata())).tolist() == dots.get_xdata().tolist() == [50]
    shown = overview.get_legend().legend_handles[-1]
    np.testing.assert_allclose((bar.get_color()[0, :3], shown.get_facecolor()[:3]), [to_rgb(PALETTE[1])] * 2)
    assert bar.get_zorder() < column.lines[0].get_zorder()
    low, high = column.get_ylim()
    assert low < 50.0 - 0.98 < 50.0 + 0.98 < high


def test_bars_of_many_short_gaps_are_as_pale_as_one():
    """They are one path: colours of bars that overlap do not add up to one that hides lines."""
    values, missing = np.zeros((900, 1)), np.arange(900)[:, None] % 3 > 0
    figure = Figure(figsize=(4, 2), dpi=100)
    _, column = filled_table(np.arange(900), values, values + 1.0, missing, names=["a"], figure=figure)
    for line in column.lines:
        line.set_visible(False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (left, below), (right, above) = column.get_window_extent().get_points().astype(int)
    inside = np.asarray(canvas.buffer_rgba())[200 - above + 9 : 200 - below - 9, left + 9 : right - 9, :3] / 255
    pale = 0.6 + 0.4 * np.array(to_rgb(PALETTE[1]))
    assert inside.min(axis=(0, 1)) == pytest.approx(pale, abs=0.02)


@pytest.mark.parametrize(("rows", "outline"), [(150, 0.0), (700, 1.0)])
def test_a_narrow_band_is_seen_by_its_outline(rows, outline):
    """In a long table, where its rows are thinner than a line; the legend has the same band."""
    values, missing = np.arange(float(rows))[:, None], np.isin(np.arange(rows)[:, None], range(50, 55))
    overview, column = filled_table(np.arange(rows), values, values, missing, names=["a"], figure=Figure())
    (band,) = column.collections
    shown = overview.get_legend().legend_handles[-1]
    assert (band.get_linewidth()[0], shown.get_linewidth()) == (outline, outline)
    np.testing.assert_allclose(band.get_facecolor()[0], shown.get_facecolor())
    np.testing.assert_allclose(band.get_edgecolor()[0, :3], to_rgb(PALETTE[1]))


def test_many_single_fills_have_small_dots_and_no_spikes():
    values, missing = np.arange(1000) % 2 * 10.0, np.arange(1000) % 10 == 1
    values[missing] = 3.0
    options = {"names": ["a"], "figure": Figure()}
    _, column = filled_table(np.arange(1000), values[:, None], values[:, None], missing[:, None], **options)
    line, dots = column.lines[1:3]
    assert np.nanmax(line.get_ydata()) == 3.0
    assert len(dots.get_xdata()) == 100
    assert dots.get_markersize() < 1.5


def test_seven_columns_stand_evenly():
    """The dates below the sixth are beside the seventh, without room between the rows for them."""
    x, values, sd, missing = table(columns=7)
    missing[3] = True
    figure = Figure(layout="constrained")
    _, *axes = filled_table(x, values, sd, missing, names=list("abcdefg"), xlabel="hour", figure=figure)
    figure.draw_without_rendering()
    tops = [ax.get_position().y1 for ax in axes[::2]]
    np.testing.assert_allclose(np.diff(tops), tops[1] - tops[0], rtol=0.1)
    assert [bool(ax.get_xlabel()) for ax in axes] == [False] * 5 + [True] * 2


def test_observed_and_filled_values_of_a_short_table_have_dots():
    x, values, sd, missing = table()
    overview, column = filled_table(x, values, sd, missing, names=["a", "b"], figure=Figure())
    seen, _, filled = column.lines
    assert (seen.get_marker(), filled.get_marker()) == ("o", "o")
    assert filled.get_xdata().tolist() == np.flatnonzero(missing[:, 0]).tolist()
    handles = dict(
        zip(["missing", "observed", "filled", "95 % interval"], overview.get_legend().legend_handles, strict=True)
    )
    assert [text.get_text() for text in overview.get_legend().get_texts()] == [*handles]
    for name, line in (("observed", seen), ("filled", filled)):
        assert to_rgb(handles[name].get_color()) == to_rgb(line.get_color())
        assert handles[name].get_marker() == "o"


@pytest.mark.parametrize(
    ("values", "shift", "scale", "ticks"),
    [
        (np.geomspace(0.02, 400, 8), 0.0, "log", [0.01, 0.1, 1, 10, 100]),
        (np.geomspace(0.02, 400, 8), 0.01, "log", [0.01, 0.1, 1, 10, 100]),  # all above the shift
        (np.geomspace(0.4, 20, 8), 0.0, "log", [0.3, 1, 3, 10]),
        (np.geomspace(2, 8, 8), 0.0, "log", [1, 2, 3, 5]),
        (np.geomspace(6, 8, 8), 0.0, "log", [2, 3, 5, 7]),
        (np.geomspace(36, 80, 8), 0.0, "log", [15, 20, 30, 50, 70]),  # of 1, 2 and 5 only two
        (np.geomspace(1, 168, 8), 3.28, "log", [1, 3, 10, 30, 100]),  # no value is 0
        (np.append(np.geomspace(0.02, 90, 7), 0.0), 0.05, "function", [0, 0.1, 1, 10, 100]),
        (np.arange(8.0), None, "linear", None),
        (np.arange(8.0) - 1.0, 0.5, "linear", None),
        (np.zeros(8), 0.0, "linear", None),
    ],
)
def test_a_logarithmic_axis_has_round_numbers(values, shift, scale, ticks):
    """A band that reaches much farther down does not stretch it, and 0 is on it where a value is 0."""
    x, missing = np.arange(8.0), np.arange(8)[:, None] == 3
    ends = values[:, None] * 1e-9, values[:, None] * 1.2
    options = {"ends": ends, "titles": ["a (m)"], "logarithmic": [shift]}
    _, ax = filled_table(x, values[:, None], 0.1 * missing, missing, names=["a"], **options, figure=Figure())
    title = "a (m)" if scale == "linear" else "a (m), log axis"
    assert (ax.get_yscale(), ax.get_title(loc="left")) == (scale, title)
    if ticks is not None:
        low, high = ax.get_ylim()
        assert [tick for tick in ax.get_yticks() if low <= tick <= high] == pytest.approx(ticks)
        assert low == 0.0 if scale == "function" else low >= values.min() / 3.5
        between = [tick for tick in ax.get_yticks(minor=True) if low <= tick <= high]
        assert bool(between) is (len({np.floor(np.log10(tick)) for tick in ticks if tick}) < 4)  # over few decades
        assert not any(label.get_text() for label in ax.get_yticklabels(minor=True))


def test_a_short_logarithmic_axis_has_more_than_one_number():
    """From 1.3 to 4, where of 1, 2 and 5 only one is."""
    values, missing = np.linspace(1.4, 3.8, 8)[:, None], np.arange(8)[:, None] == 3
    options = {"ends": (0.95 * values, 1.05 * values), "titles": ["a"], "logarithmic": [0.0], "figure": Figure()}
    _, ax = filled_table(np.arange(8.0), values, 0.1 * missing, missing, names=["a"], **options)
    low, high = ax.get_ylim()
    assert [tick for tick in ax.get_yticks() if low <= tick <= high] == [1.5, 2.0, 3.0]


def test_a_short_gap_of_a_long_table_is_seen():
    values, missing = np.zeros((90_000, 1)), np.zeros((90_000, 1), dtype=bool)
    missing[7] = True
    overview, _ = filled_table(np.arange(90_000), values, values, missing, names=["a"], figure=Figure())
    shares = overview.collections[0].get_array()
    assert shares.size <= 1500
    assert shares.ravel()[0] >= 0.35
    assert [text.get_text() for text in overview.texts] == ["< 1 %"]


def test_a_column_of_many_short_gaps_has_no_dots_on_them():
    """Dots of both colours side by side could not be told apart: observations have small ones, fills their line."""
    values, missing = np.arange(700.0)[:, None], np.arange(700)[:, None] % 3 > 0
    overview, column = filled_table(np.arange(700), values, values, missing, names=["a"], level=0.9, figure=Figure())
    seen, _, fills, alone = column.lines
    assert (len(fills.get_xdata()), len(alone.get_xdata())) == (0, 234)
    assert alone.get_markersize() < 1.0
    assert [handle.get_marker() for handle in overview.get_legend().legend_handles[1:3]] == ["None", "None"]
    assert seen.get_marker() == "None"
    assert overview.get_legend().get_texts()[-1].get_text() == "90 % interval"


def test_an_observation_between_gaps_is_seen_in_a_long_table():
    """Above the line of what was filled, which covers a line of length zero."""
    values, missing = np.arange(400.0)[:, None], np.ones((400, 1), dtype=bool)
    missing[[50, 200, 201]] = False
    _, column = filled_table(np.arange(400), values, values, missing, names=["a"], figure=Figure())
    dots = column.lines[-1]
    assert (dots.get_marker(), dots.get_color()) == ("o", column.lines[0].get_color())
    assert dots.get_xdata().tolist() == [50.0]
    assert dots.get_zorder() >= column.lines[1].get_zorder()


@pytest.mark.parametrize("hours", [6, 20, 60, 85, 96, 400, 2000, 9000, 40_000])
def test_dates_have_ticks_over_any_time(hours):
    """Between three and eight of them, without a warning."""
    x, values, sd, missing = table(rows=100)
    dates = np.datetime64("2020-03-11T00:05") + (x / 100 * hours * 3600).astype("timedelta64[s]")
    axes = filled_table(dates, values, sd, missing, names=["a", "b"], figure=Figure())
    low, high = axes[0].get_xlim()
    labels = axes[0].xaxis.get_major_formatter().format_ticks(axes[0].get_xticks())
    seen = [label for tick, label in zip(axes[0].get_xticks(), labels, strict=True) if low <= tick <= high]
    assert 3 <= len(seen) <= 9
    assert "202" in seen[0], seen  # the year
    assert not axes[0].xaxis.get_major_formatter().get_offset()


@pytest.mark.parametrize(
    ("start", "step", "shown"),
    [
        ("2020-03-01", "Y", ["2020", "2021", "2022", "2023"]),
        ("2021-10-01", "M", ["Oct\n2021", "Nov", "Dec", "Jan\n2022"]),
        ("2020-12-30", "D", ["30\nDec 2020", "31", "01\nJan 2021", "02"]),
        ("2020-03-30", "D", ["30\nMar 2020", "31", "01\nApr", "02"]),
        ("2020-03-11T22", "h", ["22:00\n11 Mar 2020", "23:00", "00:00\n12 Mar", "01:00"]),
        ("2020-03-11T23:58", "m", ["23:58\n11 Mar 2020", "23:59", "00:00\n12 Mar", "00:01"]),
        ("2020-03-11T23:59:58", "s", ["23:59:58\n11 Mar 2020", "23:59:59", "00:00:00\n12 Mar", "00:00:01"]),
    ],
)
def test_labels_of_dates_say_the_year_first_and_what_changes(start, step, shown):
    """A tick before the first row is not the first."""
    dates = np.datetime64(start, step) + np.arange(-1, 4)
    _, values, sd, missing = table(rows=4)
    rows = dates[1:].astype("datetime64[s]")
    overview, _ = filled_table(rows, values, sd, missing, names=["a", "b"], figure=Figure())
    overview.set_xlim(rows[0], rows[-1])
    labels = overview.xaxis.get_major_formatter().format_ticks(date2num(dates))
    assert labels[1:] == shown


def test_residuals_beyond_the_band_are_marked():
    residuals = np.array([[0.1, np.nan], [-2.5, np.nan], [1.0, np.nan], [np.nan, np.nan], [-0.3, np.nan]])
    first, second = residual_panels(np.arange(5), residuals, names=["a", "b"], xlabel="hour", figure=Figure())
    _, inside, outside, *_ = first.lines
    assert (inside.get_ydata().tolist(), outside.get_ydata().tolist()) == ([0.1, 1.0, -0.3], [-2.5])
    assert [ax.texts[0].get_text() for ax in (first, second)] == ["75 % within", "nothing observed"]
    assert (first.get_xlabel(), second.get_xlabel()) == ("", "hour")
    assert first.figure.get_supylabel() == "error / its standard deviation"
    with pytest.raises(ValueError, match="residuals must have 4 rows, got 5"):
        residual_panels(np.arange(4), residuals, names=["a", "b"])


def test_a_panel_alone_is_higher_than_one_of_several():
    """Labels of its ticks touched in one of 90 pixels."""
    alone, first = (
        residual_panels(np.arange(5), np.zeros((5, p)), names=["a", "b"][:p], figure=None)[0] for p in (1, 2)
    )
    heights = [ax.figure.get_figheight() for ax in (alone, first)]
    assert heights == pytest.approx([2.2, 2.5])


def test_few_large_errors_do_not_squeeze_the_others():
    """They are at the edge, and counted."""
    residuals = np.array([[0.5], [14.0], [-1.0], [-9.0], [3.5]])
    (ax,) = residual_panels(np.arange(5), residuals, names=["a"], figure=Figure())
    assert ax.get_ylim() == (-4.0, 4.0)
    up, down = ax.lines[-2:]
    assert (up.get_marker(), up.get_xdata().tolist(), down.get_marker(), down.get_xdata().tolist()) == (
        "^",
        [1],
        "v",
        [3],
    )
    assert ax.texts[0].get_text() == "40 % within, 2 beyond ± 4"


def test_errors_of_places_are_maps_with_rings_beyond_the_band():
    places, residuals = [[0, 0], [1, 0], [0, 1]], [[0.1, np.nan], [-2.5, np.nan], [np.nan, np.nan]]
    axes = residual_maps(places, residuals, names=["a", "b"], labels=("X", "Y"), figure=Figure())
    inside, beyond = (each.get_offsets().tolist() for each in axes[0].collections[:2])
    assert (inside, beyond) == ([[0, 0]], [[1, 0]])
    assert [ax.texts[0].get_text() for ax in axes] == ["50 % within", "nothing observed"]
    assert axes[0].get_ylabel() == "Y"
    with pytest.raises(ValueError, match=r"places must have shape \(3, 2\)"):
        residual_maps(places[:2], residuals, names=["a", "b"])


def test_maps_have_a_ring_where_something_was_filled():
    x, values, sd, missing = table()
    places = np.column_stack([x, x**2])
    options = {"names": ["a", "b"], "labels": ("lon", "lat"), "is_every": True}
    assert [len(filled_maps(places, values, sd, missing, **options | {"is_every": each})) for each in (0, 1)] == [1, 2]
    axes = filled_maps(places, values, sd, missing, **options, figure=Figure())
    observed, filled = axes[0].collections[:2]
    np.testing.assert_array_equal(filled.get_offsets(), places[missing[:, 0]])
    np.testing.assert_array_equal(filled.get_array(), values[missing[:, 0], 0])
    assert len(observed.get_offsets()) == 5
    np.testing.assert_allclose(filled.get_edgecolors()[0, :3], to_rgb(PALETTE[1]))
    assert not len(observed.get_edgecolors())
    assert [ax.collections[0].get_alpha() for ax in axes] == [0.35, 1.0]  # pale between fills
    rows = np.flatnonzero(missing[:, 0])
    sd[rows[0]], sd[rows[1]] = 0.6, 0.4
    sizes = filled_maps(places, values, sd, missing, names=["a", "b"])[0].collections[1].get_sizes()
    assert sizes[0] == pytest.approx(1.5 * sizes[1])  # the less sure the larger
    sd[rows[:2]] = 0.5
    assert [ax.texts[0].get_text() for ax in axes] == ["3 filled, ± 0.5", "none filled"]
    assert legend(axes[0].figure) == ["observed", "filled, ± half, once, twice the median standard deviation"]
    key = [
        dot
        for dot in axes[0].figure.legends[0].findobj(Line2D)
        if to_rgb(dot.get_markeredgecolor()) == to_rgb(PALETTE[1])
    ]
    sizes = sorted(dot.get_markersize() ** 2 for dot in key)  # of areas
    assert sizes == pytest.approx([0.5 * sizes[1], sizes[1], 2.0 * sizes[1]])
    assert sizes[1] == pytest.approx(filled.get_sizes()[0])
    three = filled_maps(
        places, *(each[:, [0, 0, 0]] for each in (values, sd, missing)), names=[*"abc"], labels=("X", "Y")
    )
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in three] == [("", "Y"), ("X", ""), ("X", "Y")]
    north = filled_maps([[7, 60], [8, 60]], [[1], [2]], [[0], [0]], [[0], [0]], names=["a"], degrees=True)
    assert north[0].get_aspect() == pytest.approx(2.0)
    with pytest.raises(ValueError, match=r"places must have shape \(8, 2\), got \(8, 1\)"):
        filled_maps(places[:, :1], values, sd, missing, names=["a", "b"])


def test_dates_and_many_columns():
    x, values, sd, missing = table(columns=20)
    dates = np.datetime64("2024-01-01") + x.astype(int) * np.timedelta64(1, "D")
    missing[3] = True
    figure = Figure(dpi=100)
    axes = filled_table(dates, values, sd, missing, names=[f"station {p}" for p in range(20)], figure=figure)
    assert len(axes) == 21
    left = {round(ax.get_position().x0, 3) for ax in axes[1:]}
    assert len(left) == 2
    assert "Jan" in str(axes[0].xaxis.get_major_formatter().format_ticks(axes[0].get_xticks()))
    assert axes[0].format_xdata(date2num(np.datetime64("2024-01-02T03:04"))) == "2024-01-02 03:04:00"


def test_pairs_have_numbers_and_lags():
    """Each pair once; no column beside itself."""
    correlation = [[1.0, -0.8, -0.001], [-0.8, 1.0, 0.3], [-0.001, 0.3, 1.0]]
    ax = pair_correlations(correlation, names=["a", "b", "c"], lags=["", "+2 h", ""], ax=Figure().subplots())
    numbers = {text.get_position(): text.get_text() for text in ax.texts}
    assert numbers == {(0, 0): "-0.80", (0, 1): "0.00", (1, 1): "0.30"}
    np.testing.assert_allclose(ax.images[0].get_array().filled(np.nan), [[-0.8, np.nan], [-0.001, 0.3]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b (+2 h)", "c"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    assert not pair_correlations([[1.0]], names=["a"], ax=Figure().subplots()).texts
    many = pair_correlations(np.eye(20), names=[str(p) for p in range(20)], ax=Figure().subplots())
    assert not many.texts
    long = pair_correlations(np.eye(2), names=["temperature", "wind"], ax=Figure().subplots())
    assert [each.get_xticklabels()[0].get_rotation() for each in (ax, long)] == [0, 90]


@pytest.mark.parametrize(
    "names", [["NEE", "LE", "Rg", "Tair", "VPD"], ["Cd", "Cu", "Ni"], ["NEE", "latent heat (W/m²)"]]
)
def test_names_of_pairs_are_within_the_figure(names):
    """Cells are squares, for which a layout leaves no room that it does not look for."""
    ax = pair_correlations(np.eye(len(names)), names=names)
    ax.figure.canvas.draw()
    frame = ax.figure.bbox
    texts = [each for axes in ax.figure.axes for each in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    for box in (text.get_window_extent() for text in texts if text.get_text()):
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1


def test_shapes_must_fit():
    x, values, sd, missing = table()
    with pytest.raises(ValueError, match="sd must be a non-empty array with 2 axes"):
        filled_table(x, values, sd[:, 0], missing, names=["a", "b"])
    with pytest.raises(ValueError, match="names must have 2 entries, got 1"):
        filled_table(x, values, sd, missing, names=["a"])
    with pytest.raises(ValueError, match=r"correlation must have shape \(1, 1\), got \(2, 2\)"):
        pair_correlations(np.eye(2), names=["a"])
