"""What the terminal shows, and that names can't steer it."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report import figures
from segmeter.report.summary import print_summary, render_summary

from .conftest import HOSTILE, make_rows
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
    assert "0.3100 (0.1000)  [0.250, 0.400]  2 of 3" in text
    assert "convention segmeter; 3 cases; label 255 ignored" in text
    assert "<td" in render_summary(SUMMARY)


def test_a_file_gets_plain_text(rng, spec):
    text = shown(summarise(make_rows(rng, spec, "abc"), spec, MetricsConfig(bootstrap=50)))
    assert "\x1b" not in text
    assert text.isascii()
    assert all(len(line) <= 80 for line in text.splitlines())


def test_names_are_shown_as_they_are(rng):
    names = (*HOSTILE, "esc\x1b[31m", "new\nline", ":smile:")
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * 7)
    text = shown(summarise(make_rows(rng, spec, "abc"), spec, MetricsConfig(bootstrap=0)))
    for name in (*HOSTILE, ":smile:"):
        assert name in text
    assert "\x1b" not in text
    assert "new\N{REPLACEMENT CHARACTER}line" in text


def test_multilabel_shares_are_of_each_plane():
    summary = {
        **SUMMARY,
        "classes": ["a", "b"],
        "confusion_matrix": None,
        "confusion_matrices": [[[50, 25], [5, 20]], [[99, 0], [1, 0]]],
        "per_class": {"a": {"support": 25}, "b": {"support": 1}},
    }
    assert [row["share"] for row in figures.classes(summary)] == [0.25, 0.01]


def test_notes_say_what_was_left_out():
    summary = {
        **SUMMARY,
        "mean_classes": ["car"],
        "dataset": {**SUMMARY["dataset"], "n_classes_undefined": 1},
        "bootstrap": {"resamples": 100, "interval": "bca", "cluster": "(.)", "warning": "Only 3 units"},
    }
    assert figures.notes(summary)[2:] == [
        "label 255 ignored",
        "1 of 2 classes undefined, left out of the means",
        "means without ground",
        "95 % intervals: bca bootstrap, 100 draws of clusters",
        "Only 3 units",
    ]


@pytest.mark.parametrize(("value", "text"), [(None, "n/a"), (float("nan"), "n/a"), (0.0, "0.0000"), (1, "1.0000")])
def test_undefined_is_never_zero(value, text):
    assert figures.number(value) == text


CONVENTIONS = [
    {
        "name": "segmeter",
        "tool": "segmeter",
        "hash": "12ab",
        "figures": {"mean_iou": 0.5, "nsd@2": 0.75, "hd95": "inf"},
        "differs": [],
        "refused": [],
    },
    {
        "name": "monai",
        "tool": "MONAI",
        "hash": "34cd",
        "figures": {"mean_iou": None, "hd95": 4.0},
        "differs": ["mean per case"],
        "left_out": {"hd95": 3},
        "refused": ["0.0 for all missed"],
    },
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


def test_measures_and_probabilities_have_tables(tmp_path, rng):
    summary = measured_run(tmp_path, rng)
    text = shown(summary)
    rows = {cells[0]: cells[1:] for cells in cells_of(text)}
    assert (rows["mean HD95 (pixels)"][0], rows["mean HD95 (pixels)"][-2:]) == ("inf", ["4", "1"])
    assert all(len(rows[cells]) == 1 and rows[cells][0].isdigit() for cells in rows if cells.startswith("tp of"))
    summary["measures"]["sq"]["mean"]["dataset"] = None
    assert cells_of(shown(summary))
    assert next(cells for cells in cells_of(shown(summary)) if cells[0] == "mean SQ")[1] == "n/a"
    assert "ECE of the winning class" in text
    assert "average precision" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


LONG = "a class with a name as long as forty one letters"


def measured(names, *, measures):
    entry = {"mean": 0.123, "ci95": [0.1, 0.2], "median": 0.125, "n_used": 4, "n_penalised": 0, "n_undefined": 0}
    return SUMMARY | {
        "classes": list(names),
        "per_class": dict.fromkeys(names, SUMMARY["per_class"]["ground"]),
        "measures": {f"measure_{i}": dict.fromkeys((*names, "mean"), entry) for i in range(measures)},
    }


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of some columns, without colours."""

    def printed(summary, columns):
        file = io.StringIO()
        file.isatty = lambda: True
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        print_summary(summary, file=file)
        return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())

    return printed


@pytest.mark.parametrize("columns", [None, 160])
def test_names_are_whole_where_there_is_room(terminal, columns):
    summary = measured([LONG], measures=2)
    text = shown(summary) if columns is None else terminal(summary, columns)
    assert sum(LONG in line for line in text.splitlines()) == 3
    assert "measure_0" in text


def test_a_narrow_terminal_wraps_names_and_cuts_no_number(terminal):
    text = terminal(measured([LONG], measures=2), 70)
    assert LONG not in text
    assert "…" not in text
    assert text.count("0.123") == 2
    assert "0.6000" in text


def test_only_ten_rows_of_measures_are_printed_and_the_others_counted():
    few, many = (shown(measured(["ground", "car"], measures=count)) for count in (3, 20))
    assert "more in metrics.json" not in few
    assert "50 more in metrics.json and in the report." in many
    assert "mean measure_3" in many
    assert "measure_3 of car" not in many


def test_with_many_classes_the_ten_worst_are_printed():
    summary = measured([f"c{i}" for i in range(30)], measures=0)
    summary["per_class"] = {
        name: {**SUMMARY["per_class"]["ground"], "iou": i / 30} for i, name in enumerate(summary["classes"])
    }
    text = shown(summary)
    assert "20 more with higher IoU in metrics.json and in the report." in text
    assert [f"c{i} " in text for i in (0, 9, 10, 29)] == [True, True, False, False]


def test_groups_stand_under_the_classes():
    group = {"classes": ["ground", "car"], "iou": 0.5, "dice": 0.6, "precision": 0.7, "recall": 0.8, "support": 1234}
    lines = shown(SUMMARY | {"per_group": {"road users": group}}).splitlines()
    (line,) = [line for line in lines if "road users (ground, car)" in line]
    assert re.split(r" {2,}", line.strip())[1:] == ["0.500", "0.600", "0.700", "0.800"]


def test_the_headline_of_a_binary_task_is_its_objects_iou(rng):
    spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    collapsed = [
        CaseRow(case_id=name, height=40, width=25, counts=np.array([[950, 0], [50 - found, found]]))
        for name, found in (("a", 1), ("b", 0))
    ]
    summary = summarise(collapsed, spec, MetricsConfig(bootstrap=0))
    first, dice, second = figures.aggregates(summary)[:3]
    assert (dice["name"], round(dice["dataset"], 4)) == ("Dice of cell", 0.0198)
    assert (first["name"], first["dataset"], first["mean"]) == ("IoU of cell", 0.01, 0.01)
    assert (second["name"], round(second["dataset"], 3)) == ("mean IoU", 0.48)
    assert "IoU of cell" in shown(summary)
    collapsed[0] = replace(collapsed[0], counts=np.array([[950, 0], [50, 0]]))
    notes = figures.notes(summarise(collapsed, spec, MetricsConfig(bootstrap=0)))
    assert "IoU below 0.01, though the references hold them: cell" in notes
