"""The words and the picture of an agreement, and those of suspects."""

import io
from typing import Any

import numpy as np
from PIL import Image

from segmeter.report import labels
from segmeter.report.decisions import print_shown
from tests.data.crafted import BINARY


def entry(mean: float | str | None, low: float = 0.1, high: float = 0.3) -> dict[str, Any]:
    return {"mean": mean, "ci95": None if mean is None else [low, high], "n_used": 9}


def result(**changes: Any) -> dict[str, Any]:
    """An agreement of two people and a model."""
    matrix = {a: {b: entry(0.5) for b in "xym" if b != a} for a in "xym"}
    contrast = {"m": entry(-0.2, -0.3, -0.1) | {"change": "worse"}}
    score = {"better": "higher", "matrix": matrix, "majority": {"m": entry(0.4)}, "rest": {}, "contrast": contrast}
    resampling = {"interval": "expanded", "resamples": 100, "cluster": None, "n_units": 9, "warning": None}
    facts = {"n_cases": 9, "readers": ["x", "y"], "models": ["m"], "headline": "iou/cell", "convention": "segmeter"}
    facts |= {"scores": {"iou/cell": score}, "apart": [], "tied": {"majority": 0.01}, "bootstrap": resampling}
    return facts | changes


def test_a_model_is_held_against_the_human_ceiling_by_its_interval() -> None:
    assert labels.verdicts(result()) == [
        "m to the readers, minus the readers to each other: -0.2000 [-0.300, -0.100] (further than readers from each "
        "other)"
    ]
    given = result()
    given["scores"]["iou/cell"]["contrast"]["m"]["ci95"] = [-0.3, 0.1]
    assert "not told apart from the human ceiling" in labels.verdicts(given)[0]


def test_objections_stand_beside_the_figures() -> None:
    shown = labels.show_agreement(result())
    told = " ".join([*shown.notes, *shown.objections])
    for words in ("not accuracy", "choice of readers", "averages them", "two readers", "1.00 % (majority)"):
        assert words in told
    few = result(readers=["x", "y", "z"], bootstrap=result()["bootstrap"] | {"n_units": 3})
    assert "3 cases: too few to tell anyone apart" in " ".join(labels.agreement_notes(few))


def test_tables_show_every_pair_and_leave_unmeasured_cells_empty() -> None:
    given = result()
    matrix = given["scores"]["iou/cell"]["matrix"]
    matrix["x"]["y"], matrix["y"]["x"] = entry(0.9), entry(None)
    pairs, readers = labels.show_agreement(given).tables
    assert pairs.title.startswith("IoU of cell, mean over 9 cases")
    assert pairs.rows == [["x", "", "0.9000", "0.5000"], ["y", "n/a", "", "0.5000"], ["m", "0.5000", "0.5000", ""]]
    assert readers.rows[2][:3] == ["m", "0.4000 [0.100, 0.300]", ""]


ROW = {"rank": 1, "case_id": "a", "kind": "missing", "given": "background", "suggested": "cell", "chance": 0.5}
ROW |= {"score": 0.7, "top": 0, "left": 30, "height": 6, "width": 8, "size": 40, "size_z": 0.1}


def test_a_crop_shows_the_suspect_at_the_edge_of_an_image() -> None:
    image, target, found = np.zeros((40, 40, 3), np.uint8), *np.zeros((2, 40, 40), np.uint8)
    found[0:6, 30:38] = 1
    picture = Image.open(io.BytesIO(labels.draw_crop(image, target, found, ROW, BINARY)))
    assert picture.format == "WEBP"
    assert min(picture.size) > 100


def test_suspects_are_said_in_words_with_the_limits_of_their_chances(tmp_path, capsys):
    missing = {"found": 3, "expected": 1.5, "planted": 20, "recovered": 0.9}
    found = {"kinds": {"missing": missing}, "n_cases": 4, "runs": ["r"]}
    shown = labels.show_suspects(found | {"suspects": [ROW]}, tmp_path)
    assert shown.tables[1].rows == [["1", "a", "missing cell", "0.50", "0", "30", "40", "+0.1"]]
    print_shown(shown, {})
    text = capsys.readouterr().out
    assert "missing cell" in text
    assert "if 5 % of the objects are wrong" in " ".join(shown.notes)
    assert "too few objects" not in text
    missing |= {"planted": 0, "recovered": None}
    assert "errors of: missing" in labels.show_suspects(found | {"suspects": []}, tmp_path).notes[0]
    assert "noise" in " ".join(labels.show_label_next({"by": "entropy", "images": []}).notes)
