"""The files of one case -> its spacing and where that comes from, or how the files differ in size and place."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.checks import expected, some
from segmeter.data.files.geometry import NOWHERE, agree, describe, geometry_problem, grid_remedy
from segmeter.data.files.sniff import show
from segmeter.data.masks.reading import StoredMap
from segmeter.errors import DataError

PIXELS = "pixels"  # the unit of what has no spacing


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a case's spacing comes from.

    Parameters
    ----------
    spacing
        Pixel edge per axis, in axis order; None where nothing says it.
    unit
        "mm" and so on; "pixels" without a spacing; "" where a spacing has no unit, as the configuration's.
    source
        For example "NIfTI header"; "config"; "none".
    overridden
        Whether the configuration's spacing replaces another one that the files have.
    warnings
        What a user should know of the place, in words that cases share.
    """

    spacing: tuple[float, ...] | None = None
    unit: str = PIXELS
    source: str = "none"
    overridden: bool = False
    warnings: tuple[str, ...] = ()


UNPLACED = Place()  # of pictures that say nothing about it


def find_place(
    paths: Sequence[Path], maps: Sequence[StoredMap], wanted: tuple[float, ...] | None, *, references: int = 1
) -> Place:
    """Say where the maps of a case lie; the first is the reference that the others must fit.

    Parameters
    ----------
    paths, maps
        The files and what they hold.
    wanted
        The configuration's spacing: it counts for every case, whatever its files say.
    references
        How many of the maps are references; a prediction for each of these follows, or none.

    Raises
    ------
    DataError
        Sizes, spacings or places differ, one line each; or a file states two places; or it states a spacing that can't
        be used, and the configuration has none.
    """
    reference, shape = maps[0], maps[0].values.shape
    if wanted is None and all(each.geometry is NOWHERE and each.values.shape == shape for each in maps):
        return UNPLACED  # pictures of one size, the rule
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
    warnings = _warnings(maps, references)
    if wanted is not None:
        unusable = any(each.geometry.spacing_problem for each in maps)
        other = unusable or (found.spacing is not None and not agree(found.spacing, wanted))
        spacing = tuple(map(float, wanted))
        return Place(spacing=spacing, unit="", source="config", overridden=other, warnings=warnings)
    if found.spacing is None:
        return Place(source=found.source or "none", warnings=warnings)
    return Place(spacing=found.spacing, unit=found.unit or "", source=found.source, warnings=warnings)


def _warnings(maps: Sequence[StoredMap], references: int) -> tuple[str, ...]:
    """What the files leave open: which of two places counts, and the order of axes where one side names no place."""
    lines = [each.geometry.note for each in maps if each.geometry.note]
    placed = [each.geometry.known for each in maps]
    ordered = maps[0].values.ndim == 3 or any(each.geometry.affine is not None for each in maps)
    if any(placed) and not all(placed) and ordered:
        lines.append("only some files say where they lie; the axes of the others are taken as (depth, height, width)")
        pairs = zip(maps[:references], maps[references:], strict=False)
        if any(_fits_reversed(target.values, each.values) for target, each in pairs):
            lines.append("predictions agree better with their axes reversed: save array.T if they are (i, j, k)")
    return tuple(dict.fromkeys(lines))


def _fits_reversed(target: np.ndarray, labels: np.ndarray) -> bool:
    """Whether more pixels agree with the axes reversed, where the size allows that."""
    if target.shape != target.shape[::-1]:
        return False
    return int(np.count_nonzero(target == labels.T)) > int(np.count_nonzero(target == labels))


class Places:
    """Adds up where the spacings of a run come from."""

    def __init__(self) -> None:
        self.sources: Counter[str] = Counter()
        self.units: dict[str, str] = {}  # unit -> first case that has it
        self.overridden: list[str] = []
        self.noted: defaultdict[str, list[str]] = defaultdict(list)  # warning -> cases

    def add(self, case_id: str, place: Place) -> None:
        """Note one case."""
        self.sources[place.source] += 1
        self.units.setdefault(place.unit, case_id)
        if place.overridden:
            self.overridden.append(case_id)
        for line in place.warnings:
            self.noted[line].append(case_id)

    def problems(self) -> list[str]:
        """What makes distances of the cases incomparable: units that differ."""
        if len(self.units) < 2:
            return []
        found = ", ".join(f"{unit or 'no unit'} (as {case_id})" for unit, case_id in sorted(self.units.items()))
        remedy = "Set metrics.spacing for all, or score them apart."
        return [expected("score", "spacing", "to have one unit in all cases, as distances are measured", found, remedy)]

    def warnings(self) -> list[str]:
        """What a user should know of, each with the cases that it is true of."""
        lines = [f"{line} ({some(cases)})." for line, cases in sorted(self.noted.items())]
        if self.overridden:
            lines.append(f"metrics.spacing replaces another spacing in the files of cases ({some(self.overridden)}).")
        return lines

    def summary(self) -> dict[str, Any]:
        """What metrics.json says."""
        return {
            "sources": dict(sorted(self.sources.items())),
            "units": sorted(self.units),
            "overridden": len(self.overridden),
            "warnings": self.warnings(),
        }


def write_shape(shape: Iterable[int]) -> str:
    """A size as messages show it."""
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
