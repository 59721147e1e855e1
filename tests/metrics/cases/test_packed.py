"""The store gives back what was put in, and takes less room."""

import math
import tracemalloc
from dataclasses import fields

import numpy as np
import pytest

from segmeter.metrics.cases import packed as store_module
from segmeter.metrics.cases.packed import RowStore
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.cases.table import write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec, random_rows

SCORES = {"hd95/car": 1.5, "sum:tp/car": 2.0, "missing": 0.25}


@pytest.fixture(autouse=True, params=[0, store_module.PLAIN_BYTES], ids=["packed", "plain"])
def room(request, monkeypatch):
    monkeypatch.setattr(store_module, "PLAIN_BYTES", request.param)
    return request.param


def stored(rows):
    store = RowStore()
    for row in rows:
        store.append(row)
    return store


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_rows_come_back_as_they_were(task):
    rows = random_rows(
        5,
        3,
        task=task,
        loss=0.1,
        loss_terms=((0.3, 3.0),),
        changed_pixels={"fill": 2},
        scores=SCORES,
    )
    rows.append(case_row("big", np.full((3, 3), 2**62)))
    store = stored(rows)
    assert len(store) == 6
    for one, other in zip([*store[:3], store[3], store[4], store[-1]], rows, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
        assert one.counts.dtype == np.int64
        assert (one.case_id, one.loss, one.changed_pixels) == (other.case_id, other.loss, other.changed_pixels)
        assert one.loss_terms == other.loss_terms
        assert one.measured == other.measured
        assert one.extra == other.extra


@pytest.mark.parametrize("loss", [None, 0.0, -0.0, math.nan])
def test_what_few_rows_have_comes_back_too(loss):
    """Mutations seen to fail: a checksum of 0 taken for none, objects cut by a byte."""
    more = {"depth": 3, "spacing": (2.0, 0.5, 0.25), "unit": "mm", "objects": b"\x00some", "target_crc32": 0}
    rows = [
        case_row("a", np.eye(3), loss=loss),
        case_row("b", np.eye(3), loss=loss, objects_crc32=2**32 - 1, **more),
        case_row("c", np.ones((3, 2, 2)), loss=loss, changed_pixels={"x": 2**40}, loss_terms=((1.5, 2.0), (0.0, 0.0))),
    ]
    for one, other in zip(stored(rows), rows, strict=True):
        for name in (each.name for each in fields(one)):
            np.testing.assert_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("most", [0, 1 << 24])
def test_a_spacing_may_be_a_list(most, monkeypatch):
    monkeypatch.setattr(store_module, "PLAIN_BYTES", most)
    assert [row.spacing for row in stored([case_row("a", np.eye(3), spacing=[0.5, 2.0])])] == [(0.5, 2.0)]


def test_later_changes_of_the_counts_do_not_reach_the_store():
    counts = np.eye(3, dtype=np.int64)
    store = stored([case_row("a", counts)])
    counts[:] = 7
    np.testing.assert_array_equal(store[0].counts, np.eye(3))


def test_a_row_that_can_not_be_kept_leaves_the_others(room):
    """In what is packed its id was kept, and every later row came under the id of the one before it."""
    store = RowStore()
    store.append(case_row("a", np.eye(3)))
    if room == 0:
        with pytest.raises(Exception, match="argument"):
            store.append(case_row("bad", np.eye(3), loss="much"))
    store.append(case_row("b", 2 * np.eye(3)))
    assert [(row.case_id, row.counts[0, 0]) for row in store] == [("a", 1), ("b", 2)]


def test_files_and_summary_are_those_of_a_list(tmp_path):
    rows = random_rows(30)[::-1]
    config = MetricsConfig(bootstrap=50)
    assert summarise(stored(rows), class_spec(), config) == summarise(rows, class_spec(), config)
    for name, kept in (("list", rows), ("store", stored(rows))):
        (tmp_path / name).mkdir()
        write_cases(tmp_path / name, kept, class_spec())
    assert (tmp_path / "list" / "cases.parquet").read_bytes() == (tmp_path / "store" / "cases.parquet").read_bytes()
    assert len(read_cases(tmp_path / "store")) == 30


def test_a_case_of_19_classes_takes_less_than_2_kilobytes_beyond_the_first(monkeypatch):
    monkeypatch.setattr(store_module, "PLAIN_BYTES", 10_000)
    rng = np.random.default_rng(0)
    store = RowStore()
    tracemalloc.start()
    for i in range(500):
        counts = rng.integers(0, 3000, (19, 19)) * (rng.random((19, 19)) < 0.3) + np.diag(rng.integers(0, 10**6, 19))
        store.append(case_row(f"case-{i:06d}", counts, loss=rng.random()))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / 500 < 2000


def test_further_scores_count_too_in_what_is_kept_as_it_is(monkeypatch):
    monkeypatch.setattr(store_module, "PLAIN_BYTES", 100_000)
    store = RowStore()
    tracemalloc.start()
    for i in range(2000):
        store.append(
            case_row(f"case-{i:06d}", np.eye(2, dtype=np.int64), scores={f"m{j}/car": i / 7 for j in range(30)})
        )
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / 2000 < 1300
