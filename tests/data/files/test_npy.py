"""NPY and NPZ files: what is read, what is refused by the header, and a head read as NumPy reads it."""

import ast
import io
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files.images import decode_image, read_file
from segmeter.data.files.npy import decode_npy, decode_npz, read_npy_header
from segmeter.data.large.windows import read_window
from segmeter.errors import DataError

PATH = Path("a.npy")
DTYPES = ["bool", "<u2", ">u2", "<i8", "float16", "<f4", ">f8", "complex64", "S3", "<U2", "<M8[ns]"]
SHAPES = [(), (0,), (7,), (2, 3), (2, 0, 3), (1, 2, 3, 4)]


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


def content(array, version=(1, 0)):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def numpys(data):
    """What NumPy's reader finds, and where the values begin."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file), file.tell()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_shape_order_dtype_and_place_are_those_that_numpy_finds(dtype, shape, version):
    for order in "CF":
        data = content(np.zeros(shape, dtype, order=order), version)
        file = io.BytesIO(data)
        found = read_npy_header(PATH, file)
        assert (found, file.tell()) == numpys(data)
        assert found[2].str == np.dtype(dtype).str


@pytest.mark.parametrize(
    "head",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3L, 4L)}",
        "{'shape': (3, 4,), 'fortran_order': False, 'descr': '|u1',}",
        "{'shape':(3,4),'fortran_order':False,'descr':'|u1'}  ",
        '{"descr": "|u1", "fortran_order": False, "shape": (3, 4)}',
    ],
)
def test_heads_of_other_writers_are_understood(head):
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()
    assert read_npy_header(PATH, io.BytesIO(data)) == ((3, 4), False, np.dtype("u1"))


@pytest.mark.parametrize(
    "head",
    [
        "",
        "{}",
        "[1]",
        "{'descr': '|u1', 'shape': (3, 4)}",
        "{'descr': '|u1', 'fortran_order': 1, 'shape': (3, 4)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, -4)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4.5)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 'x'}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4), 'shape': (4, 3)}",
        "{'descr': '|u1', 'fortran_order': (1,), 'shape': (3, 4)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4), 'more': (1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (__import__('os').getpid(), 4)}",
    ],
)
def test_a_head_that_says_less_or_something_else_is_damaged(head):
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(12)
    with pytest.raises(ValueError, match="head of the file"):
        read_npy_header(PATH, io.BytesIO(data))


def test_other_versions_and_heads_without_end_are_damaged():
    with pytest.raises(ValueError, match=r"version 9\.0"):
        read_npy_header(PATH, io.BytesIO(b"\x93NUMPY\x09\x00" + bytes(99)))
    with pytest.raises(ValueError, match="a header of 65535 bytes"):
        read_npy_header(PATH, io.BytesIO(b"\x93NUMPY\x01\x00\xff\xff"))
    with pytest.raises(ValueError, match="does not begin"):
        read_npy_header(PATH, io.BytesIO(b"\x93NUMP"))


def test_records_are_refused_by_name():
    with pytest.raises(DataError, match=r"a\.npy: expected `dtype` to be numbers, got \[\('x', '<f4'\)\]"):
        read_npy_header(PATH, io.BytesIO(content(np.zeros(3, [("x", "<f4")]))))


def test_a_changed_head_gives_what_numpy_finds_or_is_refused():
    """5,000 heads with a byte changed: where both understand one, they agree; none ends in another kind of error."""
    draw, data = random.Random(0), content(np.zeros((3, 4), "<u2"))
    both = 0
    for _ in range(5000):
        changed = bytearray(data)
        changed[draw.randrange(0, 128)] = draw.choice(b" '(),0123456789:<>FTdu|{}\\\n")
        try:
            found = read_npy_header(PATH, io.BytesIO(changed))
        except (ValueError, DataError, TypeError):
            continue
        assert found == numpys(bytes(changed))[0]
        both += 1
    assert both > 200


def test_no_reader_of_arrays_asks_python_s_parser(tmp_path, monkeypatch):
    """It fails at times where several threads use it, and a sound file was called damaged."""
    np.save(tmp_path / "a.npy", np.full((2, 3), 7, np.uint8))
    np.savez(tmp_path / "a.npz", labels=np.ones((2, 3), np.uint8))
    monkeypatch.setattr(ast, "literal_eval", lambda *_: pytest.fail("parsed"))
    with (tmp_path / "a.npz").open("rb") as file:
        assert decode_npz(tmp_path / "a.npz", file, key=None, max_pixels=9).tolist() == [[1] * 3] * 2
    stored = read_file(tmp_path / "a.npy")
    assert decode_image(stored, channels=1, orientation="ignore").tolist() == [[[7]] * 3] * 2
    window = read_window(tmp_path / "a.npy", stored.header, slice(1, 2), slice(0, 2))
    assert window.tolist() == [[7, 7]]
