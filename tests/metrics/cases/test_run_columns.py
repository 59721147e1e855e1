"""Typed columns of a run: those of its rows, whether they are in memory or in a file, where no row is made for them."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.metrics.cases import table
from segmeter.metrics.cases.run_columns import lay_out_run
from segmeter.metrics.cases.stored import open_cases, write_cases
from segmeter.metrics.cases.table import UNKNOWN, CaseTable, order_rows
from segmeter.metrics.pixels.confusion import confusion_matrix
from tests.metrics.build import case_row, class_spec, random_rows, stack_totals

SPEC = class_spec()
GROUPS = {"solid": ("road", "car")}


def varied_rows():
    """Images and volumes, with and without spacing, checksums and scores."""
    rows = []
    for i, row in enumerate(random_rows(10)):
        scores = {"hd95/car": [1.5, np.nan, np.inf][i % 3], "sum:tp/car": float(i), "note": 1.0}
        row = case_row(row.case_id, row.counts, scores=scores)
        edges = {"depth": 3, "spacing": (2.0, 0.5, 0.5 + i % 2), "unit": "mm"} if i % 3 else {}
        loss = {"loss": i / 3 if i != 4 else np.nan, "loss_terms": ((i / 2, 3.0), (0.5, 0.0))}
        rows.append(replace(row, **edges, **loss, target_crc32=i if i % 2 else None, objects_crc32=2**32 - 1))
    return rows


def assert_equal(one, other):
    assert (one.case_ids, one.spacings) == (other.case_ids, other.spacings)
    assert (one.loss_terms is None) == (other.loss_terms is None)
    for name in ("shapes", "hashes", "spacing", "counts", "loss", *([] if one.loss_terms is None else ["loss_terms"])):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.region_totals, other.region_totals)
    assert list(one.measured) == list(other.measured)
    np.testing.assert_array_equal(list(one.measured.values()), list(other.measured.values()))


@pytest.mark.parametrize("block", [3, 4096])
def test_rows_of_a_file_are_laid_out_as_those_in_memory_without_being_made(tmp_path, monkeypatch, block):
    """Mutations seen to fail: the spacing of null as "mm", checksums in the other order."""
    monkeypatch.setattr(table, "BLOCK", block)
    rows = varied_rows()
    write_cases(tmp_path, rows, SPEC)
    wanted = lay_out_run(rows, SPEC, GROUPS)
    monkeypatch.setattr(CaseTable, "_rows", None)  # nothing can be made
    assert_equal(lay_out_run(order_rows("test", open_cases([tmp_path]), SPEC), SPEC, GROUPS), wanted)


def test_the_columns_are_those_of_the_rows():
    rows = varied_rows()
    columns = lay_out_run(rows, SPEC, GROUPS)
    wanted = stack_totals(rows, SPEC, [[0], [1], [2], [1, 2]])
    np.testing.assert_array_equal(columns.region_totals, wanted)
    np.testing.assert_array_equal(columns.totals("solid").tp, columns.region_totals.tp[:, 3])
    assert columns.shapes[:2].tolist() == [[UNKNOWN, 4, 5], [3, 4, 5]]
    assert columns.hashes[:2].tolist() == [[UNKNOWN, 2**32 - 1], [1, 2**32 - 1]]
    assert [columns.spacings[i] for i in columns.spacing[:3]] == [
        (None, ""), ((2.0, 0.5, 1.5), "mm"), ((2.0, 0.5, 0.5), "mm"),
    ]  # fmt: skip
    assert list(columns.measured) == [("hd95", "car", False), ("tp", "car", True)]
    np.testing.assert_array_equal(columns.measured["hd95", "car", False][:3], [1.5, np.nan, np.inf])


def test_the_loss_of_all_cases_has_parts_where_all_have_as_many():
    rows = varied_rows()
    found = lay_out_run(rows, SPEC, GROUPS)
    np.testing.assert_array_equal(found.loss, [row.loss for row in rows])
    assert found.loss_terms[3].tolist() == [[1.5, 3.0], [0.5, 0.0]]
    np.testing.assert_array_equal(found.counts, sum(row.counts for row in rows))
    for one in (replace(rows[0], loss_terms=()), replace(rows[0], loss_terms=((1.0, 1.0),))):
        assert lay_out_run([one, *rows[1:]], SPEC, GROUPS).loss_terms is None
    assert np.isnan(lay_out_run([replace(rows[0], loss=None)], SPEC, GROUPS).loss).all()


def test_a_measure_that_a_case_lacks_is_undefined_there():
    rows = [case_row("a", np.eye(3)), case_row("b", np.eye(3), scores={"hd95/car": 2.0})]
    np.testing.assert_array_equal(lay_out_run(rows, SPEC, GROUPS).measured["hd95", "car", False], [np.nan, 2.0])


def test_classes_share_their_total():
    total = lay_out_run(random_rows(2), SPEC, GROUPS).region_totals.total
    assert (total.shape, total.strides[1]) == ((2, 4), 0)


def test_margins_that_differ_in_their_totals_in_one_block_keep_the_others(monkeypatch):
    """Mutation seen to fail: the first block's total taken for those of all classes of multilabel."""
    monkeypatch.setattr(table, "BLOCK", 2)
    spec = class_spec(3, "multilabel")
    rows = random_rows(6, task="multilabel")
    rows[3] = replace(rows[3], counts=rows[3].counts + np.array([0, 2**40, 1])[:, None, None])
    found, wanted = lay_out_run(rows, spec, {}), stack_totals(rows, spec)
    np.testing.assert_array_equal(found.region_totals, wanted)
    np.testing.assert_array_equal(found.totals(["car", "sky"]).target, wanted.target[:, [2, 0]])


MERGED = [[0], [1], [2], [0, 1], [0, 1, 2]]


def margins(rows, spec, members):
    found = stack_totals(rows, spec, members)
    return {name: getattr(found, name).tolist() for name in ("tp", "target", "predicted", "total")}


@pytest.mark.parametrize("group", [4, 4096], ids=["groups of 4 rows", "one group"])
def test_regions_are_those_of_maps_in_which_each_group_is_a_class(group, monkeypatch):
    """Mistaking one member for another is right; mutation seen to fail: the diagonal alone."""
    monkeypatch.setattr(table, "BLOCK", group)
    rng, spec = np.random.default_rng(0), class_spec(3)
    maps = [rng.integers(0, 3, (2, 6, 7)) for _ in range(9)]
    maps[3][0][:] = 255
    rows = [case_row(str(i), confusion_matrix(*pair, num_classes=3, ignore_index=255)) for i, pair in enumerate(maps)]
    found = margins(rows, spec, MERGED)
    for column, members in enumerate(MERGED):
        for i, (target, labels) in enumerate(maps):
            valid = target != 255
            one, other = np.isin(target, members) & valid, np.isin(labels, members) & valid
            expected = [(one & other).sum(), one.sum(), other.sum(), valid.sum()]
            assert [found[name][i][column] for name in ("tp", "target", "predicted", "total")] == expected
