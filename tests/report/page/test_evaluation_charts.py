"""Curves of probabilities, by hand."""

import pytest

from segmeter.report.page import evaluation as charts

ENTRY = {
    "ece": 0.1,
    "average_precision": 0.7,
    "reliability": {"confidence": [0.0, None, 1.0], "accuracy": [0.5, None, 1.0]},
    "curve": {"recall": [0.0, 1.0], "precision": [1.0, 0.5]},
}


def test_reliability_and_precision_have_named_axes_and_rising_places():
    said, curve = charts.calibration_charts({"per_class": {"car": ENTRY}, "reliability": None})
    assert (said["axes"], curve["axes"]) == (("probability", "share that came true"), ("recall", "precision"))
    assert [(line["name"], line["last"]) for line in said["lines"]] == [("as said", None), ("car, ECE", 0.1)]
    assert (said["lines"][1]["xs"], said["lines"][1]["ys"]) == ([0, 1], [0.5, 1])  # an empty bin is left out
    falling = ENTRY | {"curve": {"recall": [1.0, 0.5], "precision": [0.2, 1.0]}}
    _, curve = charts.calibration_charts({"per_class": {"car": falling}, "reliability": None})
    assert (curve["lines"][0]["xs"], curve["lines"][0]["ys"]) == ([0.5, 1], [1, 0.2])


def test_of_many_classes_the_lowest_average_precision_is_drawn():
    entries = {str(k): ENTRY | {"average_precision": k / 10} for k in range(9)}
    _, curve = charts.calibration_charts({"per_class": entries, "reliability": None})
    assert [line["name"] for line in curve["lines"]] == ["0, AP", "1, AP", "2, AP", "3, AP"]


@pytest.mark.parametrize("points", [1, 10, 100_000])
def test_long_curves_are_thinned_but_keep_their_ends(points):
    shares = [k / max(1, points - 1) for k in range(points)]
    long = ENTRY | {"curve": {"recall": shares, "precision": shares}}
    _, curve = charts.calibration_charts({"per_class": {"car": long}, "reliability": None})
    xs = curve["lines"][0]["xs"]
    assert len(xs) <= charts.MOST_POINTS + 1
    assert (xs[0], xs[-1]) == (shares[0], shares[-1])
