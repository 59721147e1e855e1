"""NPY and NPZ files: what is read, and what is refused by the header."""

import gc
import io
import random
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from segmeter.data.files.opened import open_array
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError


def content(array, version=None, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version, **options)
    return file.getvalue()


@pytest.fixture
def decoded(tmp_path):
    """Write bytes and read them as a map."""

    def written(data, *, max_pixels=9, suffix=".npy", key=None):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(data)
        return read_values(path, max_pixels=max_pixels, key=key).values

    return written


@pytest.mark.parametrize("dtype", ["bool", "<u2", ">u2", ">i4", "float32", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_values_come_as_stored_in_this_machine_s_byte_order(dtype, order, decoded):
    array = np.asarray(np.arange(6).reshape(2, 3), dtype=dtype, order=order)
    found = decoded(content(array))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.dtype.isnative


def test_pickles_are_refused_without_loading_them(monkeypatch, decoded):
    monkeypatch.setattr("pickle.load", lambda *_: pytest.fail("loaded"))
    with pytest.raises(DataError, match="to be numbers, got Python objects"):
        decoded(content(np.array([[{}]], object), allow_pickle=True))


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((2, 3)), r"at most 5 pixels, got 2 x 3 .*data.max_pixels=6"),
        (np.zeros(5), r"\(height, width\) or \(depth, height, width\), got \(5,\)"),
        (np.zeros((0, 5)), "at least 1 along every axis, got 0 x 5"),
        (np.zeros((1, 2), complex), "to be numbers, got complex128"),
        (np.zeros((1, 2), [("x", "<f4")]), r"to be numbers, got \[\('x', '<f4'\)\]"),
    ],
)
def test_what_is_no_map_is_refused(array, found, decoded):
    with pytest.raises(DataError, match=found):
        decoded(content(array), max_pixels=5)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"])
def test_a_file_of_another_length_than_its_header_says_is_damaged(change, decoded):
    changed = change(content(np.zeros((2, 3))))
    with pytest.raises(DataError, match="truncated or damaged data"):
        decoded(changed)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_version_of_the_format_is_read(version, order, decoded):
    array = np.asarray(np.arange(6, dtype=np.uint16).reshape(2, 3), order=order)
    np.testing.assert_array_equal(decoded(content(array, version)), array)


def test_a_changed_head_gives_what_numpy_finds_or_is_refused(tmp_path):
    """1,000 heads with a byte changed; none ends in another kind of error."""
    draw, data, path = random.Random(0), content(np.arange(12, dtype="<u2").reshape(3, 4)), tmp_path / "a.npy"
    both = 0
    for _ in range(1000):
        changed = bytearray(data)
        changed[draw.randrange(0, 128)] = draw.choice(b" '(),0123456789:<>FTdu|{}\\\n")
        path.write_bytes(changed)
        try:
            found = read_values(path, max_pixels=99).values
        except DataError:
            continue
        np.testing.assert_array_equal(found.reshape(-1), np.load(path).reshape(-1))
        both += 1
    assert both > 40


def test_a_window_is_mapped_and_the_rest_is_not_read(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(60, dtype=">u2").reshape(6, 10))
    with open_array(tmp_path / "a.npy") as array:
        np.testing.assert_array_equal(array.read(2, 4, slice(3, 5)), [[23, 24], [33, 34]])
        assert "_whole" not in vars(array)


def test_threads_that_read_at_once_do_not_disturb_each_other(tmp_path):
    """CPython parses the literal in a head with a count that all threads share; mutation seen to fail: no lock."""
    values = np.arange(6, dtype=np.uint16).reshape(2, 3)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "b.npz", values)
    callback = lambda phase, info: None  # noqa: E731 - Python code in the middle of parsing lets another thread run

    def read(depth):
        if depth:
            return read(depth - 1)
        paths = [tmp_path / "a.npy", tmp_path / "b.npz"] * 40
        return all((read_values(path, max_pixels=9).values == values).all() for path in paths)

    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(callback)
    try:
        sys.setswitchinterval(1e-6)
        gc.set_threshold(5)
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(8)))
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(before)
        gc.callbacks.remove(callback)


def test_the_sums_of_an_archive_are_checked(decoded):
    data = npz(labels=np.zeros((4, 4), np.uint8))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.getinfo("labels.npy").header_offset
    changed = bytearray(data)
    changed[data.index(b"\x93NUMPY", start) + 128 + 3] = 7
    with pytest.raises(DataError, match="truncated or damaged data"):
        decoded(bytes(changed), suffix=".npz", max_pixels=99)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()
