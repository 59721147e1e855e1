"""Positions in charts, by hand."""

import numpy as np
import pytest

from segmeter.report.page import charts


def test_heat_map_shares_are_of_the_row_and_empty_cells_are_left_out():
    heat = charts.heat_map([[3, 1], [0, 0]], ["a", "b"])
    assert [(cell.row, cell.column, cell.count, cell.share) for cell in heat.cells] == [
        (0, 0, 3, 0.75),
        (0, 1, 1, 0.25),
    ]


def test_histogram_counts_every_score_once(rng):
    scores = [*rng.random(500).tolist(), 0.0, 1.0]
    bars = charts.histogram(scores)
    assert sum(count for _, _, count in bars) == 502
    reference, _ = np.histogram(scores, bins=20, range=(0, 1))
    assert [count for _, _, count in bars] == reference.tolist()
    assert max(height for _, height, _ in bars) == 1


def test_histogram_of_nothing_is_flat():
    assert all(height == 0 for _, height, _ in charts.histogram([]))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7.5), (1e-7, 3e-7), (999, 1001), (0, 12345678)])
@pytest.mark.parametrize("most", [3, 5, 6])
def test_ticks_cover_the_range_evenly_with_round_steps(low, high, most):
    found = charts.ticks(low, high, most=most)
    assert found[0] <= low * (1 + 1e-9)
    assert found[-1] >= high * (1 - 1e-9)
    assert 2 <= len(found) <= most + 2
    np.testing.assert_allclose(np.diff(found), found[1] - found[0], rtol=1e-6)


def test_curves_join_training_and_validation_of_one_name():
    history = [
        {"step": 0, "epoch": 0.0, "loss": 2.0, "seconds": 1.0},
        {"step": 5, "val": {"loss": 1.0, "mean_iou": 0.5}, "best": True},
        {"step": 10, "loss": 0.0, "lr": 0.1},
    ]
    found = charts.curves(history)
    assert [chart.title for chart in found] == ["loss", "mean_iou", "lr"]
    loss = found[0]
    assert [(line.name, line.last) for line in loss.lines] == [("loss", 0.0), ("val/loss", 1.0)]
    assert loss.lines[0].path == "M0.0 0.0 L520.0 190.0"  # from the top left to the bottom right
    assert loss.lines[1].path.startswith("M260.0 95.0m")


def test_a_point_without_a_neighbour_is_a_ring_around_it():
    history = [{"step": step, "loss": value} for step, value in enumerate([1.0, None, 0.5, 0.0])]
    alone, line = charts.curves(history)[0].lines[0].path.split(" M")
    assert alone == "M0.0 0.0m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0"
    assert line == "346.7 95.0 L520.0 190.0"
    assert "a3 3" in charts.curves([{"step": 7, "loss": 0.5}])[0].lines[0].path


def test_missing_values_break_a_line():
    history = [{"step": step, "loss": value} for step, value in enumerate([1.0, None, 0.5, 0.0])]
    assert charts.curves(history)[0].lines[0].path.count("M") == 2
    assert charts.curves([{"step": 0, "loss": None}]) == []
    assert charts.curves([]) == []


def test_long_histories_are_thinned_but_keep_their_ends():
    history = [{"step": step, "loss": float(step % 7)} for step in range(100_000)]
    line = charts.curves(history)[0].lines[0]
    assert line.path.count("L") <= charts.MOST_POINTS + 1
    assert line.path.startswith("M0.0 ")
    assert "520.0 " in line.path.rsplit("L", 1)[1]
