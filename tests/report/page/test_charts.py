"""Curves of probabilities, by hand."""

import pytest

from segmeter.report.page import charts

ENTRY = {
    "ece": 0.1,
    "average_precision": 0.7,
    "reliability": {"confidence": [0.0, None, 1.0], "accuracy": [0.5, None, 1.0]},
    "curve": {"recall": [0.0, 1.0], "precision": [1.0, 0.5]},
}


def test_reliability_and_precision_have_named_axes_from_zero_to_one():
    found = charts.calibration_charts({"per_class": {"car": ENTRY}, "reliability": None})
    assert [chart.axes for chart in found] == [("probability", "share that came true"), ("recall", "precision")]
    said, curve = found
    assert [(line.name, line.last) for line in said.lines] == [("as said", None), ("car, ECE", 0.1)]
    assert said.lines[1].path == "M0.0 95.0 L520.0 0.0"  # an empty bin is left out
    assert curve.lines[0].path == "M0.0 0.0 L520.0 95.0"
    assert [text for _, text in curve.x_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_of_many_classes_the_lowest_average_precision_is_drawn():
    entries = {str(k): ENTRY | {"average_precision": k / 10} for k in range(9)}
    _, curve = charts.calibration_charts({"per_class": entries, "reliability": None})
    assert [line.name for line in curve.lines] == ["0, AP", "1, AP", "2, AP", "3, AP"]


def test_a_point_without_a_neighbour_is_a_ring_around_it():
    one = ENTRY | {"curve": {"recall": [0.5], "precision": [1.0]}}
    _, curve = charts.calibration_charts({"per_class": {"car": one}, "reliability": None})
    assert curve.lines[0].path == "M260.0 0.0m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0"


@pytest.mark.parametrize("points", [10, 100_000])
def test_long_curves_are_thinned_but_keep_their_ends(points):
    shares = [k / (points - 1) for k in range(points)]
    long = ENTRY | {"curve": {"recall": shares, "precision": shares}}
    _, curve = charts.calibration_charts({"per_class": {"car": long}, "reliability": None})
    path = curve.lines[0].path
    assert path.count("L") <= charts.MOST_POINTS + 1
    assert path.startswith("M0.0 190.0")
    assert path.endswith("L520.0 0.0")
