"""Rows -> columns: the numbers of cases.csv, and what is found, missed or absent."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.stored import case_table
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from segmeter.metrics.config.measures import InstancesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.data import gathered
from segmeter.report.data.cases import case_columns
from segmeter.report.data.gathered import gather

from ..conftest import make_rows


def columns_of(rows, spec, **config):
    summary = summarise(rows, spec, MetricsConfig(bootstrap=0, **config))
    return {column.key: column for column in case_columns(gather(rows, spec, summary), spec, summary)}


@pytest.fixture(autouse=True)
def groups_of_two(monkeypatch):
    monkeypatch.setattr(gathered, "_MOST_ROWS", 2)


def test_scores_are_those_of_the_table_of_cases(rng, spec):
    rows = make_rows(rng, spec, "abcd")
    found, table = columns_of(rows, spec), case_table(rows, spec)
    for key in ("mean_dice", "pixel_accuracy"):
        np.testing.assert_array_equal(found[key].values, table[key].to_numpy())
    np.testing.assert_array_equal(found["headline"].values, table["mean_iou"].to_numpy())
    for k, name in enumerate(spec.names):
        np.testing.assert_array_equal(found[f"iou/{k}"].values, table[f"iou_{name}"].to_numpy())
        np.testing.assert_array_equal(found[f"support/{k}"].values, table[f"support_{name}"].to_numpy())
        assert found[f"iou/{k}"].of_class == k


def test_what_became_of_a_class_is_said_in_words(spec):
    counts = np.array([[5, 0, 0], [2, 0, 0], [0, 0, 0]])  # tree is missed, there is no car
    found = columns_of([CaseRow(case_id="a", height=1, width=7, counts=counts)], spec)
    assert [found[f"status/{k}"].values for k in range(3)] == [["found"], ["missed"], ["absent"]]
    found = columns_of([CaseRow(case_id="a", height=1, width=7, counts=counts.T)], spec)
    assert found["status/1"].values == ["false alarm"]
    assert found["weakest"].values == ["tree"]


def test_a_volume_has_its_depth_in_its_size(rng, spec):
    (row,) = make_rows(rng, spec, "a")
    found = columns_of([replace(row, depth=40)], spec)
    assert found["size"].values == ["16 × 12 × 40"]  # noqa: RUF001
    assert found["pixels"].values.tolist() == [16 * 12 * 40]


def test_measures_further_scores_steps_and_clusters_have_columns(rng, spec):
    rows = [
        replace(
            row,
            measured=(MeasureColumn("hd95", "tree", 1.5 + i), MeasureColumn("hd95", "car", float("inf"))),
            extra={"missing": float(i)},
            changed_pixels={"fill": i},
        )
        for i, row in enumerate(make_rows(rng, spec, ["p1_a", "p2_b"]))
    ]
    found = columns_of(rows, spec, cluster="prefix:_")
    assert found["measure/hd95/tree"].values.tolist() == [1.5, 2.5]
    assert (found["measure/hd95/tree"].better, found["measure/hd95/tree"].of_class) == ("lower", 1)
    assert found["measure/hd95/mean"].values.tolist() == [float("inf")] * 2
    assert list(found).index("measure/hd95/mean") < list(found).index("iou/0")  # kept where the classes are too much
    assert found["extra/missing"].values.tolist() == [0, 1]
    assert found["changed/fill"].values.tolist() == [0, 1]
    assert list(found["cluster"].values) == ["p1", "p2"]


def test_numbers_of_objects_have_columns_where_they_add_up(rng, spec):
    config = MetricsConfig(bootstrap=0, measures=(InstancesConfig(),))
    measures = build_measures(config, spec)
    rows = []
    for row in make_rows(rng, spec, "abc"):
        target, lost = (np.kron(each, np.ones((2, 2), np.uint8)) for each in rng.integers(0, 3, (2, 6, 8), np.uint8))
        labels = np.where(lost == 0, 0, target)
        maps = CaseMaps(case_id=row.case_id, target=target, labels=labels, spacing=(1.0, 1.0), spec=spec)
        rows.append(replace(row, measured=measure_case(maps, measures)))
    summary = summarise(rows, spec, config)
    found = {column.key: column for column in case_columns(gather(rows, spec, summary), spec, summary)}
    for metric, better in (("fn", "lower"), ("tp", "higher")):
        column = found[f"measure/{metric}/car"]
        assert column.values.sum() == summary["measures"][metric]["car"]["dataset"] > 0
        assert (column.kind, column.better, column.of_class) == ("count", better, 2)
    summary["measures"]["fn"]["car"]["dataset"] += 1
    columns = {column.key for column in case_columns(gather(rows, spec, summary), spec, summary)}
    assert "measure/fn/car" not in columns
    assert "measure/fn/tree" in columns


@pytest.mark.parametrize(("losses", "shown"), [([None] * 3, None), ([np.nan] * 3, [np.nan] * 3)], ids=["none", "nan"])
def test_an_undefined_loss_is_shown_and_none_is_not(rng, spec, losses, shown):
    rows = [replace(row, loss=loss) for row, loss in zip(make_rows(rng, spec, "abc"), losses, strict=True)]
    column = columns_of(rows, spec).get("loss")
    np.testing.assert_equal(column and column.values.tolist(), shown)


def test_a_group_is_scored_as_one_region(rng, spec):
    rows = make_rows(rng, spec, "ab")
    found = columns_of(rows, spec, groups={"green": ("ground", "tree")})
    counts = rows[0].counts
    inside = counts[:2, :2].sum()
    either = counts[:2].sum() + counts[:, :2].sum() - inside
    assert found["group/0"].values[0] == pytest.approx(inside / either)


def test_a_binary_run_is_headed_by_its_object(rng):
    spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    found = columns_of(make_rows(rng, spec, "ab"), spec)
    np.testing.assert_array_equal(found["headline"].values, found["iou/1"].values)
    assert found["headline"].label == "IoU of cell"
    assert "weakest" not in found
