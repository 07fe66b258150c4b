import numpy as np

from experiments.studies.small_data import draw, scores, small_data

DRAWN = [draw(8, 4, seed) for seed in (4, 9)]


def test_the_defaults_are_not_over_confident_where_map_is():
    assert max(scores(drawn, inference="map")[1] for drawn in DRAWN) < -5.0
    assert min(scores(drawn)[1] for drawn in DRAWN) > -4.0


def test_every_row_is_an_observation_of_one_output():
    for drawn in DRAWN:
        assert drawn.inputs.shape == (8, 1)
        seen = ~np.isnan(drawn.targets)
        assert (seen.sum(1) == 1).all()
        assert seen.any(0).all()
        assert drawn.truth.shape == (12, 4)
        assert np.isfinite(drawn.truth).all()
        assert not set(drawn.inputs[:, 0]) & set(drawn.new_inputs[:, 0])


def test_the_table_has_a_row_for_each_size(capsys):
    small_data(sizes=[4, 5], outputs=[1], draws=2, arguments={"inference": "map"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| outputs | observations | coverage of 95 % |")
    assert [line.split("|")[1:3] for line in lines[2:]] == [[" 1 ", " 4 "], [" 1 ", " 5 "]]
    inside = [scores(draw(4, 1, seed), inference="map")[0] for seed in (0, 1)]
    assert lines[2].split("|")[3].split()[0] == f"{np.mean(inside):.3f}"
