"""Each format read back by its own library; a rewrite replaces, a failed write leaves nothing."""

import os

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.export import formats

CASES = [
    (formats.write_npy, ".npy", lambda path: np.load(path, allow_pickle=False)),
    (formats.write_npz, ".npz", lambda path: np.load(path, allow_pickle=False)["probs"]),
    (formats.write_tiff, ".tif", tifffile.imread),
    (formats.write_zarr, ".zarr", lambda path: zarr.open_array(str(path), mode="r")[...]),
]
IDS = [case[1] for case in CASES]


@pytest.mark.parametrize(("write", "suffix", "read"), CASES, ids=IDS)
@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 40, 300), (2, 257, 3)])
def test_float32_comes_back_bit_for_bit_also_when_written_again(tmp_path, rng, write, suffix, read, shape):
    path = tmp_path / f"case{suffix}"
    for _ in range(2):
        probs = rng.random(shape, dtype=np.float32)
        write(path, probs)
        found = read(path)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.reshape(shape), probs)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    if path.is_file():  # equal arrays give equal bytes
        write(tmp_path / f"again{suffix}", probs)
        assert (tmp_path / f"again{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_tiff_keeps_integers(tmp_path, rng, dtype):
    labels = rng.integers(0, np.iinfo(dtype).max, (300, 20)).astype(dtype)
    formats.write_tiff(tmp_path / "a.tif", labels)
    found = tifffile.imread(tmp_path / "a.tif")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, labels)


@pytest.mark.parametrize(("write", "suffix", "read"), CASES, ids=IDS)
def test_failed_write_leaves_the_old_file_or_none_and_no_temporary(tmp_path, rng, monkeypatch, write, suffix, read):
    path, old = tmp_path / f"case{suffix}", rng.random((2, 4, 4), dtype=np.float32)
    write(path, old)
    replace = os.replace

    def fail(*paths, **places):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write(path, old + 1)
    monkeypatch.setattr(os, "replace", replace)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    np.testing.assert_array_equal(read(path), old)
