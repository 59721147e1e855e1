"""Finds the spacing of a case and where it comes from, or how its files differ in size and geometry.

If the user asks for it, a map on another grid of the same world is resampled by nearest neighbour.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.data.files.geometry import NOWHERE, Geometry, agree, describe, geometry_problem, grid_remedy, share_world
from segmeter.data.files.refusals import file_error, show
from segmeter.data.masks.reading import StoredMap
from segmeter.errors import DataError

PIXELS = "pixels"  # The unit of a case without a spacing
NOTE = "predictions were resampled by nearest neighbour onto their references' grids, beyond their edges as class 0"
# Positions closer than this share of a pixel are equal. Added to the offset, it rounds halves up.
_SAME_PLACE = 5e-7


@dataclass(frozen=True, kw_only=True)
class CaseSpacing:
    """The spacing of a case, and where it comes from.

    Parameters
    ----------
    spacing
        Pixel edge per axis, in axis order; None if nothing states it.
    unit
        Such as "mm"; "pixels" without a spacing; "" if the spacing has no unit, as one from the configuration.
    source
        For example "NIfTI header", "config" or "none".
    overridden
        Whether the configuration's spacing replaces another one in the files.
    warnings
        Lines for the user. Cases with the same doubt have the same line.
    """

    # The names of these fields are keys in the column `record` of records.parquet.
    spacing: tuple[float, ...] | None = None
    unit: str = PIXELS
    source: str = "none"
    overridden: bool = False
    warnings: tuple[str, ...] = ()


UNKNOWN_SPACING = CaseSpacing()


def find_spacing(paths: Sequence[Path], maps: Sequence[StoredMap], wanted: tuple[float, ...] | None) -> CaseSpacing:
    """Refuse files of a case that differ from the first one, its reference, in size or place, and find their spacing.

    Parameters
    ----------
    paths, maps
        The files and their content.
    wanted
        The configuration's spacing, which overrides every file's.

    Raises
    ------
    DataError
        Sizes, spacings or geometries differ, one line each; or a file states two geometries; or it states a spacing
        that can't be used, and the configuration has none.
    """
    reference = maps[0]
    shape = reference.values.shape
    if wanted is None and all(stored.geometry is NOWHERE and stored.values.shape == shape for stored in maps):
        return UNKNOWN_SPACING  # the usual case: pictures of one size
    geometries = [stored.geometry for stored in maps]
    problems = list[str]()
    for path, stored in zip(paths, maps, strict=True):
        problems += _size_problems(path, stored, paths[0], reference)
    if not problems:
        for path, geometry in zip(paths[1:], geometries[1:], strict=True):
            problems += geometry_problem(path, geometry, paths[0], reference.geometry, shape)
    problems += [geometry.place_problem for geometry in geometries if geometry.place_problem]
    if wanted is None:
        problems += [geometry.spacing_problem for geometry in geometries if geometry.spacing_problem]
    elif len(wanted) != len(shape):
        rule = f"to have {len(shape)} values, one per axis of {write_shape(shape)}"
        problems.append(expected(show(paths[0]), "metrics.spacing", rule, f"{len(wanted)}: {tuple(wanted)}"))
    if problems:
        raise DataError(problems)
    stated = next((geometry for geometry in geometries if geometry.spacing is not None), reference.geometry)
    warnings = _warnings(maps)
    if wanted is not None:
        unusable = any(geometry.spacing_problem for geometry in geometries)
        overridden = unusable or (stated.spacing is not None and not agree(stated.spacing, wanted))
        spacing = tuple(map(float, wanted))
        return CaseSpacing(spacing=spacing, unit="", source="config", overridden=overridden, warnings=warnings)
    unit = PIXELS if stated.spacing is None else stated.unit or ""
    return CaseSpacing(spacing=stated.spacing, unit=unit, source=stated.source or "none", warnings=warnings)


def _warnings(maps: Sequence[StoredMap]) -> tuple[str, ...]:
    """Describe doubts that the files leave: which of two geometries counts, and the axes' order if a side has none."""
    lines = [stored.geometry.note for stored in maps if stored.geometry.note]
    known = [stored.geometry.known for stored in maps]
    order_matters = maps[0].values.ndim == 3 or any(stored.geometry.affine is not None for stored in maps)
    if any(known) and not all(known) and order_matters:
        lines.append("only some files say where they lie; the axes of the others are taken as (depth, height, width)")
    return tuple(dict.fromkeys(lines))


class Spacings:
    """Counts where the spacings of a run come from."""

    def __init__(self) -> None:
        self.sources: Counter[str] = Counter()
        self.units: dict[str, str] = {}  # the first case of each unit
        self.overridden: list[str] = []
        self.noted: defaultdict[str, list[str]] = defaultdict(list)  # the cases of each warning

    def add(self, case_id: str, facts: Mapping[str, Any]) -> None:
        """Add a case by the fields of its `CaseSpacing`, which a resumed run reads from JSON."""
        self.sources[facts["source"]] += 1
        self.units.setdefault(facts["unit"], case_id)
        if facts["overridden"]:
            self.overridden.append(case_id)
        for line in facts["warnings"]:
            self.noted[line].append(case_id)

    def problems(self) -> list[str]:
        """Return a line if cases have different units, as their distances can't be averaged."""
        if len(self.units) < 2:
            return []
        units = ", ".join(f"{unit or 'no unit'} (as {case_id})" for unit, case_id in sorted(self.units.items()))
        remedy = "Start a new run with metrics.spacing for all, or score them apart."
        return [expected("score", "spacing", "to have one unit in all cases, as distances are measured", units, remedy)]

    def warnings(self) -> list[str]:
        """Return lines for the user, each with its cases."""
        lines = [f"{line} ({some(cases)})." for line, cases in sorted(self.noted.items())]
        if self.overridden:
            lines.append(f"metrics.spacing replaces another spacing in the files of cases ({some(self.overridden)}).")
        return lines

    def summary(self, *, missing: Sequence[str], extra: int) -> dict[str, Any]:
        """Return the entries of metrics.json about files: cases without a prediction, extra predictions, spacings."""
        return {
            "missing_predictions": {"n": len(missing), "cases": list(missing)},
            "extra_predictions": extra,
            "spacing": {
                "sources": dict(sorted(self.sources.items())),
                "units": sorted(self.units),
                "overridden": len(self.overridden),
                "warnings": self.warnings(),
            },
        }


def write_shape(shape: Iterable[int]) -> str:
    """Write a size for messages."""
    return " x ".join(map(str, shape))


def _size_problems(path: Path, stored: StoredMap, reference_path: Path, reference: StoredMap) -> list[str]:
    shape = stored.values.shape
    wanted = reference.values.shape
    if shape == wanted:
        return []
    axes = "(height x width)" if len(shape) == 2 else "(depth x height x width)"
    rule = f"to have the size of its reference {show(reference_path)}, {write_shape(wanted)}"
    remedy = "Its axes are reversed: save array.T." if shape == wanted[::-1] else "Nothing is resized."
    if stored.geometry.affine is not None and reference.geometry.affine is not None:
        grids = f"{describe(reference.geometry, wanted)}; prediction: {describe(stored.geometry, shape)}"
        remedy = f"Reference: {grids}. {grid_remedy(stored.geometry, reference.geometry)}"
    return [expected(show(path), "mask", rule, f"{write_shape(shape)} {axes}", remedy)]


def onto_grid(
    path: Path, values: NDArray[Any], geometry: Geometry, *, reference: Path, wanted: Geometry, shape: tuple[int, ...]
) -> tuple[NDArray[Any], Geometry] | None:
    """Resample a map if it is on another grid than its reference.

    Parameters
    ----------
    path, reference
        Named in messages.
    values, geometry
        The map and where it lies.
    wanted, shape
        Geometry and size of the reference.

    Returns
    -------
    The map of size `shape` and its new geometry with a note, or None if the grids are equal or either is unknown.

    Raises
    ------
    DataError
        The two grids have no pixel in common.
    """
    if values.shape == shape and not geometry_problem(path, geometry, reference, wanted, shape):
        return None
    if geometry.affine is None or wanted.affine is None:
        return None
    ndim = len(shape)
    if values.ndim != ndim or not share_world(geometry, wanted):
        return None
    from scipy import ndimage  # most runs don't need it, and start sooner

    transform = np.linalg.inv(geometry.affine) @ wanted.affine  # from the reference's indices to ours, in file order
    matrix = transform[:ndim, :ndim][::-1, ::-1]
    offset = transform[:ndim, 3][::-1] + _SAME_PLACE
    # Pixel numbers are resampled instead of values, as SciPy calculates with floats
    numbers = np.arange(1, values.size + 1).reshape(values.shape)
    nearest = ndimage.affine_transform(numbers, matrix, offset, shape, order=0, mode="grid-constant")
    other_slice = ndim == 2 and bool(np.abs(transform[2, :2] * shape[::-1]).max() + abs(transform[2, 3]) >= 0.5)
    if other_slice or not nearest.any():
        grids = f"{describe(wanted, shape)} and {describe(geometry, values.shape)}"
        raise file_error(path, "grid", f"to overlap that of its reference {show(reference)}", grids)
    resampled = np.append(values.dtype.type(0), values.ravel())[nearest]
    return resampled, wanted.having(note="; ".join(filter(None, [wanted.note, NOTE])))
