"""Files written by bands, read back by the libraries that made the formats known."""

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.errors import InputError
from segmeter.export.banded import open_bands
from segmeter.export.labels import palette_of

RNG = np.random.default_rng(0)
HEIGHTS = [[1], [256], [255, 1, 1], [100, 300, 7], [600], [256, 256]]


def write(path, array, heights):
    with open_bands(path, shape=array.shape, dtype=array.dtype) as bands:
        top = 0
        for height in heights:
            bands.write(array[top : top + height])
            top += height


@pytest.mark.parametrize("heights", HEIGHTS, ids=str)
@pytest.mark.parametrize("width", [1, 255, 256, 300])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_tiff_holds_every_row_whatever_the_bands(tmp_path, heights, width, dtype):
    array = RNG.integers(0, 250, (sum(heights), width)).astype(dtype)
    write(tmp_path / "labels" / "a.tif", array, heights)
    path = tmp_path / "labels" / "a.tif"
    with tifffile.TiffFile(path) as tiff:
        assert tiff.is_bigtiff
        assert (tiff.pages.first.tilelength, tiff.pages.first.tilewidth) == (256, 256)
        assert tiff.pages.first.compression == 8
    found = tifffile.imread(path)
    assert found.dtype == dtype
    assert np.array_equal(found, array)
    whole = tmp_path / "whole.tif"
    write(whole, array, [len(array)])
    assert whole.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("heights", HEIGHTS, ids=str)
def test_a_zarr_holds_every_row_whatever_the_bands(tmp_path, heights):
    array = RNG.integers(0, 250, (sum(heights), 300)).astype(np.uint8)
    for _ in range(2):  # the second one takes the place of the first
        write(tmp_path / "a.zarr", array, heights)
    found = zarr.open_array(str(tmp_path / "a.zarr"), mode="r")
    assert found.metadata.zarr_format == 3
    assert found.metadata.dimension_names == ("y", "x")
    assert np.array_equal(found[...], array)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.parametrize("suffix", [".tif", ".zarr"])
@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((5, 9), np.uint8),
        np.zeros((11, 9), np.uint8),
        np.zeros((10, 8), np.uint8),
        np.zeros((10, 9), np.uint16),
    ],
    ids=["too few", "too many", "too narrow", "too wide a type"],
)
def test_other_rows_than_announced_are_refused_and_leave_nothing(tmp_path, suffix, rows):
    with pytest.raises(InputError, match="open_bands"):
        with open_bands(tmp_path / f"a{suffix}", shape=(10, 9), dtype=np.dtype(np.uint8)) as bands:
            bands.write(rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", ["deflate", "zstd"])
def test_labels_have_the_colours_of_their_classes(tmp_path, compression):
    labels = RNG.integers(0, 3, (300, 40)).astype(np.uint8)
    palette = palette_of([(0, 0, 0), (255, 0, 7), (1, 2, 3)], None)
    path = tmp_path / "a.tif"
    with open_bands(path, shape=(300, 40), dtype=labels.dtype, compression=compression, palette=palette) as bands:
        bands.write(labels)
    with tifffile.TiffFile(path) as tiff:
        assert np.array_equal(tiff.pages.first.colormap, palette)
        assert tiff.pages.first.compression == {"deflate": 8, "zstd": 50000}[compression]
        assert np.array_equal(tiff.pages.first.asarray(), labels)


def leave(path):
    with open_bands(path, shape=(600, 9), dtype=np.dtype(np.uint8)) as bands:
        bands.write(np.zeros((300, 9), np.uint8))
        raise KeyboardInterrupt


@pytest.mark.parametrize("suffix", [".tif", ".zarr"])
def test_leaving_early_leaves_nothing(tmp_path, suffix):
    with pytest.raises(KeyboardInterrupt):
        leave(tmp_path / f"a{suffix}")
    assert list(tmp_path.iterdir()) == []
