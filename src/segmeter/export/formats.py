"""One array -> one file in the format of its suffix, complete or absent."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from segmeter.files import TEMPORARY, atomic_write, foreign_write, fresh_folder, remove, rename

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
    path: Path, array: NDArray[Any], *, compression: str = "deflate", palette: NDArray[np.uint16] | None = None
) -> None:
    """Write (H, W) as one page, or (C, H, W) as one page per plane; tiled and compressed without loss.

    A palette, (3, 256) with 65535 as full, gives the values of a uint8 map their colours.
    """
    content = io.BytesIO()  # the library can't name a file that has only a descriptor
    layout: dict[str, Any] = {"photometric": "minisblack", "tile": (TILE, TILE), "metadata": None}
    if palette is not None:
        layout |= {"photometric": "palette", "colormap": palette}
    layout |= {"compression": COMPRESSIONS[compression], "predictor": palette is None}  # palettes allow no predictor
    tifffile.imwrite(content, array, **layout)
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def write_zarr(path: Path, array: NDArray[Any]) -> None:
    """Write a Zarr 3 folder with one chunk per plane and tile."""
    import zarr  # starts slowly, and few ask for it

    chunks = (1,) * (array.ndim - 2) + tuple(min(TILE, side) for side in array.shape[-2:])
    with _out_of_the_way(path), fresh_folder(path) as folder, foreign_write(folder):
        stored = zarr.create_array(str(folder), shape=array.shape, dtype=array.dtype, chunks=chunks, overwrite=True)
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
