import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import DataError, InputError
from segmeter.metrics.calibration_file import NAME, empty_sums, read_sums, write_sums

TWO = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)
THREE = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (9, 9, 9), (1, 1, 1)))


@pytest.fixture
def stored(tmp_path):
    sums = empty_sums(TWO)
    sums.update(np.array([[0, 1, 255]], np.uint8), np.array([[[0.1, 0.0, 0.5]]], np.float32))
    write_sums(tmp_path, sums)
    return sums


def test_sums_are_read_as_they_were_written_and_the_file_is_the_same_each_time(stored, tmp_path):
    found, before = read_sums(tmp_path, TWO), (tmp_path / NAME).read_bytes()
    assert found.sums == stored.sums
    for name, values in stored.counts.items():
        np.testing.assert_array_equal(found.counts[name], values)
        assert found.counts[name].dtype == np.int64
    assert found.counts["impossible"][0] == 1
    write_sums(tmp_path, found)
    assert (tmp_path / NAME).read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4 no archive", b"damaged"])
def test_what_is_missing_or_damaged_is_refused(stored, tmp_path, content):
    (tmp_path / NAME).unlink()
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=rf"to hold {NAME}, got .*{NAME} \("):
        read_sums(tmp_path, TWO)


def test_sums_of_other_classes_are_refused(stored, tmp_path):
    with pytest.raises(DataError, match=f"to hold {NAME}"):
        read_sums(tmp_path, THREE)
    with pytest.raises(InputError, match="calibration: expected `other` to have the settings"):
        empty_sums(THREE).add(stored)
