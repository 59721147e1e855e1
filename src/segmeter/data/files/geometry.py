"""Where the pixels of a map lie: its spacing, and whether two maps are of the same place."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.sniff import show
from segmeter.data.units import MILLIMETRES, PIXEL_NAMES, find_unit

SPACING_TOLERANCE = 1e-3  # relative: a figure in mm moves no more than this
MOVED = 0.25  # of the smallest edge: headers in float32 move corners by less, a half-pixel shift by more
_NODATA = "nodata"
_PATIENT = ("NIfTI header", "ITK header", "DICOM")  # the scanner's or an atlas': right, anterior, superior, in mm
_RESAMPLE = "data.resample=nearest brings the prediction onto the reference's grid"
SET_SPACING = "Correct the file, or set metrics.spacing to the one that is right."


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """What a file says about the place of its pixels.

    Parameters
    ----------
    spacing
        Edge of a pixel per axis, in the order of the array's axes, > 0 and finite; None where the file says none.
    unit
        A key of `MILLIMETRES`, or None where the file names no unit.
    source
        Where the spacing stands, for example "NIfTI header"; "" where there is none.
    affine : (4, 4), float64
        From indices in the file's own order (last array axis first) to millimetres, or None.
    spacing_problem
        The line that refuses a spacing which the file states, but which can't be used; "" where there is none.
    place_problem
        The line that refuses a place which the file states twice and differently, or "".
    note
        What a user should know of the place, or "".
    crs
        The coordinate reference system, such as "EPSG:32633", or "".
    nodata
        The value that marks pixels without data, the tag's text where that is no number, or None.
    """

    spacing: tuple[float, ...] | None = None
    unit: str | None = None
    source: str = ""
    affine: NDArray[np.float64] | None = None
    spacing_problem: str = ""
    place_problem: str = ""
    note: str = ""
    crs: str = ""
    nodata: float | str | None = None

    @property
    def known(self) -> bool:
        """Whether the file says where its pixels lie."""
        return self.spacing is not None or self.affine is not None

    @property
    def world(self) -> str:
        """What the affine leads to: places of two maps are compared only in one world."""
        return "patient" if self.source in _PATIENT else self.source

    def having(self, **changes: Any) -> "Geometry":
        """The same with other fields."""
        return replace(self, **changes)


NOWHERE = Geometry()  # of pictures, which say nothing about it


def stated_geometry(
    path: Path, edges: Sequence[object], units: Sequence[object], *, source: str, affine: NDArray[Any] | None = None
) -> Geometry:
    """Take over what a file states about the edges of its pixels: the one rule for every format.

    Every edge is a finite number > 0. Units are lengths that `find_unit` knows; where they differ over axes, all
    edges are converted to the last axis' unit. Pixels as a unit, or none, is a spacing without a unit. What breaks this
    rule is the geometry's `spacing_problem`, never an unknown spacing.

    Parameters
    ----------
    path
        Only named in messages.
    edges
        One per axis of the array, as the file has them; None where it says nothing about an axis.
    units
        Names, one per axis; None where the file names none.
    source
        Where all this stands.
    affine
        For the result.
    """
    if all(edge is None for edge in edges):
        return Geometry(affine=affine)
    known = [_known_unit(unit) for unit in units]
    problem = _stated_problem(f"{show(path)}: {source}", edges, units, known)
    if problem:
        return Geometry(source=source, affine=affine, spacing_problem=problem)
    unit = known[-1] or None
    factors = [MILLIMETRES[each] / MILLIMETRES[unit] if each and unit else 1.0 for each in known]
    spacing = tuple(float(edge) * factor for edge, factor in zip(edges, factors, strict=True))  # type: ignore[arg-type]
    return Geometry(spacing=spacing, unit=unit, source=source, affine=affine)


def _stated_problem(where: str, edges: Sequence[object], units: Sequence[object], known: Sequence[str | None]) -> str:
    if not all(_is_edge(edge) for edge in edges):
        found = f"({', '.join('none' if edge is None else _write_edge(edge) for edge in edges)})"
        return expected(where, "spacing", "to be a finite number > 0 along every axis", found, SET_SPACING)
    foreign = [unit for unit, found in zip(units, known, strict=True) if found is None]
    if foreign:
        rule = "of the spacing to be a length such as nm, um, mm or inch"
        return expected(where, "unit", rule, repr(foreign[0])[:60], SET_SPACING)
    if len(set(known)) > 1 and "" in known:
        found = ", ".join(unit or "none" for unit in known)
        return expected(where, "unit", "of the spacing to be named for every axis or for none", found, SET_SPACING)
    return ""


def _known_unit(name: object) -> str | None:
    """A key of `MILLIMETRES`, "" for none and for pixels, None for what is no length."""
    if name is None or (isinstance(name, str) and name.strip().lower() in PIXEL_NAMES):
        return ""
    return find_unit(name) if isinstance(name, str) else None


def _is_edge(edge: object) -> bool:
    return _is_number(edge) and math.isfinite(edge) and edge > 0


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _write_edge(edge: object) -> str:
    return f"{edge:.6g}" if _is_number(edge) else repr(edge)[:40]


def geometry_problem(path: Path, given: Geometry, reference: Path, wanted: Geometry, shape: Sequence[int]) -> list[str]:
    """Say how the place of a map differs from that of its reference, beyond rounding; nothing where one says none.

    Two affines agree where no corner of the map moves by more than a quarter of its smallest edge, two spacings where
    they differ by no more than a thousandth.
    """
    found = _differing_spacing(given, wanted) or _differing_tags(given, wanted)
    if not found and given.world == wanted.world and given.affine is not None and wanted.affine is not None:
        found = differing_place(given.affine, wanted.affine, shape)
    if not found:
        return []
    rule = f"to be that of its reference {show(reference)}, {found[1]}"
    both = f"Reference: {describe(wanted, shape)}. Prediction: {describe(given, shape)}."
    remedy = "Write one value into both files." if found[0] == _NODATA else grid_remedy(given, wanted)
    return [expected(show(path), found[0], rule, found[2], f"{both} {remedy}")]


def share_world(given: Geometry, wanted: Geometry) -> bool:
    """Whether two places are told by the same coordinates."""
    return given.world == wanted.world and given.crs == wanted.crs


def grid_remedy(given: Geometry, wanted: Geometry) -> str:
    """What to do about two grids; the one can be laid onto the other where both say where they lie in one world."""
    if given.affine is not None and wanted.affine is not None and share_world(given, wanted):
        return f"Nothing is resampled unless asked for: bring both onto one grid, or {_RESAMPLE}."
    return "Bring both onto one grid."


def describe(geometry: Geometry, shape: Sequence[int]) -> str:
    """Size, spacing, origin and directions of a map in one line."""
    parts = [" x ".join(map(str, shape))]
    if geometry.spacing is not None:
        parts.append(f"spacing {write_spacing(geometry.spacing, geometry.unit)}")
    if geometry.affine is not None:
        edges = np.linalg.norm(geometry.affine[:3, :3], axis=0)
        parts.append(f"origin {_write(geometry.affine[:3, 3])}")
        parts.append(f"directions {_write(geometry.affine[:3, :3] / edges)}")
    return ", ".join([*parts, *filter(None, [geometry.crs])])


def _write_nodata(value: float | str | None) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _differing_tags(given: Geometry, wanted: Geometry) -> tuple[str, str, str] | None:
    """Reference systems and values without data, where both files state them."""
    if given.crs and wanted.crs and given.crs != wanted.crs:
        return "coordinate reference system", wanted.crs, given.crs
    if None not in (given.nodata, wanted.nodata) and given.nodata != wanted.nodata:
        return _NODATA, _write_nodata(wanted.nodata), _write_nodata(given.nodata)
    return None


def write_spacing(spacing: Sequence[float], unit: str | None) -> str:
    """A spacing as a message shows it."""
    return f"({', '.join(f'{edge:.6g}' for edge in spacing)}){f' {unit}' if unit else ''}"


def agree(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two spacings are the same but for rounding."""
    if len(first) != len(second):
        return False
    return all(abs(a - b) <= SPACING_TOLERANCE * max(abs(a), abs(b)) for a, b in zip(first, second, strict=True))


def same_spacing(first: Geometry, second: Geometry) -> bool:
    """Whether two spacings are the same but for rounding, whatever their units; numbers alone where one names none."""
    if first.spacing is None or second.spacing is None:
        return first.spacing is second.spacing
    factor = MILLIMETRES[first.unit] / MILLIMETRES[second.unit] if first.unit and second.unit else 1.0
    return agree([edge * factor for edge in first.spacing], second.spacing)


def _differing_spacing(given: Geometry, wanted: Geometry) -> tuple[str, str, str] | None:
    if given.spacing is None or wanted.spacing is None or same_spacing(given, wanted):
        return None
    return "spacing", write_spacing(wanted.spacing, wanted.unit), write_spacing(given.spacing, given.unit)


def differing_place(
    given: NDArray[np.float64], wanted: NDArray[np.float64], shape: Sequence[int]
) -> tuple[str, str, str] | None:
    """Name what moves a corner by more than a quarter of the smallest edge, the wanted value and the given one.

    Named is the origin where only that differs, else the whole affine; None where the places agree. Affines are (4, 4),
    `shape` is the array's, the last axis of which is the affine's first.
    """
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
