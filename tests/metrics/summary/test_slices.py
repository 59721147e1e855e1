"""Slices of the cases: the slice of each case, and the scores of each slice, which are those of its cases alone."""

import json
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.measures import ContentConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.compare import compare_runs
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.slice_labels import check_case_ids, cut, hash_labels, order_labels, slice_labels
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import BINARY, case_row, class_spec, maps_of, random_rows
from tests.metrics.summary.test_compare import spoil

SPEC = class_spec()
ROWS = random_rows(60)
WARDS = {row.case_id: "abc"[i % 3] for i, row in enumerate(ROWS)}


@pytest.fixture
def config(tmp_path):
    """Three wards in turn, from a table that has a dose for each case too."""
    path, rows = tmp_path / "cases.csv", [f"{name},{ward},{i}" for i, (name, ward) in enumerate(WARDS.items())]
    path.write_text("\n".join(["case_id,ward,dose", *rows]))
    return MetricsConfig(bootstrap=400, slices=str(path), slice_by=("ward",))


def part(rows, ward, *, inside=True):
    return [row for row in rows if (WARDS[row.case_id] == ward) == inside]


def test_each_slice_scores_as_its_cases_alone_and_differs_as_the_rest_does(config):
    found = summarise(ROWS, SPEC, config)["slices"]
    assert list(found["by"]["ward"]) == ["a", "b", "c"]
    for ward, entry in found["by"]["ward"].items():
        own, rest = (summarise(part(ROWS, ward, inside=side), SPEC)["dataset"] for side in (True, False))
        assert entry["n"] == 20
        for name in ("mean_iou", "mean_dice", "pixel_accuracy"):
            score = entry["scores"][name]
            assert score["value"] == pytest.approx(own[name], rel=1e-12)
            assert score["difference"] == pytest.approx(own[name] - rest[name], rel=1e-9, abs=1e-12)
            low, high = score["ci95"]
            assert low < score["value"] < high


def test_a_slice_that_is_worse_is_named_and_differs_beyond_chance(config):
    rows = [spoil([row], 0.7)[0] if WARDS[row.case_id] == "b" else row for row in ROWS]
    found = summarise(rows, SPEC, config)["slices"]
    assert found["worst"] == {"by": "ward", "slice": "b"}
    score = found["by"]["ward"]["b"]["scores"]["mean_iou"]
    assert score["difference_ci95"][1] < 0
    assert score["p_holm"] < 0.05
    assert score["p_holm"] >= score["p"]
    assert sum(len(each["scores"]) for each in found["by"]["ward"].values()) == 9


@pytest.mark.parametrize("few", [slice(0, 4), slice(4, 60)], ids=["slice", "rest"])
def test_fewer_than_5_cases_on_either_side_have_no_interval_of_the_difference(few):
    inside = {row.case_id for row in ROWS[few]}
    rows = [replace(row, case_id=f"{row.case_id}.{int(row.case_id in inside)}") for row in ROWS]
    found = summarise(rows, SPEC, MetricsConfig(bootstrap=200, slice_by=(r"\.(\d)",)))["slices"]
    score = found["by"][r"\.(\d)"]["1"]["scores"]["mean_iou"]
    assert score["difference"] is not None
    assert (score["difference_ci95"], score["p"], score["p_holm"]) == ([None, None], None, None)


def test_intervals_are_those_of_the_slice_alone():
    # one slice of all cases: the interval of the summary itself
    config = MetricsConfig(bootstrap=400, slice_by=("(case)",))
    summary = summarise(ROWS, SPEC, config)
    entry = summary["slices"]["by"]["(case)"]["case"]
    assert entry["scores"]["mean_iou"]["ci95"] == pytest.approx(summary["dataset_ci95"]["mean_iou"], rel=1e-12)
    assert entry["scores"]["mean_iou"]["difference"] is None


def test_a_hundred_thousand_cases_are_resampled_in_groups(monkeypatch):
    # the interval of grouped units is that of single ones, but for the 2 % that 1000 groups leave
    counts = np.random.default_rng(0).integers(1, 40, (2500, 2, 2))
    rows = [case_row(f"{i:05d}-{i % 4}", table) for i, table in enumerate(counts)]
    config = MetricsConfig(bootstrap=2000, slice_by=(r"-(\d)",))
    found = summarise(rows, class_spec(2), config)["slices"]["by"][r"-(\d)"]
    monkeypatch.setattr("segmeter.metrics.summary.slices.MOST_UNITS", 10_000)
    exact = summarise(rows, class_spec(2), config)["slices"]["by"][r"-(\d)"]
    for label, entry in found.items():
        (low, high), (a, b) = (one["scores"]["mean_iou"]["ci95"] for one in (entry, exact[label]))
        assert (high - low) / (b - a) == pytest.approx(1, abs=0.12)
        assert entry["scores"]["mean_iou"]["value"] == exact[label]["scores"]["mean_iou"]["value"]


def test_clusters_that_lie_in_two_slices_are_one_unit(config):
    # every case twice, once in each of two slices: the difference is exactly 0, with no doubt about it
    rows = [replace(row, case_id=f"{row.case_id}.{side}") for row in ROWS for side in (0, 1)]
    config = MetricsConfig(bootstrap=200, slice_by=(r"\.(\d)",), cluster=r"(.*)\.")
    slices = summarise(rows, SPEC, config)["slices"]["by"][r"\.(\d)"]
    score = slices["0"]["scores"]["mean_iou"]
    assert (score["difference"], score["difference_ci95"], score["p"]) == (0, [0, 0], 1)


def test_what_the_measure_content_saw_is_a_slice_and_no_score(config):
    rows = [replace(case_row(r.case_id, r.counts, scores={"touches_border/car": i % 2})) for i, r in enumerate(ROWS)]
    config = MetricsConfig(bootstrap=200, slice_by=("touches_border/car",), measures=(ContentConfig(),))
    found = summarise(rows, SPEC, config)["slices"]["by"]["touches_border/car"]
    assert [each["n"] for each in found.values()] == [30, 30]
    assert "touches_border/mean" not in found["0"]["scores"]


def test_two_runs_are_compared_slice_by_slice(config):
    worse = [spoil([row], 0.4)[0] if WARDS[row.case_id] == "b" else row for row in ROWS]
    (pair,) = compare_runs({"one": ROWS, "two": worse}, SPEC, config)["slices"]
    slices = pair["by"]["ward"]
    assert (pair["base"], pair["new"]) == ("one", "two")
    same = slices["a"]["scores"]["mean_iou"]
    assert (same["difference"], same["change"]) == (0, "equal")
    own, other = (summarise(part(rows, "b"), SPEC)["dataset"]["mean_iou"] for rows in (ROWS, worse))
    score = slices["b"]["scores"]["mean_iou"]
    assert score["difference"] == pytest.approx(other - own, rel=1e-9)
    assert score["ci95"][1] < 0
    assert (score["p_holm"] < 0.05, score["change"]) == (True, "worse")


def test_a_case_that_the_table_lacks_is_named(config):
    rows = [*ROWS, replace(ROWS[0], case_id="new-1")]
    with pytest.raises(InputError, match=r"`slices` to have a value of ward for every case, got 1 without: 'new-1'"):
        summarise(rows, SPEC, config)
    with pytest.raises(InputError, match="'new-1'"):
        check_case_ids(config, SPEC, ["new-1"])


def test_brightness_of_the_image_is_a_slice_where_images_are_at_hand():
    config = MetricsConfig(bootstrap=0, measures=(ContentConfig(),), slice_by=("brightness",))
    measures, target = build_measures(config, BINARY), np.eye(6, dtype=np.uint8)
    images = [np.full((6, 6, 3), 25 * i, np.uint8) for i in range(9)]
    cases = [maps_of(target, target, case_id=str(i), image=image) for i, image in enumerate(images)]
    found = summarise([make_row(maps, measures) for maps in cases], BINARY, config)
    assert found["measures"]["brightness"]["image"]["mean"] == pytest.approx(100 / 255)
    assert [each["n"] for each in found["slices"]["by"]["brightness"].values()] == [3, 3, 3]
    assert "brightness/image" not in found["slices"]["by"]["brightness"]["below 0.2614"]["scores"]


def labels_of(rows, config):
    return slice_labels(build_scoreboard(rows, SPEC, config))


def test_close_numbers_are_cut_in_three_and_nothing_is_no_number():
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
    for refuse in (lambda: check_case_ids(by_size.replace(measures=()), SPEC, []), lambda: labels_of(ROWS, by_size)):
        with pytest.raises(InputError, match=r"measured, got 'object_size/car'\. Add content to metrics\.measures"):
            refuse()
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
