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
from segmeter.data.files.sniff import file_error, show
from segmeter.data.masks.reading import StoredMap
from segmeter.errors import DataError

PIXELS = "pixels"  # the unit without a spacing
NOTE = "predictions were resampled by nearest neighbour onto their references' grids, beyond their edges as class 0"
_SAME_PLACE = 5e-7  # of a pixel: positions that differ by less are equal, and halves are rounded up


@dataclass(frozen=True, kw_only=True)
class CaseSpacing:
    """The spacing of a case, and where it comes from.

    Parameters
    ----------
    spacing
        Pixel edge per axis, in axis order; None if nothing states it.
    unit
        "mm" and so on; "pixels" without a spacing; "" if a spacing has no unit, as that of the configuration.
    source
        For example "NIfTI header"; "config"; "none".
    overridden
        Whether the configuration's spacing replaces another one of the files.
    warnings
        Lines for the user, in words that cases share.
    """

    spacing: tuple[float, ...] | None = None
    unit: str = PIXELS
    source: str = "none"
    overridden: bool = False
    warnings: tuple[str, ...] = ()


UNKNOWN_SPACING = CaseSpacing()


def find_spacing(paths: Sequence[Path], maps: Sequence[StoredMap], wanted: tuple[float, ...] | None) -> CaseSpacing:
    """Find the spacing of a case, whose files must all fit the first one, its reference.

    Parameters
    ----------
    paths, maps
        The files and their content.
    wanted
        The configuration's spacing, which counts for every case, whatever its files say.

    Raises
    ------
    DataError
        Sizes, spacings or geometries differ, one line each; or a file states two geometries; or it states a spacing
        that can't be used, and the configuration has none.
    """
    reference, shape = maps[0], maps[0].values.shape
    if wanted is None and all(each.geometry is NOWHERE and each.values.shape == shape for each in maps):
        return UNKNOWN_SPACING  # the usual case: pictures of one size
    problems = [line for path, each in zip(paths, maps, strict=True) for line in _size(path, each, paths[0], reference)]
    if not problems:
        for path, each in zip(paths[1:], maps[1:], strict=True):
            problems += geometry_problem(path, each.geometry, paths[0], reference.geometry, shape)
    problems += [each.geometry.place_problem for each in maps if each.geometry.place_problem]
    if wanted is None:
        problems += [each.geometry.spacing_problem for each in maps if each.geometry.spacing_problem]
    elif len(wanted) != len(shape):
        rule = f"to have {len(shape)} values, one per axis of {write_shape(shape)}"
        problems.append(expected(show(paths[0]), "metrics.spacing", rule, f"{len(wanted)}: {tuple(wanted)}"))
    if problems:
        raise DataError(problems)
    found = next((each.geometry for each in maps if each.geometry.spacing is not None), reference.geometry)
    warnings = _warnings(maps)
    if wanted is not None:
        unusable = any(each.geometry.spacing_problem for each in maps)
        other = unusable or (found.spacing is not None and not agree(found.spacing, wanted))
        spacing = tuple(map(float, wanted))
        return CaseSpacing(spacing=spacing, unit="", source="config", overridden=other, warnings=warnings)
    unit, source = PIXELS if found.spacing is None else found.unit or "", found.source or "none"
    return CaseSpacing(spacing=found.spacing, unit=unit, source=source, warnings=warnings)


def _warnings(maps: Sequence[StoredMap]) -> tuple[str, ...]:
    """Describe doubts that the files leave: which of two geometries counts, and the axes' order if a side has none."""
    lines = [each.geometry.note for each in maps if each.geometry.note]
    placed = [each.geometry.known for each in maps]
    ordered = maps[0].values.ndim == 3 or any(each.geometry.affine is not None for each in maps)
    if any(placed) and not all(placed) and ordered:
        lines.append("only some files say where they lie; the axes of the others are taken as (depth, height, width)")
    return tuple(dict.fromkeys(lines))


class Spacings:
    """Counts where the spacings of a run come from."""

    def __init__(self) -> None:
        self.sources: Counter[str] = Counter()
        self.units: dict[str, str] = {}  # unit -> first case that has it
        self.overridden: list[str] = []
        self.noted: defaultdict[str, list[str]] = defaultdict(list)  # warning -> cases

    def add(self, case_id: str, record: Mapping[str, Any]) -> None:
        """Add one case by the fields of its `CaseSpacing`, which a resumed run reads from JSON."""
        self.sources[record["source"]] += 1
        self.units.setdefault(record["unit"], case_id)
        if record["overridden"]:
            self.overridden.append(case_id)
        for line in record["warnings"]:
            self.noted[line].append(case_id)

    def problems(self) -> list[str]:
        """Refuse units that differ between cases, as their distances can't be averaged."""
        if len(self.units) < 2:
            return []
        found = ", ".join(f"{unit or 'no unit'} (as {case_id})" for unit, case_id in sorted(self.units.items()))
        remedy = "Set metrics.spacing for all, or score them apart."
        return [expected("score", "spacing", "to have one unit in all cases, as distances are measured", found, remedy)]

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


def _size(path: Path, each: StoredMap, reference: Path, first: StoredMap) -> list[str]:
    shape, wanted = each.values.shape, first.values.shape
    if shape == wanted:
        return []
    axes = "(height x width)" if len(shape) == 2 else "(depth x height x width)"
    rule = f"to have the size of its reference {show(reference)}, {write_shape(wanted)}"
    remedy = "Its axes are reversed: save array.T." if shape == wanted[::-1] else "Nothing is resized."
    if each.geometry.affine is not None and first.geometry.affine is not None:
        places = f"{describe(first.geometry, wanted)}; prediction: {describe(each.geometry, shape)}"
        remedy = f"Reference: {places}. {grid_remedy(each.geometry, first.geometry)}"
    return [expected(show(path), "mask", rule, f"{write_shape(shape)} {axes}", remedy)]


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
    axes = len(shape)
    if values.ndim != axes or not share_world(geometry, wanted):
        return None
    from scipy import ndimage  # most runs need it for nothing, and start sooner

    step = np.linalg.inv(geometry.affine) @ wanted.affine  # from the reference's indices to ours, in file order
    matrix, offset = step[:axes, :axes][::-1, ::-1], step[:axes, 3][::-1] + _SAME_PLACE
    numbers = np.arange(1, values.size + 1).reshape(values.shape)  # of pixels, as SciPy calculates with floats
    nearest = ndimage.affine_transform(numbers, matrix, offset, shape, order=0, mode="grid-constant")
    beside = axes == 2 and bool(np.abs(step[2, :2] * shape[::-1]).max() + abs(step[2, 3]) >= 0.5)  # another slice
    if beside or not nearest.any():
        both = f"{describe(wanted, shape)} and {describe(geometry, values.shape)}"
        raise file_error(path, "grid", f"to overlap that of its reference {show(reference)}", both)
    found = np.append(values.dtype.type(0), values.ravel())[nearest]
    return found, wanted.having(note="; ".join(filter(None, [wanted.note, NOTE])))
