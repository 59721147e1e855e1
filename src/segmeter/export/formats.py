"""One array -> one file in the format of its suffix, complete or absent."""

import io
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.data.files.array import LazyArray
from segmeter.data.files.reader_process import need
from segmeter.data.location import UNKNOWN, Location
from segmeter.export.located import CENTIMETRE, geotiff_tags, ome_xml, resolution, zarr_attributes
from segmeter.files import TEMPORARY, Lines, atomic_write, fresh_folder, make_folder, remove, rename
from segmeter.threads import count_cores

Locate = Callable[[], Location]

TILE = 256  # edge of TIFF tiles and Zarr chunks, pixels
_PACKED = 1 << 22  # bytes of tiles that are packed at a time
COMPRESSIONS = {"deflate": "zlib", "zstd": "zstd"}  # our names -> tifffile's


class LinesOf:
    """One plane of labels that are read by lines, in the dtype of its file; the writer's queue counts no bytes of it.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) of which `plane` is one.
    dtype
        Holds every value.
    """

    nbytes = 0

    def __init__(self, labels: LazyArray, dtype: np.dtype[Any], plane: int | None = None) -> None:
        self.shape, self.dtype, self.ndim = labels.shape[-2:], dtype, 2
        self._labels, self._plane = labels, ... if plane is None else plane

    def bands(self) -> Iterator[NDArray[Any]]:
        """The lines of one row of tiles after the other."""
        for top in range(0, self.shape[0], TILE):
            lines = self._labels.read(top, min(top + TILE, self.shape[0]))
            yield lines[self._plane].astype(self.dtype, copy=False)


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write the array as it is, without pickle."""
    with atomic_write(path) as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: Path, array: NDArray[Any]) -> None:
    """Write a compressed NPZ with the array under "probs"."""
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
    """Write (H, W) as one page, or (C, H, W) as one page per plane; tiled and compressed without loss.

    Labels that are read by lines become a BigTIFF.

    A palette, (3, 256) with 65535 as full, gives the values of a uint8 map their colours. Each page says where its
    pixels lie, if `locate` knows.
    """
    layout: dict[str, Any] = {"photometric": "minisblack", "tile": (TILE, TILE), "metadata": None}
    if palette is not None:
        layout |= {"photometric": "palette", "colormap": palette}
    layout |= {"compression": COMPRESSIONS[compression], "predictor": palette is None}  # palettes allow no predictor
    layout |= _located(locate(), array.shape, array.dtype)
    if isinstance(array, LinesOf):
        make_folder(path.parent)
        layout |= {"shape": array.shape, "dtype": array.dtype, "maxworkers": count_cores(), "buffersize": _PACKED}
        lefts = range(0, array.shape[1], TILE)
        tiles = (_tile(band[:, left : left + TILE]) for band in array.bands() for left in lefts)
        with atomic_write(path) as file, tifffile.FileHandle(file, name=path.name, offset=0, size=0) as handle:
            with tifffile.TiffWriter(handle, bigtiff=True) as writer:
                writer.write(tiles, **layout)
        return
    content = io.BytesIO()  # several threads write small files at a time, each of them at once
    tifffile.imwrite(content, array, **layout)
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def _tile(part: NDArray[Any]) -> NDArray[Any]:
    """Extend a part by zeros to a whole tile."""
    height, width = part.shape
    return part if part.shape == (TILE, TILE) else np.pad(part, ((0, TILE - height), (0, TILE - width)))


def _located(location: Location, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Where an array lies, as tifffile takes it: GeoTIFF tags in each page, OME metadata once."""
    found: dict[str, Any] = {"description": ome_xml(location, shape, dtype)}
    per = resolution(location)
    if per is not None:
        found |= {"resolution": per, "resolutionunit": CENTIMETRE}
    return found | {
        "extratags": [(tag, kind, count, value, False) for tag, kind, count, value in geotiff_tags(location)]
    }


def write_zarr(path: Path, array: NDArray[Any] | LinesOf, *, locate: Locate = lambda: UNKNOWN) -> None:
    """Write a Zarr 3 folder with one chunk per plane and tile; one of (H, W) says where its pixels lie."""
    chunks = (1,) * (array.ndim - 2) + tuple(min(TILE, side) for side in array.shape[-2:])
    with _out_of_the_way(path), fresh_folder(path) as folder:
        attributes = zarr_attributes(locate()) if array.ndim == 2 else {}
        stored = ZarrFolder(folder, shape=array.shape, dtype=array.dtype, chunks=chunks, attributes=attributes)
        if isinstance(array, LinesOf):
            for number, band in enumerate(array.bands()):
                stored.write(slice(number * TILE, number * TILE + len(band)), band)
            return
        for plane in np.ndindex(array.shape[:-2]):
            stored.write((*plane, ...), array[plane])


class ZarrFolder:
    """A Zarr 3 array in a fresh folder. Chunks are packed in memory and written by `files`, which follows no link.

    Parameters
    ----------
    folder
        From `fresh_folder`.
    options
        As `zarr.create_array` takes them.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        zarr: Any = need("zarr", "zarr", "Zarr folders")
        self._folder = folder
        self._packed: dict[str, Any] = {}  # a chunk's name -> its bytes, until they are written
        self._array: Any = zarr.create_array(zarr.storage.MemoryStore(self._packed), **options)
        self._put_out()

    def write(self, place: Any, values: NDArray[Any]) -> None:
        """Write whole chunks."""
        self._array[place] = values
        self._put_out()

    def _put_out(self) -> None:
        for name in sorted(self._packed):
            path = self._folder / name
            make_folder(path.parent)
            with closing(Lines(path)) as file:
                file.write(self._packed.pop(name).to_bytes())


@contextmanager
def _out_of_the_way(folder: Path) -> Iterator[None]:
    """Hold an older folder aside, as a rename replaces files only; it comes back if the block fails."""
    if not folder.exists():
        yield
        return
    aside = folder.with_name(f"{TEMPORARY}{folder.name}")
    remove(aside)
    rename(folder, aside.name)
    try:
        yield
    except BaseException:
        rename(aside, folder.name)
        raise
    remove(aside)
