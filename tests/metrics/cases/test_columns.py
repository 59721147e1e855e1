"""Columns of measures: their names in files, there and back, and what is no measure's column."""

import numpy as np
import pytest

from segmeter.metrics.cases.table import MeasureColumn, as_table, decode_key, encode_key
from tests.metrics.build import case_row


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("hd95", "car", False), "hd95/car"),
        (("sizes_tp@small", "car", True), "sum:sizes_tp@small/car"),
        (("nsd@0.5", "road/left", False), "nsd@0.5/road/left"),
        (("area", "", True), "sum:area/"),
        (("pq", "sum:x/y", False), "pq/sum:x/y"),
    ],
)
def test_a_name_reads_back_as_its_column(key, name):
    assert encode_key(key) == name
    assert decode_key(name) == key


def test_scores_of_a_file_are_parted_into_columns_and_the_rest():
    row = case_row("a", np.eye(2), scores={"hd/car": 1.5, "missing": 0.0, "sum:tp/car": 2.0})
    (found,) = as_table([row])
    assert found.measured == (MeasureColumn("hd", "car", 1.5), MeasureColumn("tp", "car", 2.0, summed=True))
    assert found.extra == {"missing": 0.0}
