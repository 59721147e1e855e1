"""One array -> one file in the format of its suffix, complete or absent."""

import io
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.data.location import UNKNOWN, Location
from segmeter.export.located import CENTIMETRE, geotiff_tags, ome_xml, resolution, zarr_attributes
from segmeter.files import TEMPORARY, Lines, atomic_write, fresh_folder, make_folder, remove, rename

Locate = Callable[[], Location]

TILE = 256  # edge of TIFF tiles and Zarr chunks, pixels
COMPRESSIONS = {"deflate": "zlib", "zstd": "zstd"}  # our names -> tifffile's


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
    array: NDArray[Any],
    *,
    compression: str = "deflate",
    palette: NDArray[np.uint16] | None = None,
    locate: Locate = lambda: UNKNOWN,
) -> None:
    """Write (H, W) as one page, or (C, H, W) as one page per plane; tiled and compressed without loss.

    A palette, (3, 256) with 65535 as full, gives the values of a uint8 map their colours. Each page says where its
    pixels lie, if `locate` knows.
    """
    content = io.BytesIO()  # the library can't name a file that has only a descriptor
    layout: dict[str, Any] = {"photometric": "minisblack", "tile": (TILE, TILE), "metadata": None}
    if palette is not None:
        layout |= {"photometric": "palette", "colormap": palette}
    layout |= {"compression": COMPRESSIONS[compression], "predictor": palette is None}  # palettes allow no predictor
    layout |= _located(locate(), array)
    tifffile.imwrite(content, array, **layout)
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def _located(location: Location, array: NDArray[Any]) -> dict[str, Any]:
    """What tifffile is told of where an array lies: GeoTIFF tags in each page, OME metadata once."""
    found: dict[str, Any] = {"description": ome_xml(location, array.shape, array.dtype)}
    per = resolution(location)
    if per is not None:
        found |= {"resolution": per, "resolutionunit": CENTIMETRE}
    return found | {
        "extratags": [(tag, kind, count, value, False) for tag, kind, count, value in geotiff_tags(location)]
    }


def write_zarr(path: Path, array: NDArray[Any], *, locate: Locate = lambda: UNKNOWN) -> None:
    """Write a Zarr 3 folder with one chunk per plane and tile; one of (H, W) says where its pixels lie."""
    chunks = (1,) * (array.ndim - 2) + tuple(min(TILE, side) for side in array.shape[-2:])
    with _out_of_the_way(path), fresh_folder(path) as folder:
        attributes = zarr_attributes(locate()) if array.ndim == 2 else {}
        stored = ZarrFolder(folder, shape=array.shape, dtype=array.dtype, chunks=chunks, attributes=attributes)
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
        import zarr  # starts slowly, and few ask for it
        from zarr.storage import MemoryStore

        self._folder = folder
        self._packed: dict[str, Any] = {}  # a chunk's name -> its bytes, until they are written
        self._array: Any = zarr.create_array(MemoryStore(self._packed), **options)
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
