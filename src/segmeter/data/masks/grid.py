"""Resamples a map onto another grid of the same world by nearest neighbour, if the user asks for it."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.geometry import Geometry, describe, geometry_problem, share_world
from segmeter.data.files.sniff import file_error, show

NOTE = "predictions were resampled by nearest neighbour onto their references' grids, beyond their edges as class 0"
_DIGITS = 6  # of an index; positions that differ by less are equal


def onto_grid(
    path: Path, values: NDArray[Any], geometry: Geometry, *, reference: Path, wanted: Geometry, shape: tuple[int, ...]
) -> tuple[NDArray[Any], Geometry] | None:
    """Resample a map if its grid is not that of its reference.

    Parameters
    ----------
    path, reference
        Only used in messages.
    values, geometry
        The map and where it lies.
    wanted, shape
        Geometry and size of the reference.

    Returns
    -------
    The map (shape) and its new geometry with a note, or None if the grids are equal or one of them is unknown.

    Raises
    ------
    DataError
        The two have no pixel in common.
    """
    if values.shape == shape and not geometry_problem(path, geometry, reference, wanted, shape):
        return None
    if geometry.affine is None or wanted.affine is None:
        return None
    if values.ndim != len(shape) or not share_world(geometry, wanted):
        return None
    axes, step = (
        len(shape),
        np.linalg.inv(geometry.affine) @ wanted.affine,
    )  # from the reference's indices to ours, in file order
    matrix, offset = step[:axes, :axes][::-1, ::-1], step[:axes, 3][::-1]
    beside = axes == 2 and bool(np.abs(step[2, :2] * shape[::-1]).max() + abs(step[2, 3]) >= 0.5)  # another slice
    found, inside = _nearest(values, matrix, offset, shape)
    if beside or not inside:
        both = f"{describe(wanted, shape)} and {describe(geometry, values.shape)}"
        raise file_error(path, "grid", f"to overlap that of its reference {show(reference)}", both)
    return found, wanted.having(note="; ".join(filter(None, [wanted.note, NOTE])))


def _nearest(
    values: NDArray[Any], matrix: NDArray[np.float64], offset: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[NDArray[Any], int]:
    """Return the value at the nearest centre for each new pixel, 0 outside, and how many are inside; slab by slab."""
    found, inside = np.zeros(shape, values.dtype), 0
    plane = np.stack(np.meshgrid(*(np.arange(size) for size in shape[1:]), indexing="ij")).reshape(len(shape) - 1, -1)
    rest = matrix[:, 1:] @ plane + offset[:, None]
    limits = np.array(values.shape)[:, None]
    for first, slab in enumerate(found.reshape(shape[0], -1)):
        places = np.floor(np.round(rest + matrix[:, :1] * first, _DIGITS) + 0.5).astype(np.int64)
        held = ((places >= 0) & (places < limits)).all(axis=0)
        slab[held] = values[tuple(places[:, held])]
        inside += int(np.count_nonzero(held))
    return found, inside
