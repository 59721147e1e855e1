"""The files of one case -> its spacing and where that comes from, or how the files differ in size and place."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.data.formats import show
from segmeter.data.geometry import Geometry, agree, geometry_problem
from segmeter.data.label_maps import StoredMap
from segmeter.data.listing import some
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
    """

    spacing: tuple[float, ...] | None = None
    unit: str = PIXELS
    source: str = "none"
    overridden: bool = False


def find_place(paths: Sequence[Path], maps: Sequence[StoredMap], wanted: tuple[float, ...] | None) -> Place:
    """Say where the maps of a case lie; the first is the reference that the others must fit.

    Parameters
    ----------
    paths, maps
        The files and what they hold.
    wanted
        The configuration's spacing: it counts for every case, whatever its files say.

    Raises
    ------
    DataError
        Sizes, spacings or places differ, one line each; or a header says two things and the configuration nothing.
    """
    reference, shape = maps[0], maps[0].values.shape
    problems = [line for path, each in zip(paths, maps, strict=True) for line in _size(path, each, paths[0], shape)]
    if not problems:
        for path, each in zip(paths[1:], maps[1:], strict=True):
            problems += geometry_problem(path, each.geometry, paths[0], reference.geometry, shape)
    found = next((each.geometry for each in maps if each.geometry.spacing is not None), Geometry())
    if wanted is not None and len(wanted) != len(shape):
        rule = f"to have {len(shape)} values, one per axis of {' x '.join(map(str, shape))}"
        problems.append(expected(show(paths[0]), "metrics.spacing", rule, f"{len(wanted)}: {tuple(wanted)}"))
    elif wanted is None:
        remedy = "Set metrics.spacing to the one that is right."
        conflicts = [(path, each.geometry.conflict) for path, each in zip(paths, maps, strict=True)]
        problems += [expected(show(p), "header", "to say one spacing", text, remedy) for p, text in conflicts if text]
    if problems:
        raise DataError(problems)
    if wanted is not None:
        other = found.spacing is not None and not agree(found.spacing, wanted)
        return Place(spacing=tuple(map(float, wanted)), unit="", source="config", overridden=other)
    if found.spacing is None:
        return Place()
    return Place(spacing=found.spacing, unit=found.unit or "", source=found.source)


class Places:
    """Adds up where the spacings of a run come from."""

    def __init__(self) -> None:
        self.sources: Counter[str] = Counter()
        self.units: dict[str, str] = {}  # unit -> first case that has it
        self.overridden: list[str] = []

    def add(self, case_id: str, place: Place) -> None:
        """Note one case."""
        self.sources[place.source] += 1
        self.units.setdefault(place.unit, case_id)
        if place.overridden:
            self.overridden.append(case_id)

    def problems(self) -> list[str]:
        """What makes distances of the cases incomparable: units that differ."""
        if len(self.units) < 2:
            return []
        found = ", ".join(f"{unit or 'no unit'} (as {case_id})" for unit, case_id in sorted(self.units.items()))
        remedy = "Set metrics.spacing for all, or score them apart."
        return [expected("score", "spacing", "to have one unit in all cases, as distances are measured", found, remedy)]

    def warnings(self) -> list[str]:
        """What a user should know of."""
        if not self.overridden:
            return []
        return [f"metrics.spacing replaces another spacing in the files of cases ({some(self.overridden)})."]

    def summary(self) -> dict[str, Any]:
        """What metrics.json says."""
        return {
            "sources": dict(sorted(self.sources.items())),
            "units": sorted(self.units),
            "overridden": len(self.overridden),
        }


def write_shape(shape: Iterable[int]) -> str:
    """A size as messages show it."""
    return " x ".join(map(str, shape))


def _size(path: Path, each: StoredMap, reference: Path, wanted: tuple[int, ...]) -> list[str]:
    shape = each.values.shape
    if shape == wanted:
        return []
    axes = "(height x width)" if len(shape) == 2 else "(depth x height x width)"
    rule = f"to have the size of its reference {show(reference)}, {write_shape(wanted)}"
    return [expected(show(path), "mask", rule, f"{write_shape(shape)} {axes}", "Nothing is resized.")]
