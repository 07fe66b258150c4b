"""What somebody may have meant."""

import pytest

from cgp.spelling import meant


@pytest.mark.parametrize(
    ("given", "near"),
    [
        (["ozon"], "; did you mean 'Ozone'?"),
        (["WNID", "ozon"], "; did you mean 'wind', 'Ozone'?"),
        (["snow"], ""),
        (["temp"], "; did you mean 'temperature'?"),
        (["te"], ""),
        ([3], ""),
    ],
)
def test_the_nearest_known_names_are_said(given, near):
    assert meant(given, ["Ozone", "wind", 12, "temperature"]) == near
