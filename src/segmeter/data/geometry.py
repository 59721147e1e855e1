"""Where the pixels of a map lie: its spacing, and whether two maps are of the same place."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.formats import show

SPACING_TOLERANCE = 1e-3  # relative: a figure in mm moves no more than this
MOVED = 0.25  # of the smallest edge: headers in float32 move corners by less, a half-pixel shift by more
MILLIMETRES = {"nm": 1e-6, "um": 1e-3, "mm": 1.0, "cm": 10.0, "m": 1e3}


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """What a file says about the place of its pixels.

    Parameters
    ----------
    spacing
        Edge of a pixel per axis, in the order of the array's axes; None where the file says none.
    unit
        A key of `MILLIMETRES`, or None where the file names no unit.
    source
        Where the spacing stands, for example "NIfTI header"; "" where there is none.
    affine : (4, 4), float64
        From indices in the file's own order (last array axis first) to millimetres, or None.
    conflict
        What the file says twice and differently, or "".
    """

    spacing: tuple[float, ...] | None = None
    unit: str | None = None
    source: str = ""
    affine: NDArray[np.float64] | None = None
    conflict: str = ""


def geometry_problem(path: Path, given: Geometry, reference: Path, wanted: Geometry, shape: Sequence[int]) -> list[str]:
    """Say how the place of a map differs from that of its reference, beyond rounding; nothing where one says none.

    Two affines agree where no corner of the map moves by more than a quarter of its smallest edge, two spacings where
    they differ by no more than a thousandth.
    """
    found = _differing_spacing(given, wanted)
    if not found and given.affine is not None and wanted.affine is not None:
        found = _differing_place(given.affine, wanted.affine, shape)
    if not found:
        return []
    rule = f"to be that of its reference {show(reference)}, {found[1]}"
    remedy = "Nothing is resampled: bring both onto one grid."
    return [expected(show(path), found[0], rule, found[2], remedy)]


def write_spacing(spacing: Sequence[float], unit: str | None) -> str:
    """A spacing as a message shows it."""
    return f"({', '.join(f'{edge:.6g}' for edge in spacing)}){f' {unit}' if unit else ''}"


def agree(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two spacings are the same but for rounding."""
    if len(first) != len(second):
        return False
    return all(abs(a - b) <= SPACING_TOLERANCE * max(abs(a), abs(b)) for a, b in zip(first, second, strict=True))


def _differing_spacing(given: Geometry, wanted: Geometry) -> tuple[str, str, str] | None:
    if given.spacing is None or wanted.spacing is None:
        return None
    factor = 1.0
    if given.unit and wanted.unit:
        factor = MILLIMETRES[given.unit] / MILLIMETRES[wanted.unit]
    if agree([edge * factor for edge in given.spacing], wanted.spacing):
        return None
    return "spacing", write_spacing(wanted.spacing, wanted.unit), write_spacing(given.spacing, given.unit)


def _differing_place(
    given: NDArray[np.float64], wanted: NDArray[np.float64], shape: Sequence[int]
) -> tuple[str, str, str] | None:
    """Compare where the corners lie; name the origin where only that differs, else the directions."""
    ends = [(0, size - 1) for size in reversed(shape)] + [(0, 0)] * (3 - len(shape))
    corners = np.array([(*corner, 1) for corner in itertools.product(*ends)], np.float64).T
    moved = float(np.abs((given - wanted) @ corners).max())
    edge = float(np.linalg.norm(wanted[:3, : len(shape)], axis=0).min())
    if moved <= MOVED * edge:
        return None
    turned = np.abs(given[:3, :3] - wanted[:3, :3]).max() > SPACING_TOLERANCE * edge
    pick = (slice(3), slice(3)) if turned else (slice(3), 3)
    name = "affine (columns: file axes)" if turned else "origin"
    return name, _write(wanted[pick]), _write(given[pick])


def _write(values: NDArray[Any]) -> str:
    return np.array2string(values, precision=6, separator=", ", suppress_small=True).replace("\n", "")
