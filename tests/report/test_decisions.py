"""The page and the terminal of a decision: tables, words, charts and crops."""

import io
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.needed_cases import Aims, plan_published
from segmeter.report import labels
from segmeter.report.decisions import Shown, print_shown, show_plan, show_tuned
from segmeter.report.drawing import HEIGHT, WIDTH, Chart, Curve, _log_ticks, _ticks
from tests.data.crafted import BINARY


def shown(**aims: float) -> Shown:
    return show_plan(plan_published(mean=0.78, sd=0.12, cases=40, config=MetricsConfig(), aims=Aims(**aims)))


def test_each_aim_has_its_table_and_its_chart() -> None:
    both = shown(width=0.05, detect=0.03)
    titles = [table.title.partition(":")[0] for table in both.tables]
    assert titles == ["95 % interval of width 0.05", "difference of 0.03 told with power 0.8"]
    assert [chart.svg()[:4] for _, chart in both.charts] == ["<svg"] * 2
    (line,) = both.tables[0].rows
    assert line[3:5] == ["93", "[62, 149]"]
    plan = plan_published(mean=0.78, sd=0.12, cases=None, config=MetricsConfig(), aims=Aims(width=0.05))
    assert "counts as exact" in show_plan(plan).notes[0]  # a spread without its cases


@pytest.mark.parametrize("cluster", [None, "prefix:_"], ids=["cases", "clusters"])
def test_a_plan_fits_80_columns(cluster: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    aims = Aims(width=0.001, detect=0.001)
    plan = plan_published(mean=0.78, sd=0.12, cases=40, config=MetricsConfig(), aims=aims)
    (row,) = plan["rows"]
    result = {**plan, "rows": [row | {"score": "iou/nucleus"}], "cluster": cluster}
    for aim in ("width", "power"):
        row[aim] |= {"cases": 123_456}
    print_shown(show_plan(result), {})
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def tuned(**more: Any) -> dict[str, Any]:
    tried = []
    for t, s, score in (("0.4", "0", 0.6), ("0.5", "0", 0.5), ("0.4", "8", 0.55), ("0.5", "8", 0.45)):
        found = {"score": score, "ci95": [score - 0.1, score + 0.1], "gain": score - 0.5, "share": 0.25}
        tried.append({"values": {"threshold": t, "size": s}, **found})
    known = {"gain": 0.1, "optimism": 0.02, "corrected_gain": 0.08, "gain_ci95": [0.01, 0.2], "score": 0.58}
    known |= {"score_ci95": [0.5, 0.66], "chosen": 0, "usual": 1, "n_cases": 20, "split": "val", "kind": "dataset"}
    return {"by": "iou/cell", "better": "higher", "settings": tried, **known, **more}


def test_a_tuning_shows_the_chosen_setting_first_and_a_curve_of_those_alike() -> None:
    found = show_tuned(tuned())
    assert found.tables[0].rows[0][:3] == ["0.4", "0", "chosen"]
    ((caption, chart),) = found.charts
    assert [[*curve.points] for curve in chart.curves] == [[(0.4, 0.6), (0.5, 0.5)]]
    assert caption.startswith("IoU of cell by threshold, the other keys as chosen.")
    assert not any("can't tell" in note for note in found.notes)
    result = tuned()
    for one, value in zip(result["settings"], ("no", "yes", "no", "yes"), strict=True):
        one["values"] = {"largest_component": value}
    assert show_tuned(result).charts == []  # without numbers there is no curve


def test_a_gain_is_corrected_and_decided_only_where_it_has_an_interval() -> None:
    assert any("can't tell" in note for note in show_tuned(tuned(gain_ci95=[-0.1, 0.2])).notes)
    assert show_tuned(tuned(corrected_gain=-0.00001)).notes[0].endswith("corrected +0.0000 [0.0100, 0.2000]")
    gain, unknown = show_tuned(tuned(gain_ci95=[None, None], score_ci95=[None, None])).notes
    assert (gain, unknown[:13]) == ("gain over the usual setting +0.1000", "Too few cases")
    assert "usual setting is the best" in show_tuned(tuned(chosen=1, gain=0.0, gain_ci95=[0.0, 0.0])).notes[-1]
    few = show_tuned(tuned(chosen=1, gain=0.0, gain_ci95=[None, None])).notes[-1]
    assert few == "The usual setting is the best of them. Too few cases for an interval."


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


def chart(**more: object) -> Chart:
    curve = Curve(
        name="<a>", points=[(1, 0.0), (10, 0.5), (100, 1.0)], dots=[(10, 0.4)], band=[(1, 0, 0.1), (100, 0.9, 5)]
    )
    values = {"curves": [curve, Curve(name="b", points=[(1, 1.0), (100, 1.0)], colour="#ff0000")], **more}
    return Chart(x_label="cases & more", y_label="width", **values)  # type: ignore[arg-type]


def test_texts_are_escaped_and_every_place_lies_on_the_chart() -> None:
    svg = chart(log_x=True, y_range=(0, 1), vertical={"30": 30}, horizontal={"asked": 0.5}).svg()
    root = ElementTree.fromstring(svg)
    assert "cases &amp; more" in svg
    assert "&lt;a&gt;" in svg
    for shape in root:
        for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", shape.get("points", "")):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


def test_the_marks_of_an_axis_are_round_numbers_and_the_axes_are_linear_unless_asked() -> None:
    texts = [shape.text for shape in ElementTree.fromstring(chart(y_range=(0, 5)).svg()) if shape.tag.endswith("text")]
    assert [text for text in ("1", "2", "3", "4", "5") if text in texts] == ["1", "2", "3", "4", "5"]
    assert [text for text in ("20", "40", "60", "80", "100") if text in texts] == ["20", "40", "60", "80", "100"]


def test_a_logarithmic_axis_places_equal_ratios_at_equal_distances() -> None:
    root = ElementTree.fromstring(chart(log_x=True).svg())
    line = next(shape for shape in root if shape.get("stroke") == "#2f6fde")
    x = [float(pair.split(",")[0]) for pair in line.get("points", "").split()]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.11)


def test_the_png_shows_the_colours_of_the_curves() -> None:
    drawn = np.asarray(Image.open(io.BytesIO(chart().png())))
    assert drawn.shape == (2 * HEIGHT, 2 * WIDTH, 3)
    assert (drawn == (255, 0, 0)).all(axis=2).sum() > WIDTH


def test_ticks_are_round_and_inside_and_logarithmic_ones_are_one_two_and_five() -> None:
    assert _ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert _ticks(0.32, 0.68) == [0.4, 0.5, 0.6]
    assert _ticks(3, 3) == [3]
    assert _log_ticks(5, 300) == [5, 10, 20, 50, 100, 200]
    assert _log_ticks(1, 1e6) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]
