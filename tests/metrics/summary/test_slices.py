"""Scores by slice are those of the slice's cases alone, and differ from the rest as the two parts do."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.measures import ContentConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.compare import compare_runs
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import BINARY, case_row, class_spec, maps_of, random_rows
from tests.metrics.summary.test_compare import spoil

SPEC = class_spec()
ROWS = random_rows(60)
WARDS = {row.case_id: "abc"[i % 3] for i, row in enumerate(ROWS)}


def by_ward(folder):
    """Three wards in turn, from a table that has a dose for each case too."""
    path, rows = folder / "cases.csv", [f"{name},{ward},{i}" for i, (name, ward) in enumerate(WARDS.items())]
    path.write_text("\n".join(["case_id,ward,dose", *rows]))
    return MetricsConfig(bootstrap=400, slices=str(path), slice_by=("ward",))


@pytest.fixture
def config(tmp_path):
    return by_ward(tmp_path)


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
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 40, (5000, 2, 2))
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
    check_case_ids(config, SPEC, [])
    with pytest.raises(InputError, match=r"'touches_border/car'\. Add content to metrics\.measures"):
        check_case_ids(config.replace(measures=()), SPEC, [])


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
