"""Which slice each case is in: as the summary said, or not at all."""

import pytest

from segmeter.metrics.cases.table import as_table
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.cases import board_of, slice_columns

from .conftest import make_rows


@pytest.fixture
def sliced(tmp_path, rng, spec):
    """Rows, their table of facts, and the slices of their summary."""
    rows = make_rows(rng, spec, "abcdef")
    table = tmp_path / "facts.csv"
    lines = [f"{row.case_id},{'xy'[i % 2]},{i}" for i, row in enumerate(rows)]
    table.write_text("\n".join(["case_id,ward,dose", *lines]))
    options = {"slice_by": ("ward", "thirds(dose)", "share/wood"), "groups": {"wood": ("tree", "car")}}
    return rows, table, summarise(rows, spec, MetricsConfig(bootstrap=0, slices=str(table), **options))


def columns_of(sliced, spec):
    board, found = board_of(as_table(sliced[0]), spec, sliced[2]), sliced[2]["slices"]
    return slice_columns(board, found["hashes"], table=found["table"])


def test_each_case_has_the_slice_that_was_counted(sliced, spec):
    columns, lost = columns_of(sliced, spec)
    assert not lost
    assert [column.key for column in columns] == ["slice/ward", "slice/thirds(dose)", "slice/share/wood"]
    assert columns[0].values == list("xyxyxy")
    assert columns[1].order == ("below 1.667", "1.667 to 3.333", "above 3.333")
    by = sliced[2]["slices"]["by"]
    for column in columns:
        for label, entry in by[column.label].items():
            assert list(column.values).count(label) == entry["n"]


def test_a_table_that_lacks_cases_or_swapped_them_gives_no_slice(sliced, spec):
    """Where two cases were swapped, each slice still has as many."""
    table = sliced[1]
    table.write_text(table.read_text().replace("a,x,", "a,y,").replace("b,y,", "b,x,"))
    columns, lost = columns_of(sliced, spec)
    assert "by ward can't" in lost[0]
    assert [column.key for column in columns] == ["slice/thirds(dose)", "slice/share/wood"]
    table.write_text("case_id,ward,dose\na,x,1\n")
    columns, lost = columns_of(sliced, spec)
    assert [column.key for column in columns] == ["slice/share/wood"]
    assert "by ward, thirds(dose) can't" in lost[0]


def test_a_run_that_recorded_no_hash_gives_no_slice(sliced, spec):
    board = board_of(as_table(sliced[0]), spec, sliced[2])
    columns, (line,) = slice_columns(board, {"ward": None}, table=None)
    assert not columns
    assert line.endswith("by ward can't be listed: an older version wrote the run and did not record them.")
