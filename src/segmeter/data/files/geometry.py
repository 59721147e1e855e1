"""Describes where the pixels of a map lie, and whether two maps lie on the same grid.

A file that states a spacing or a position is taken at its word or refused, so that no distance is silently wrong.
"""

import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.refusals import show

SPACING_TOLERANCE = 1e-3  # Relative difference up to which spacings are equal: distances change by no more than this.
# Corners may move by this fraction of the smallest edge. Rounding to float32 moves them by less, half a pixel is more.
MOVED = 0.25
# Sources whose coordinates are those of a scanner or atlas: right, anterior, superior in mm.
_PATIENT = ("NIfTI header", "ITK header", "DICOM")
_RESAMPLE = "data.resample=nearest brings the prediction onto the reference's grid"
SET_SPACING = "Correct the file, or set metrics.spacing to the one that is right."

_PREFIXES = {
    "yotta": ("Y", 24), "zetta": ("Z", 21), "exa": ("E", 18), "peta": ("P", 15), "tera": ("T", 12), "giga": ("G", 9),
    "mega": ("M", 6), "kilo": ("k", 3), "hecto": ("h", 2), "deca": ("da", 1), "": ("", 0), "deci": ("d", -1),
    "centi": ("c", -2), "milli": ("m", -3), "micro": ("u", -6), "nano": ("n", -9), "pico": ("p", -12),
    "femto": ("f", -15), "atto": ("a", -18), "zepto": ("z", -21), "yocto": ("y", -24),
}  # fmt: skip
MILLIMETRES = {f"{symbol}m": float(f"1e{power + 3}") for symbol, power in _PREFIXES.values()} | {
    "angstrom": 1e-7, "thou": 0.0254, "line": 25.4 / 12, "point": 25.4 / 72, "inch": 25.4, "foot": 304.8, "yard": 914.4,
    "mile": 1_609_344.0, "astronomical unit": 149_597_870_700e3, "light year": 9_460_730_472_580_800e3,
    "parsec": 3.085_677_581_491_367_3e19,
}  # fmt: skip
OME_SYMBOLS = {  # the symbols of OME-XML that differ from ours
    "\u00c5": "angstrom", "in": "inch", "ft": "foot", "yd": "yard", "mi": "mile", "li": "line", "pt": "point",
    "ua": "astronomical unit", "ly": "light year", "pc": "parsec",
}  # fmt: skip
_SYMBOLS = {symbol: symbol for symbol in MILLIMETRES} | OME_SYMBOLS  # Upper and lower case differ: mm and Mm.
# Words in lower case; a name matches in upper or lower case.
_WORDS = {f"{prefix}met{end}": f"{symbol}m" for prefix, (symbol, _) in _PREFIXES.items() for end in ("er", "re")}
_WORDS |= {name: name for name in MILLIMETRES if len(name) > 3}
_WORDS |= {"micron": "um", "dekameter": "dam", "dekametre": "dam", "angstroem": "angstrom", "feet": "foot"}
Affine = NDArray[np.float64]
GeoTag = tuple[int, tuple[float, ...] | tuple[int, ...] | str]
_PIXELS = ("", "pixel", "pixels", "px", "voxel", "voxels")


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """Where a file's pixels lie, as far as the file states it.

    Parameters
    ----------
    spacing
        Length of a pixel along each axis, in the order of the array's axes, > 0 and finite; None if the file has none.
    unit
        A key of `MILLIMETRES`, or None if the file names no unit.
    source
        Where the spacing was found, for example "NIfTI header"; "" if there is none.
    affine : (4, 4), float64
        Maps indices in the file's own order (last array axis first) to millimetres; None if the file has none.
    spacing_problem
        The message that refuses a spacing that can't be used, or "".
    place_problem
        The message that refuses a position that the file states twice and differently, or "".
    note
        A remark for the user, or "".
    crs
        The coordinate reference system, such as "EPSG:32633", or "".
    nodata
        The value of pixels without data, or the tag's text if it is not a number, or None.
    geotiff
        Numbers and values of the GeoTIFF tags, for pixels of the level that is read.
    file
        The file of a volume. Label maps of the volume repeat its format and header.
    """

    spacing: tuple[float, ...] | None = None
    unit: str | None = None
    source: str = ""
    affine: Affine | None = None
    spacing_problem: str = ""
    place_problem: str = ""
    note: str = ""
    crs: str = ""
    nodata: float | str | None = None
    geotiff: tuple[GeoTag, ...] = ()
    file: Path | None = None

    @property
    def known(self) -> bool:
        """Whether the file says where its pixels lie."""
        return self.spacing is not None or self.affine is not None or bool(self.geotiff)

    @property
    def world(self) -> str:
        """The coordinate system that the affine leads to; only maps in the same one are compared."""
        return "patient" if self.source in _PATIENT else self.source

    def having(self, **changes: Any) -> "Geometry":
        """Return a copy with other fields."""
        return replace(self, **changes)


NOWHERE = Geometry()  # the geometry of plain pictures


def stated_geometry(
    path: Path, edges: Sequence[object], units: Sequence[object], *, source: str, affine: NDArray[Any] | None = None
) -> Geometry:
    """Build a geometry from the pixel edges that a file states; every format goes through this one rule.

    Every edge must be a finite number > 0, and every unit a length that `find_unit` knows. If units differ between
    axes, all edges are converted to the last axis' unit. Without a unit, or with pixels as one, the spacing has none.
    Anything else becomes the geometry's `spacing_problem`, never an unknown spacing.

    Parameters
    ----------
    path
        Only used in messages.
    edges
        The stored edge of each axis of the array; None if the file says nothing about an axis.
    units
        The name of each axis' unit; None if the file names none.
    source
        Where edges and units were found.
    affine
        The affine of the result.
    """
    if all(edge is None for edge in edges):
        return Geometry(affine=affine)
    known = [find_unit(unit) for unit in units]
    foreign = [unit for unit, symbol in zip(units, known, strict=True) if symbol is None]
    fault = None
    if not all(_is_number(edge) and math.isfinite(edge) and edge > 0 for edge in edges):
        named = ("none" if edge is None else f"{edge:.6g}" if _is_number(edge) else repr(edge)[:40] for edge in edges)
        fault = "spacing", "to be a finite number > 0 along every axis", f"({', '.join(named)})"
    elif foreign:
        fault = "unit", "of the spacing to be a length such as nm, um, mm or inch", repr(foreign[0])[:60]
    elif len(set(known)) > 1 and "" in known:
        names = ", ".join(symbol or "none" for symbol in known)
        fault = "unit", "of the spacing to be named for every axis or for none", names
    if fault:
        return unusable_spacing(path, source, *fault).having(affine=affine)
    unit = known[-1] or None
    factors = [MILLIMETRES[symbol] / MILLIMETRES[unit] if symbol and unit else 1.0 for symbol in known]
    spacing = tuple(float(edge) * factor for edge, factor in zip(edges, factors, strict=True))  # type: ignore[arg-type]
    return Geometry(spacing=spacing, unit=unit, source=source, affine=affine)


def unusable_spacing(path: Path, source: str, what: str, rule: str, found: str) -> Geometry:
    """Build a geometry whose spacing can't be used, with the message that refuses it.

    `what` is the part of the source that is wrong, or "" for all of it.
    """
    where = f"{show(path)}: {source}" if what else show(path)
    return Geometry(source=source, spacing_problem=expected(where, what or source, rule, found, SET_SPACING))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def geometry_problem(path: Path, given: Geometry, reference: Path, wanted: Geometry, shape: Sequence[int]) -> list[str]:
    """Report how a map's grid differs from its reference's beyond rounding, if both files state one.

    Two affines agree if no corner moves by more than a quarter of the smallest pixel edge. Two spacings agree if they
    differ by no more than a thousandth.
    """
    difference: tuple[str, str, str] | None = None
    if given.spacing is not None and wanted.spacing is not None and not same_spacing(given, wanted):
        difference = "spacing", write_spacing(wanted.spacing, wanted.unit), write_spacing(given.spacing, given.unit)
    elif given.crs and wanted.crs and given.crs != wanted.crs:
        difference = "coordinate reference system", wanted.crs, given.crs
    elif None not in (given.nodata, wanted.nodata) and given.nodata != wanted.nodata:
        texts = [f"{value:g}" if isinstance(value, float) else repr(value) for value in (wanted.nodata, given.nodata)]
        difference = "nodata", texts[0], texts[1]
    elif given.world == wanted.world and given.affine is not None and wanted.affine is not None:
        difference = differing_place(given.affine, wanted.affine, shape)
    if not difference:
        return []
    what, wanted_value, given_value = difference
    rule = f"to be that of its reference {show(reference)}, {wanted_value}"
    both = f"Reference: {describe(wanted, shape)}. Prediction: {describe(given, shape)}."
    remedy = "Write one value into both files." if what == "nodata" else grid_remedy(given, wanted)
    return [expected(show(path), what, rule, given_value, f"{both} {remedy}")]


def share_world(given: Geometry, wanted: Geometry) -> bool:
    """Tell whether two geometries use the same coordinates."""
    return given.world == wanted.world and given.crs == wanted.crs


def grid_remedy(given: Geometry, wanted: Geometry) -> str:
    """Return advice about two different grids. Resampling is possible if both have affines in the same coordinates."""
    if given.affine is not None and wanted.affine is not None and share_world(given, wanted):
        return f"Nothing is resampled unless asked for: bring both onto one grid, or {_RESAMPLE}."
    return "Bring both onto one grid."


def describe(geometry: Geometry, shape: Sequence[int]) -> str:
    """Return size, spacing, origin and directions as one line of text."""
    parts = [" x ".join(map(str, shape))]
    if geometry.spacing is not None:
        parts.append(f"spacing {write_spacing(geometry.spacing, geometry.unit)}")
    if geometry.affine is not None:
        edges = np.linalg.norm(geometry.affine[:3, :3], axis=0)
        parts.append(f"origin {_write(geometry.affine[:3, 3])}")
        parts.append(f"directions {_write(geometry.affine[:3, :3] / edges)}")
    return ", ".join([*parts, *filter(None, [geometry.crs])])


def write_spacing(spacing: Sequence[float], unit: str | None) -> str:
    """Return a spacing as text for a message."""
    return f"({', '.join(f'{edge:.6g}' for edge in spacing)}){f' {unit}' if unit else ''}"


def agree(first: Sequence[float], second: Sequence[float]) -> bool:
    """Tell whether two spacings are equal apart from rounding."""
    are_close = (math.isclose(a, b, rel_tol=SPACING_TOLERANCE) for a, b in zip(first, second, strict=False))
    return len(first) == len(second) and all(are_close)


def same_spacing(first: Geometry, second: Geometry) -> bool:
    """Tell whether two spacings are equal apart from rounding and units; without a unit, only numbers are compared."""
    if first.spacing is None or second.spacing is None:
        return first.spacing is second.spacing
    factor = MILLIMETRES[first.unit] / MILLIMETRES[second.unit] if first.unit and second.unit else 1.0
    return agree([edge * factor for edge in first.spacing], second.spacing)


def differing_place(given: Affine, wanted: Affine, shape: Sequence[int]) -> tuple[str, str, str] | None:
    """Compare two affines (4, 4): they differ if a corner moves by more than a quarter of the smallest edge.

    Return the name of what differs, the wanted value and the given value; None if the affines agree. The name is that
    of the origin if nothing else differs. `shape` is the array's, whose last axis is the affine's first.
    """
    ends = [(0, size - 1) for size in reversed(shape)] + [(0, 0)] * (3 - len(shape))
    corners = np.array([(*corner, 1) for corner in itertools.product(*ends)], np.float64).T
    moved = float(np.abs((given - wanted) @ corners).max())
    edge = float(np.linalg.norm(wanted[:3, : len(shape)], axis=0).min())
    if moved <= MOVED * edge:
        return None
    is_turned = np.abs(given[:3, :3] - wanted[:3, :3]).max() > SPACING_TOLERANCE * edge
    part = (slice(3), slice(3)) if is_turned else (slice(3), 3)
    name = "affine (columns: file axes)" if is_turned else "origin"
    return name, _write(wanted[part]), _write(given[part])


def _write(values: NDArray[Any]) -> str:
    return np.array2string(values, precision=6, separator=", ", suppress_small=True).replace("\n", "")


def find_unit(name: object) -> str | None:
    """Return the symbol of a length, a key of `MILLIMETRES`; "" for no unit or pixels, and None for anything else.

    It knows UDUNITS' names as OME-NGFF lists them (British spellings and plurals too), OME-XML's symbols and the usual
    abbreviations. Both code points of the Greek mu are accepted.

    Examples
    --------
    >>> find_unit("micrometer"), find_unit("Millimetres"), find_unit("inches"), find_unit("MM")
    ('um', 'mm', 'inch', None)
    """
    if name is None or (isinstance(name, str) and name.strip().lower() in _PIXELS):
        return ""
    if not isinstance(name, str):
        return None
    plain = unicodedata.normalize("NFKC", name).strip().replace("\N{GREEK SMALL LETTER MU}", "u")
    word = plain.lower()
    singular = word.removesuffix("es") if word.endswith("ches") else word.removesuffix("s")
    return _SYMBOLS.get(plain) or _WORDS.get(word) or _WORDS.get(singular)
