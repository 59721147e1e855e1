"""One array -> one file in the format of its suffix, complete or absent."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.data.location import UNKNOWN, Location
from segmeter.export.located import CENTIMETRE, geotiff_tags, ome_xml, resolution, zarr_attributes
from segmeter.files import TEMPORARY, atomic_write, foreign_write, fresh_folder, remove, rename

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

    A palette, (3, 256) with 65535 as full, gives the values of a uint8 map their colours. A single page says where its
    pixels lie, if `locate` knows.
    """
    content = io.BytesIO()  # the library can't name a file that has only a descriptor
    layout: dict[str, Any] = {"photometric": "minisblack", "tile": (TILE, TILE), "metadata": None}
    if palette is not None:
        layout |= {"photometric": "palette", "colormap": palette}
    layout |= {"compression": COMPRESSIONS[compression], "predictor": palette is None}  # palettes allow no predictor
    if array.ndim == 2:
        layout |= _located(locate(), array)
    tifffile.imwrite(content, array, **layout)
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def _located(location: Location, array: NDArray[Any]) -> dict[str, Any]:
    """What tifffile is told of where a map lies."""
    found: dict[str, Any] = {"description": ome_xml(location, array.shape, array.dtype)}
    per = resolution(location)
    if per is not None:
        found |= {"resolution": per, "resolutionunit": CENTIMETRE}
    return found | {
        "extratags": [(tag, kind, count, value, True) for tag, kind, count, value in geotiff_tags(location)]
    }


def write_zarr(path: Path, array: NDArray[Any], *, locate: Locate = lambda: UNKNOWN) -> None:
    """Write a Zarr 3 folder with one chunk per plane and tile; one of (H, W) says where its pixels lie."""
    import zarr  # starts slowly, and few ask for it

    chunks = (1,) * (array.ndim - 2) + tuple(min(TILE, side) for side in array.shape[-2:])
    with _out_of_the_way(path), fresh_folder(path) as folder, foreign_write(folder):
        attributes = zarr_attributes(locate()) if array.ndim == 2 else {}
        stored = zarr.create_array(
            str(folder), shape=array.shape, dtype=array.dtype, chunks=chunks, attributes=attributes, overwrite=True
        )
        stored[...] = array


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
