"""Rows -> arrays, some rows at a time: what a case lacks is undefined there, wherever it stands."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.data import gathered
from segmeter.report.data.cells import CellLists
from segmeter.report.data.gathered import gather

from ..conftest import make_rows


@pytest.fixture(autouse=True)
def groups_of_two(monkeypatch):
    monkeypatch.setattr(gathered, "_MOST_ROWS", 2)


def gathered_of(rows, spec, **config):
    return gather(rows, spec, summarise(rows, spec, MetricsConfig(bootstrap=0, **config)))


def test_a_case_without_a_score_that_others_have_is_undefined(rng, spec):
    """The first two are gathered without it."""
    rows = make_rows(rng, spec, "abcd")
    column = MeasureColumn("hd95", "tree", 2.5)
    rows[3] = replace(rows[3], measured=(column,), extra={"missing": 4.0}, changed_pixels={"fill": 7}, loss=None)
    found = gathered_of(rows, spec)
    np.testing.assert_array_equal(found.measured["hd95", "tree"], [np.nan] * 3 + [2.5])
    np.testing.assert_array_equal(found.extra["missing"], [np.nan] * 3 + [4.0])
    assert found.changed["fill"].tolist() == [-1, -1, -1, 7]
    np.testing.assert_array_equal(found.scores["loss"], [*(row.loss for row in rows[:3]), np.nan])


def test_numbers_of_objects_are_taken_from_what_is_summed(rng, spec):
    sums = {
        "instances_fn": 2,
        "instances_iou": 1.5,
        "sizes_fp@small": 4,
        "events_split": 1,
        "picai_tp": 7,
        "aji_common": 9,
    }
    rows = make_rows(rng, spec, "abc")
    measured = [MeasureColumn(name, "tree", float(value), summed=True) for name, value in sums.items()]
    rows[2] = replace(rows[2], measured=(*measured, MeasureColumn("pq", "tree", 0.5)))
    found = gathered_of(rows, spec).numbers
    assert {metric: values.tolist() for (metric, _), values in found.items()} == {
        "fn": [-1, -1, 2],
        "object_fp@small": [-1, -1, 4],
        "objects_split": [-1, -1, 1],
        "picai_tp": [-1, -1, 7],
    }


def test_pixels_of_no_class_are_counted_and_belong_to_none(rng, spec):
    rows = make_rows(rng, spec, "abc")
    rows = [replace(row, counts=np.pad(row.counts, ((0, 0), (0, 1)), constant_values=3)) for row in rows]
    found = gathered_of(rows, spec.replace(count_invalid=True), groups={"green": ("ground", "tree")})
    assert found.invalid.tolist() == [9] * 3
    counts = rows[0].counts
    inside = counts[:2, :2].sum()
    either = counts[:2].sum() + counts[:, :2].sum() - inside
    assert found.groups["green"][0] == pytest.approx(inside / either)


def test_cells_are_given_the_counts_of_all_cases(rng, spec):
    rows = make_rows(rng, spec, "abcde")
    cells, wanted = CellLists(3), CellLists(3)
    gather(rows, spec, summarise(rows, spec, MetricsConfig(bootstrap=0)), cells=cells)
    wanted.add(np.stack([row.counts for row in rows]))
    for name, values in wanted.arrays().items():
        np.testing.assert_array_equal(cells.arrays()[name], values)


def test_the_headline_of_a_case_without_any_class_is_none(rng, spec):
    rows = make_rows(rng, spec, "ab")
    rows[1] = replace(rows[1], counts=np.zeros((3, 3), np.int64))
    found = gathered_of(rows, spec)
    assert found.headlines() == {"a": pytest.approx(found.scores["headline"][0]), "b": None}
