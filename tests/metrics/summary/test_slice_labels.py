"""The slice of each case: numbers cut in three, columns of a table, what the reference shows; others are refused."""

import json
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.measures import ContentConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.slice_labels import check_case_ids, cut, hash_labels, order_labels, slice_labels
from tests.metrics.build import case_row
from tests.metrics.summary.test_slices import ROWS, SPEC, WARDS, by_ward


def labels_of(rows, config):
    return slice_labels(build_scoreboard(rows, SPEC, config))


@pytest.fixture
def config(tmp_path):
    return by_ward(tmp_path)


def test_numbers_are_cut_in_three_and_few_kinds_are_left():
    wanted = {"below 9.667": 10, "9.667 to 19.33": 10, "above 19.33": 10, "none": 1}
    assert Counter(cut(np.array([*range(30), np.nan]))) == wanted
    assert cut(np.array([0.0, 1.0, 1.0])) == ["0", "1", "1"]
    assert len(set(cut(np.array([1.0, 2.0, 3.0, 4.0])))) == 3
    close = cut(20240101.0 + np.arange(30))
    assert sorted(close.count(label) for label in set(close)) == [10, 10, 10]
    assert (cut(np.full(3, np.nan)), cut(np.array([]))) == (["none"] * 3, [])


def test_a_column_of_numbers_a_parquet_file_and_the_reference_itself(config, tmp_path):
    assert len(set(labels_of(ROWS, config.replace(slice_by=("thirds(dose)",)))["thirds(dose)"])) == 3
    path = tmp_path / "cases.parquet"
    pq.write_table(pa.table({"case_id": list(WARDS), "ward": list(WARDS.values())}), path)
    assert labels_of(ROWS, config.replace(slices=str(path))) == labels_of(ROWS, config)
    named = f"{path}:ward"  # as metrics.cluster takes it, without metrics.slices
    assert labels_of(ROWS, MetricsConfig(slice_by=(named,)))[named] == list(WARDS.values())
    labels = labels_of(ROWS, MetricsConfig(slice_by=("share/car",)))["share/car"]
    shares = np.array([row.counts[2].sum() / max(row.counts.sum(), 1) for row in ROWS])
    below = [i for i, label in enumerate(labels) if label.startswith("below")]
    assert below
    assert shares[below].max() < np.quantile(shares, 0.35)


def test_few_kinds_of_close_numbers_stay_apart():
    """As dates are. Mutation seen to fail: six digits for all."""
    assert cut(20240101.0 + np.array([0, 1, 2, 0])) == ["20240101", "20240102", "20240103", "20240101"]
    close = [0.1, np.nextafter(0.1, 1)]
    assert [float(label) for label in cut(np.array(close))] == close
    assert cut(np.array([0.0, -0.0, 0.25, np.nan])) == ["0", "0", "0.25", "none"]


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_those_of_the_quantiles(seed):
    """By a loop over numbers with ties. Mutation seen to fail: the upper end of the middle part left out of it."""
    values = np.random.default_rng(seed).integers(0, 9 + seed, 50) / 7
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    parts = [[], [], []]
    for value, label in zip(values, cut(values), strict=True):
        part = 0 if label.startswith("below") else 2 if label.startswith("above") else 1
        parts[part].append(value)
    assert all(value < low for value in parts[0])
    assert all(low <= value <= high for value in parts[1])
    assert all(value > high for value in parts[2])


def test_labels_are_in_the_order_in_which_a_reader_looks_for_them():
    assert order_labels(cut(np.array([*range(30), np.nan]))) == ["below 9.667", "9.667 to 19.33", "above 19.33", "none"]
    ordered = ["-1", "9", "10", "2e3", "a", "b", "nan", "none"]
    assert order_labels([*ordered[::-1], "a"]) == ordered
    assert order_labels(["", "0"]) == ["0", ""]


def test_a_column_of_the_table_comes_before_what_the_reference_shows(tmp_path):
    """A table may have a column "share/car" of its own, or one whose name reads like thirds of another."""
    for name in ("share/car", "brightness", "thirds(dose)"):
        path = tmp_path / "facts.csv"
        path.write_text(f"case_id,dose,{name}\n" + "".join(f"{row.case_id},{i},told\n" for i, row in enumerate(ROWS)))
        config = MetricsConfig(slices=str(path), slice_by=(name,))
        assert set(labels_of(ROWS, config)[name]) == {"told"}
        check_case_ids(config, SPEC, list(WARDS))


def test_what_was_not_measured_is_no_slice():
    """When cases are announced, and when rows of an earlier run are read."""
    by_size, by_light = (
        MetricsConfig(slice_by=(name,), measures=(ContentConfig(),)) for name in ("object_size/car", "brightness")
    )
    check_case_ids(by_light, SPEC, [], images=True)
    with pytest.raises(InputError, match=r"got 'brightness'\. Add content to metrics\.measures\. For brightness, use"):
        check_case_ids(by_light, SPEC, [])
    with pytest.raises(InputError, match=r"measured, got 'object_size/car'\. Add content to metrics\.measures"):
        labels_of(ROWS, by_size)
    rows = [replace(case_row(row.case_id, row.counts, scores={"object_size/car": i % 2})) for i, row in enumerate(ROWS)]
    assert labels_of(rows, by_size)["object_size/car"] == ["0", "1"] * 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slice_by": ("thirds(ward)",)}, "to have numbers in the column ward.*got 'a'"),
        ({"slice_by": ("(.*)",), "slices": None}, r"to have 100 values or fewer, got 120 of \(\.\*\)\. Write thirds"),
        ({"slice_by": ("wrad",)}, "with the columns case_id and wrad.*Did you mean 'ward'"),
        ({"slices": None}, "to be columns of metrics.slices.*touches_border/CLASS, brightness, or .*got 'ward'"),
        ({"slice_by": ("share/raod",)}, "class or group after share/, got 'share/raod'. Did you mean 'road'"),
        ({"slices": "nowhere.csv"}, "to name a table, got nowhere.csv"),
    ],
)
def test_what_cannot_be_sliced_by_is_refused(config, changes, message):
    further = [f"more-{i}" for i in range(60)] if changes.get("slices", "") is None else []
    with pytest.raises(InputError, match=message):
        check_case_ids(config.replace(**changes), SPEC, [*WARDS, *further])


@pytest.mark.parametrize("cases", [[], ["b"], ["b", 'a"', "\u00e9"]])
def test_a_hash_of_labels_is_that_of_the_sorted_pairs_as_json(cases):
    """Runs of earlier versions have recorded these. Mutation seen to fail: no space after the comma."""
    labels = [f"label {case}" for case in cases]
    wanted = json.dumps(sorted(zip(cases, labels, strict=True))).encode()
    assert hash_labels(cases, labels) == sha256(wanted).hexdigest()


@pytest.mark.parametrize("values", [np.arange(1000.0), np.arange(1000.0) % 3])
def test_equal_labels_are_one_object(values):
    labels = cut(values)
    assert len(set(map(id, labels))) == len(set(labels)) == 3
