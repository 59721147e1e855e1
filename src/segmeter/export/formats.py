"""Writes one array to one file (or Zarr folder), which appears under its name complete or not at all."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.data.files.array import LazyArray
from segmeter.data.files.reader_process import need
from segmeter.data.location import UNKNOWN, Location
from segmeter.export.located import CENTIMETRE, geotiff_tags, ome_xml, resolution, zarr_attributes
from segmeter.files import atomic_write, fresh_folder, make_folder, remove, sync
from segmeter.threads import count_cores

Locate = Callable[[], Location]

TILE = 256  # edge of TIFF tiles and Zarr chunks, pixels
_PACKED = 1 << 22  # bytes of tiles that are compressed at a time
COMPRESSIONS = {"deflate": "zlib", "zstd": "zstd"}  # our names -> tifffile's


class LinesOf:
    """One plane of labels that are read in bands of lines, in the dtype of its file.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) of which `plane` is one.
    dtype
        Holds every value.
    """

    def __init__(self, labels: LazyArray, dtype: np.dtype[Any], plane: int | None = None) -> None:
        self.shape, self.dtype, self.ndim = labels.shape[-2:], dtype, 2
        self._labels, self._plane = labels, ... if plane is None else plane

    def bands(self) -> Iterator[NDArray[Any]]:
        """Yield the lines of one row of tiles after the other."""
        for top in range(0, self.shape[0], TILE):
            lines = self._labels.read(top, min(top + TILE, self.shape[0]))
            yield lines[self._plane].astype(self.dtype, copy=False)


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write an NPY file without pickle."""
    with atomic_write(path) as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: Path, array: NDArray[Any]) -> None:
    """Write a compressed NPZ file with the array under "probs"."""
    with atomic_write(path) as file:
        np.savez_compressed(file, allow_pickle=False, probs=array)


def write_tiff(
    path: Path,
    array: NDArray[Any] | LinesOf,
    *,
    compression: str = "deflate",
    palette: NDArray[np.uint16] | None = None,
    locate: Locate = lambda: UNKNOWN,
) -> None:
    """Write (H, W) as one page, or (C, H, W) as one page per plane, tiled and compressed without loss.

    Labels that are read in bands become a BigTIFF.

    Parameters
    ----------
    palette
        (3, 256) with 65535 as full: the colours of the values of a uint8 map.
    locate
        Gives the location of the pixels, which each page then states.
    """
    layout: dict[str, Any] = {"photometric": "minisblack", "tile": (TILE, TILE), "metadata": None}
    if palette is not None:
        layout |= {"photometric": "palette", "colormap": palette}
    layout |= {"compression": COMPRESSIONS[compression], "predictor": palette is None}  # palettes allow no predictor
    location = locate()
    layout["description"] = ome_xml(location, array.shape, array.dtype)
    layout["extratags"] = [(tag, kind, count, value, False) for tag, kind, count, value in geotiff_tags(location)]
    per_centimetre = resolution(location)
    if per_centimetre is not None:
        layout |= {"resolution": per_centimetre, "resolutionunit": CENTIMETRE}
    make_folder(path.parent)
    if isinstance(array, LinesOf):
        layout |= {"shape": array.shape, "dtype": array.dtype, "maxworkers": count_cores(), "buffersize": _PACKED}
        lefts = range(0, array.shape[1], TILE)
        tiles = (_whole_tile(band[:, left : left + TILE]) for band in array.bands() for left in lefts)
        with atomic_write(path) as file, tifffile.FileHandle(file, name=path.name, offset=0, size=0) as handle:
            with tifffile.TiffWriter(handle, bigtiff=True) as writer:
                writer.write(tiles, **layout)
        return
    content = io.BytesIO()  # tifffile seeks back and forth, which is cheaper in memory
    tifffile.imwrite(content, array, **layout)
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def _whole_tile(part: NDArray[Any]) -> NDArray[Any]:
    """Pad a part at the edge with zeros to a whole tile."""
    height, width = part.shape
    return part if part.shape == (TILE, TILE) else np.pad(part, ((0, TILE - height), (0, TILE - width)))


def write_zarr(path: Path, array: NDArray[Any] | LinesOf, *, locate: Locate = lambda: UNKNOWN) -> None:
    """Write a Zarr 3 folder with one chunk per plane and tile; a map states the location of its pixels."""
    zarr: Any = need("zarr", "zarr", "Zarr folders")
    chunks = (1,) * (array.ndim - 2) + tuple(min(TILE, side) for side in array.shape[-2:])
    with fresh_folder(path) as folder:
        attributes = zarr_attributes(locate())
        layout = {"shape": array.shape, "dtype": array.dtype, "chunks": chunks, "attributes": attributes}
        stored: Any = zarr.create_array(str(folder), **layout)
        if isinstance(array, LinesOf):
            for number, band in enumerate(array.bands()):
                stored[number * TILE : number * TILE + len(band)] = band
        else:
            stored[...] = array
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            handle = os.open(file, os.O_RDWR)
            try:
                sync(handle, path)
            finally:
                os.close(handle)
        remove(path)  # an older folder: a rename replaces files only
