"""NPY, NPZ and NIfTI files: what is read, and what is refused by the header."""

import gzip
import io
import sys

import nibabel
import numpy as np
import pytest

from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError
from tests.data.volumes import VOLUME, save_nifti


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
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_values_of_every_version_come_as_stored_in_this_machines_byte_order(dtype, order, version, decoded):
    array = np.asarray(np.arange(6).reshape(2, 3), dtype=dtype, order=order)
    found = decoded(content(array, version))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.dtype.isnative


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


def npz(array):
    file = io.BytesIO()
    np.savez(file, labels=array)
    return file.getvalue()


ARRAY, ARCHIVE = content(np.zeros((2, 3))), npz(np.zeros((2, 3)))
SUM = npz(np.full((2, 3), 7.5)).replace(np.float64(7.5).tobytes(), bytes(8), 1)  # which is of other values


@pytest.mark.parametrize(
    ("changed", "suffix"),
    [(ARRAY[:-1], ".npy"), (ARRAY + b"\0", ".npy"), (ARCHIVE[:-30], ".npz"), (SUM, ".npz")],
    ids=["shorter", "longer", "a cut archive", "another sum"],
)
def test_a_file_of_another_length_or_sum_than_it_says_is_damaged(changed, suffix, decoded):
    with pytest.raises(DataError, match="truncated or damaged data"):
        decoded(changed, suffix=suffix)


def read_nifti(path):
    return read_values(path, max_pixels=1000).values


def test_values_are_scaled_where_the_header_asks_for_it(tmp_path):
    image = nibabel.Nifti1Image(VOLUME.T.astype(np.int16), np.eye(4))
    image.header.set_slope_inter(2.0, -1.0)
    image.header.set_data_dtype(np.int16)
    nibabel.save(image, tmp_path / "a.nii")
    wanted = np.asarray(nibabel.load(tmp_path / "a.nii").dataobj).T
    np.testing.assert_allclose(read_nifti(tmp_path / "a.nii"), wanted)


def test_more_axes_and_pairs_are_refused(tmp_path):
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 2, 2, 3), np.uint8), np.eye(4)), tmp_path / "t.nii")
    with pytest.raises(DataError, match="to have 2 or 3 axes, got"):
        read_nifti(tmp_path / "t.nii")
    one = save_nifti(tmp_path / "one.nii", VOLUME[None])  # a fourth axis of one element is none
    np.testing.assert_array_equal(read_nifti(one), VOLUME)
    nibabel.save(nibabel.Nifti1Pair(VOLUME.T, np.eye(4)), tmp_path / "p.hdr")
    (tmp_path / "p.hdr").rename(tmp_path / "p.nii")
    with pytest.raises(DataError, match="to hold header and pixels in one file, got a pair of files"):
        read_nifti(tmp_path / "p.nii")


def test_cut_files_and_wrong_sums_are_damaged(tmp_path):
    plain = save_nifti(tmp_path / "a.nii").read_bytes()
    packed = bytearray(gzip.compress(plain))
    packed[-6] ^= 1  # a byte of the checksum
    large = save_nifti(tmp_path / "large.nii", np.tile(VOLUME, (40, 1, 1))).read_bytes()
    cut = (plain[:-1], plain[:300], large[: len(large) // 2], gzip.compress(plain)[:-9], b"\x1f\x8b")
    for content in (*cut, bytes(packed), plain + b"x", large + b"x"):
        (tmp_path / "b.nii").write_bytes(content)
        with pytest.raises(DataError, match=r"truncated or damaged data|to be NIfTI"):
            read_nifti(tmp_path / "b.nii")


@pytest.mark.parametrize("behind", ["zeros", "the same again", "an empty member", "text"])
def test_what_follows_the_packed_volume_is_passed_over_only_where_it_is_empty(behind, tmp_path):
    packed = gzip.compress(save_nifti(tmp_path / "a.nii").read_bytes())
    more = {"zeros": bytes(9), "the same again": packed, "an empty member": gzip.compress(b""), "text": b"more"}[behind]
    (tmp_path / "b.nii").write_bytes(packed + more)
    if behind in ("zeros", "an empty member"):
        np.testing.assert_array_equal(read_nifti(tmp_path / "b.nii"), VOLUME)
    else:
        with pytest.raises(DataError, match="truncated or damaged data"):
            read_nifti(tmp_path / "b.nii")


def test_a_packed_volume_is_unpacked_by_libdeflate_in_one_go(tmp_path, monkeypatch):
    """zlib, which takes twice the time, is asked for the header alone."""
    plain = save_nifti(tmp_path / "a.nii").read_bytes()
    (tmp_path / "b.nii").write_bytes(gzip.compress(plain))
    sizes, read = list[int](), gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda file, size: sizes.append(size) or read(file, size))
    np.testing.assert_array_equal(read_nifti(tmp_path / "b.nii"), VOLUME)
    assert sum(sizes) < len(plain)


def test_nibabel_is_asked_for_with_the_command_that_installs_it(monkeypatch, tmp_path):
    path = save_nifti(tmp_path / "a.nii")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(DataError, match=r"pip install 'segmeter\[nifti\]'"):
        read_nifti(path)
