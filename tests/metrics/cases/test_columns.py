"""Columns of measures: their names in files, there and back, and what is no measure's column."""

import pytest

from segmeter.metrics.cases.columns import MeasureColumn, columns_of, decode_key, encode_key, split_scores


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
    measured, extra = split_scores({"hd/car": 1.5, "missing": 0.0, "sum:tp/car": 2.0})
    assert measured == (MeasureColumn("hd", "car", 1.5), MeasureColumn("tp", "car", 2.0, summed=True))
    assert extra == {"missing": 0.0}


def test_values_come_before_sums():
    found = list(columns_of("car", {"hd": 1}, {"tp": 2, "hd": 3}))
    assert [column.key for column in found] == [("hd", "car", False), ("tp", "car", True), ("hd", "car", True)]
    assert [column.value for column in found] == [1.0, 2.0, 3.0]
