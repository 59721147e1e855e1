"""NPY and NPZ files: what is read, and what is refused by the header."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files.npy import decode_npy, decode_npz
from segmeter.errors import DataError

PATH = Path("a.npy")


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", ["bool", "<u2", ">u2", ">i4", "float32", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_values_come_as_stored_in_this_machine_s_byte_order(dtype, order):
    array = np.asarray(np.arange(6).reshape(2, 3), dtype=dtype, order=order)
    found = decode_npy(PATH, npy(array), max_pixels=6)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.dtype.isnative


def test_pickles_are_refused_without_loading_them(monkeypatch):
    monkeypatch.setattr("pickle.load", lambda *_: pytest.fail("loaded"))
    with pytest.raises(DataError, match="to be numbers, got Python objects"):
        decode_npy(PATH, npy(np.array([[{}]], object), allow_pickle=True), max_pixels=9)


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((2, 3)), r"at most 5 pixels, got 2 x 3. .*data.max_pixels=6"),
        (np.zeros(5), r"\(height, width\) or \(depth, height, width\), got \(5,\)"),
        (np.zeros((0, 5)), "at least 1 along every axis, got 0 x 5"),
        (np.zeros((1, 2), complex), "to be numbers, got complex128"),
    ],
)
def test_what_is_no_map_is_refused(array, found):
    with pytest.raises(DataError, match=found):
        decode_npy(PATH, npy(array), max_pixels=5)


@pytest.mark.parametrize(
    "change", [lambda content: content[:-1], lambda content: content + b"\0", lambda _: b"\x93NUM"]
)
def test_a_file_of_another_length_than_its_header_says_is_damaged(change):
    content = change(npy(np.zeros((2, 3))).getvalue())
    with pytest.raises(DataError, match="truncated or damaged data"):
        decode_npy(PATH, io.BytesIO(content), max_pixels=9)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    return file


def test_an_archive_gives_its_only_array_or_the_one_that_is_named():
    one, two = np.zeros((1, 2), np.uint8), np.ones((2, 2), np.uint8)
    assert decode_npz(PATH, npz(labels=one), key=None, max_pixels=9).shape == (1, 2)
    assert decode_npz(PATH, npz(labels=one, other=two), key="other", max_pixels=9).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(DataError, match=r"to hold one array, got .*labels, other. Name one of them: data.key=NAME"):
        decode_npz(PATH, npz(labels=one, other=two), key=None, max_pixels=9)
    with pytest.raises(DataError, match=r"to hold the array 'label', got 1: labels. Did you mean 'labels'"):
        decode_npz(PATH, npz(labels=one), key="label", max_pixels=9)


def test_the_sums_of_an_archive_are_checked():
    file = npz(labels=np.zeros((4, 4), np.uint8))
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo("labels.npy").header_offset
    content = bytearray(file.getvalue())
    content[content.index(b"\x93NUMPY", start) + 128 + 3] = 7
    with pytest.raises(DataError, match="truncated or damaged data"):
        decode_npz(PATH, io.BytesIO(bytes(content)), key=None, max_pixels=99)
