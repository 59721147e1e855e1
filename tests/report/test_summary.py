"""What the terminal shows, and that names can't steer it."""

import io
import re
from pathlib import Path

import numpy as np

import segmeter
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.figures import slices, title
from segmeter.report.html import write_report
from segmeter.report.summary import print_summary, render_summary

from .test_html import measured_run


def shown(summary):
    file = io.StringIO()
    print_summary(summary, file=file)
    return file.getvalue()


SUMMARY = {
    "schema": 1,
    "convention": "segmeter",
    "n_cases": 3,
    "classes": ["ground", "car"],
    "ignore_index": 255,
    "confusion_matrix": [[60, 20], [20, 0]],
    "dataset": {"mean_iou": 0.3, "mean_dice": 0.375, "pixel_accuracy": 0.6},
    "per_class": {
        "ground": {"iou": 0.6, "dice": 0.75, "precision": 0.75, "recall": 0.75, "support": 80},
        "car": {"iou": None, "dice": 0.0, "precision": 0.0, "recall": 0.0, "support": 20},
    },
    "per_case": {"mean_iou": {"mean": 0.31, "std": 0.1, "n_used": 2, "n_undefined": 1, "ci95": [0.25, 0.4]}},
    "loss": {},
}


def test_schema_1_alone_is_enough():
    text = shown(SUMMARY)
    lines = [line for line in text.splitlines() if "car" in line]
    assert len(lines) == 1
    assert lines[0].split() == ["car", "n/a", "0.000", "0.000", "0.000", "20.0%"]
    assert "mean IoU" in text
    assert "0.3100 (0.1000) [0.250, 0.400] 2 of 3" in " ".join(text.split())  # rich 13 pads the last column
    assert "convention segmeter; 3 cases; label 255 ignored" in text
    assert render_summary(SUMMARY) == f"<pre>{text}</pre>"


OURS = {"mean_iou": 0.5, "nsd@2": 0.75, "hd95": "inf"}
THEIRS = {"differs": ["mean per case"], "left_out": {"hd95": 3}, "refused": ["0.0 for all missed"]}
CONVENTIONS = [
    {"name": "segmeter", "tool": "segmeter", "hash": "12ab", "figures": OURS, "differs": [], "refused": []},
    {"name": "monai", "tool": "MONAI", "hash": "34cd", "figures": {"mean_iou": None, "hd95": 4.0}, **THEIRS},
]


def cells_of(text):
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_conventions_stand_beside_each_other_with_what_they_leave_out():
    text = shown(SUMMARY | {"conventions": CONVENTIONS})
    rows = {cells[0]: cells[1:] for cells in cells_of(text)}
    assert rows["convention"] == ["IoU", "HD95", "NSD@2"]  # "mean" stands above "IoU"
    assert rows["segmeter"] == ["0.5000", "inf", "0.7500"]
    assert rows["monai"] == ["n/a", "4.0000", "-"]
    assert "monai differs from ours: mean per case; 3 left out of HD95" in text
    assert "not copied from monai: 0.0 for all missed" in text


def test_measures_and_probabilities_have_tables_in_plain_text_of_80_columns(tmp_path, rng):
    summary = measured_run(tmp_path, rng)
    text = shown(summary)
    rows = {cells[0]: cells[1:] for cells in cells_of(text)}
    assert (rows["HD95 (pixels)"][1], rows["HD95 (pixels)"][-2:]) == ("inf", ["4", "1"])
    summary["measures"]["sq"]["mean"]["dataset"] = None
    assert cells_of(shown(summary))
    assert next(cells for cells in cells_of(shown(summary)) if cells[:2] == ["SQ", "mean"])[2] == "n/a"
    assert "ECE of the winning class" in text
    assert "average precision" in " ".join(text.split())
    assert text.isascii()  # and so without codes for colours
    assert all(len(line) <= 80 for line in text.splitlines())


def measured(names, *, measures):
    entry = {"mean": 0.123, "ci95": [0.1, 0.2], "median": 0.125, "n_used": 4, "n_penalised": 0, "n_undefined": 0}
    return SUMMARY | {
        "classes": list(names),
        "per_class": dict.fromkeys(names, SUMMARY["per_class"]["ground"]),
        "measures": {f"measure_{i}": dict.fromkeys((*names, "mean"), entry) for i in range(measures)},
    }


def test_only_ten_rows_of_measures_are_printed_and_the_others_counted():
    few, many = (shown(measured(["ground", "car"], measures=count)) for count in (3, 20))
    assert "more in metrics.json" not in few
    assert "50 more in metrics.json and in the report." in many
    some = shown(measured(["ground", "car"], measures=4))
    assert "8 more in metrics.json and in the report." in some, "single classes do not fill the ten rows"
    assert "car" not in some.partition("measure_0")[2]
    assert re.search("measure_3 +mean", many)
    assert not re.search("measure_3 +car", many)


def test_with_many_classes_the_ten_worst_are_printed():
    entries = {f"c{i}": {**SUMMARY["per_class"]["ground"], "iou": i / 30} for i in range(30)}
    text = shown(SUMMARY | {"classes": list(entries), "per_class": entries})
    assert "20 more with higher IoU in metrics.json and in the report." in text
    assert [f"c{i} " in text for i in (0, 9, 10, 29)] == [True, True, False, False]


def test_groups_stand_under_the_classes():
    group = {"classes": ["ground", "car"], "iou": 0.5, "dice": 0.6, "precision": 0.7, "recall": 0.8, "support": 1234}
    lines = shown(SUMMARY | {"per_group": {"road users": group}}).splitlines()
    (line,) = [line for line in lines if "road users (ground, car)" in line]
    assert re.split(r" {2,}", line.strip())[1:] == ["0.500", "0.600", "0.700", "0.800"]


def sliced_evaluation():
    rng = np.random.default_rng(0)
    target = np.kron(rng.integers(0, 2, (4, 4)), np.ones((4, 4), int))
    wrong = {
        f"<{ward}>-{i}": rng.random(target.shape) < rate for ward, rate in (("a", 0.05), ("b", 0.3)) for i in range(8)
    }
    pairs = [(name, target, np.where(where, 1 - target, target)) for name, where in wrong.items()]
    config = MetricsConfig(bootstrap=200, slice_by=("^(.+)-",))
    return segmeter.evaluate(pairs, classes=["none", "cell"], task="binary", metrics=config)


def test_slices_are_printed_with_the_worst_marked_and_stand_in_the_report(tmp_path: Path) -> None:
    found = sliced_evaluation()
    rows = slices(found.summary)
    assert slices({}) == []
    assert [(row["slice"], row["n"], row["worst"]) for row in rows] == [("<a>", 8, False), ("<b>", 8, True)]
    assert title(found.summary["slices"]["headline"]) == "IoU of cell"
    text = shown(found.summary)
    assert "<b> (worst)" in text
    assert "IoU of cell by slice" in text
    page = write_report(found.write(tmp_path / "run")).read_text()
    assert '<h2 id="slices">Slices</h2>' in page
    assert "&lt;b&gt; (worst)</a></b>" in page
