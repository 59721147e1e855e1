"""Rows of tables and the texts of the terminal, from small summaries written by hand; names can't steer them."""

import io
import re

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report import figures
from segmeter.report.html import write_report
from segmeter.report.summary import print_summary, render_summary

from .conftest import make_rows, write_run
from .test_html import measured_run

BINARY = {
    "task": "binary",
    "convention": "segmeter",
    "n_cases": 3,
    "classes": ["ground", "cell"],
    "ignore_index": 255,
    "dataset": {"mean_iou": 0.7, "pixel_accuracy": 0.9, "n_classes_undefined": 1},
    "dataset_ci95": {"mean_iou": [0.6, 0.8]},
    "per_case": {"mean_iou": {"mean": 0.65, "ci95": [0.5, 0.8], "std": 0.1, "n_used": 2, "n_undefined": 1}},
    "per_class": {
        "ground": {"iou": 0.9, "dice": 0.95, "precision": 0.9, "recall": 1.0, "support": 75},
        "cell": {"iou": 0.005, "dice": 0.01, "precision": None, "recall": 0.4, "support": 25},
    },
}
OF_CASES = {"iou": {"mean": 0.007, "ci95": [0.001, 0.02], "std": 0.01, "n_used": 2, "n_undefined": 1}}
BINARY["per_class"]["cell"] |= {"ci95": {"iou": [0, 0.1]}, "per_case": OF_CASES}


def test_the_object_s_iou_leads_a_binary_table():
    rows = figures.aggregates(BINARY)
    assert [row["name"] for row in rows] == ["IoU of cell", "Dice of cell", "mean IoU", "pixel accuracy"]
    assert (rows[0]["dataset"], rows[0]["dataset_ci95"]) == (0.005, [0, 0.1])
    assert (rows[0]["mean"], rows[0]["mean_ci95"], rows[0]["n_used"]) == (0.007, [0.001, 0.02], 2)
    assert (rows[2]["dataset"], rows[2]["mean"], rows[2]["n_undefined"]) == (0.7, 0.65, 1)
    assert rows[3]["mean"] is None
    several = figures.aggregates(BINARY | {"task": "multiclass"})
    assert [row["name"] for row in several] == ["mean IoU", "pixel accuracy"]


def test_shares_are_of_all_pixels_and_for_multilabel_of_the_plane():
    assert [row["share"] for row in figures.classes(BINARY)] == [0.75, 0.25]
    planes = {"confusion_matrices": [[[20, 5], [70, 5]], [[50, 25], [20, 5]]]}
    assert [row["share"] for row in figures.classes(BINARY | planes)] == [0.75, 0.25]
    empty = BINARY | {"per_class": {"ground": {"support": 0}, "cell": {"support": None}}}
    assert [row["share"] for row in figures.classes(empty)] == [None, None]


def test_notes_name_what_the_scores_leave_out_and_what_was_not_learned():
    resampling = {"resamples": 100, "interval": "bca", "cluster": "(.)", "warning": "Only 3 units"}
    measured = {"units": {"hd95": "mm"}, "measures": {"hd95": {}, "ap": {}}}
    lines = figures.notes(BINARY | {"mean_classes": ["cell"], "bootstrap": resampling} | measured)
    assert lines == [
        "convention segmeter",
        "3 cases",
        "label 255 ignored",
        "1 of 2 classes undefined, left out of the means",
        "means without ground",
        "distances and tolerances in mm",
        "AP is tp / (tp + fp + fn) over objects, not COCO's",
        "IoU below 0.01, though the references hold them: cell",
        "95 % intervals: bca bootstrap, 100 draws of clusters",
        "Only 3 units",
    ]


def test_measures_have_one_row_per_region_with_their_unit():
    regions = {"cell": {"mean": 2.5, "n_used": 3}, "glia": {"mean": 3.5}, "mean": {"dataset": 1.0}}
    one = {"cell": {"mean": 0.5, "n_used": 3}, "mean": {"mean": 0.5}}
    summary = {"measures": {"hd95": regions, "pq": one}, "units": {"hd95": "mm"}}
    rows = [row for row in figures.measures(summary) if row["region"] != "glia"]
    assert [(row["label"], row["region"], row["mean"], row["dataset"]) for row in rows] == [
        ("HD95 (mm)", "cell", 2.5, ""),
        ("HD95 (mm)", "mean", "", 1.0),
        ("PQ", "cell", 0.5, ""),  # the mean over one class repeats it
    ]


def test_calibration_says_how_far_average_precision_may_be_off():
    found = dict.fromkeys(("ece", "mce", "classwise_ece", "brier", "nll", "mean_average_precision"))
    found |= {"ece": 0.25, "per_class": {"a": {"average_precision_error": 0.002}, "b": {}}}
    rows, classes = figures.calibration({"calibration": found})
    assert [(row["name"], row["value"]) for row in rows] == [
        ("ECE of the winning class", 0.25),
        ("average precision, off by up to", 0.002),
    ]
    assert [row["name"] for row in classes] == ["a", "b"]
    assert figures.calibration({}) == ([], [])


def shown(summary):
    file = io.StringIO()
    print_summary(summary, file=file)
    return file.getvalue()


def cells_of(text):
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


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
    (row,) = (row for row in cells_of(shown(SUMMARY | {"per_group": {"road users": group}})) if "road" in row[0])
    assert row == ["road users (ground, car)", "0.500", "0.600", "0.700", "0.800"]


def test_slices_are_printed_with_the_worst_marked_and_stand_in_the_report(tmp_path, rng, spec):
    cases = make_rows(rng, spec, [f"<{ward}>-{i}" for ward in "ab" for i in range(8)])
    summary = write_run(tmp_path, cases, spec, MetricsConfig(bootstrap=200, slice_by=("^(.+)-",)))
    rows = figures.slices(summary)
    assert figures.slices({}) == []
    assert [(row["slice"], row["n"], row["worst"]) for row in rows] == [("<a>", 8, False), ("<b>", 8, True)]
    text, page = shown(summary), write_report(tmp_path).read_text()
    assert "<b> (worst)" in text
    assert "mean IoU by slice" in text
    assert '<h2 id="slices">Slices</h2>' in page
    assert "&lt;b&gt; (worst)</a></b>" in page
