"""The words and the picture of an agreement."""

from typing import Any

from segmeter.report.labels import agreement_notes, show_agreement, verdicts


def entry(mean: float | str | None, low: float = 0.1, high: float = 0.3) -> dict[str, Any]:
    return {"mean": mean, "ci95": None if mean is None else [low, high], "n_used": 9}


def result(**changes: Any) -> dict[str, Any]:
    """An agreement of two people and a model."""
    matrix = {a: {b: entry(0.5) for b in "xym" if b != a} for a in "xym"}
    contrast = {"m": entry(-0.2, -0.3, -0.1) | {"change": "worse"}}
    score = {"better": "higher", "matrix": matrix, "majority": {"m": entry(0.4)}, "rest": {}, "contrast": contrast}
    resampling = {"interval": "expanded", "resamples": 100, "cluster": None, "n_units": 9, "warning": None}
    return {
        "n_cases": 9,
        "readers": ["x", "y"],
        "models": ["m"],
        "headline": "iou/cell",
        "convention": "segmeter",
        "scores": {"iou/cell": score},
        "apart": [],
        "tied": {"majority": 0.01},
        "bootstrap": resampling,
        **changes,
    }


def test_a_model_is_held_against_the_human_ceiling_by_its_interval() -> None:
    assert verdicts(result()) == [
        "m to the readers, minus the readers to each other: -0.2000 [-0.300, -0.100] (further than readers from each "
        "other)"
    ]
    given = result()
    given["scores"]["iou/cell"]["contrast"]["m"]["ci95"] = [-0.3, 0.1]
    assert "not told apart from the human ceiling" in verdicts(given)[0]


def test_objections_stand_beside_the_figures() -> None:
    shown = show_agreement(result())
    told = " ".join([*shown.notes, *shown.objections])
    for words in ("not accuracy", "choice of readers", "averages them", "two readers", "1.00 % (majority)"):
        assert words in told
    few = result(readers=["x", "y", "z"], bootstrap=result()["bootstrap"] | {"n_units": 3})
    assert "3 cases: too few to tell anyone apart" in " ".join(agreement_notes(few))


def test_tables_show_every_pair_and_leave_unmeasured_cells_empty() -> None:
    """The darker a pair, the better it agrees, whatever the direction of the score."""
    given = result()
    matrix = given["scores"]["iou/cell"]["matrix"]
    matrix["x"]["y"], matrix["y"]["x"] = entry(0.9), entry(None)
    pairs, readers = show_agreement(given).tables
    assert pairs.title.startswith("IoU of cell, mean over 9 cases")
    assert pairs.rows == [["x", "", "0.9000", "0.5000"], ["y", "n/a", "", "0.5000"], ["m", "0.5000", "0.5000", ""]]
    assert pairs.shades == [[-1, -1, 4, 0], [-1, -1, -1, 0], [-1, 0, 0, -1]]
    assert readers.rows[2][:3] == ["m", "0.4000 [0.100, 0.300]", ""]
    given["scores"]["iou/cell"]["better"] = "lower"
    assert show_agreement(given).tables[0].shades[0] == [-1, -1, 0, 4]
