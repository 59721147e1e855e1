"""The files of one case -> its maps, its row of counts and measures, or what is wrong with its files."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.sniff import show, volume_format
from segmeter.data.masks.grid import onto_grid
from segmeter.data.masks.label_mapping import find_labels, split_codes, split_objects
from segmeter.data.masks.options import Reading
from segmeter.data.masks.outlines import OUTLINES
from segmeter.data.masks.reading import StoredMap, check_labels, read_map
from segmeter.errors import DataError, InputError
from segmeter.evaluation.large.pairs import is_large, open_large
from segmeter.evaluation.memory import Turns, stated_pixels
from segmeter.evaluation.pairing import MaskPair, limit_of, read_case_image
from segmeter.evaluation.places import Place, find_place
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.measures import MeasureConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import bands_of, count_bands, measure_row

Result = TypeVar("Result")

# Bytes that a pixel of a pair takes at the peak, measured on 12,000 x 12,000 uint8 masks, rounded up
_COUNTED = 4
_OBJECTS = dict.fromkeys(("instances", "average_precision", "aji", "sizes"), 18)
_MEASURED = {"surface": 10, "boundary": 16, "cldice": 10, **_OBJECTS}
_OTHERWISE = 40  # distances of objects, and measures of users
_PICTURED = 16  # an image of three channels in float32 beside its own decoding
_NUMBERED = 16  # more, where files hold the numbers of objects: 32 in all were measured for those of int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """A case that was measured; `sha256` is over its files."""

    row: CaseRow
    place: Place
    sha256: str


@dataclass(frozen=True, kw_only=True, eq=False)
class _Loaded:
    """The files of a pair (without a prediction, labels of 0); `sha256` is over the hashes of all files.

    `bands` gives target and labels some lines at a time, and all at once where `maps` has them in memory.
    """

    shape: tuple[int, ...]
    bands: Iterable[tuple[NDArray[Any], NDArray[Any]]]
    maps: CaseMaps | None
    place: Place
    stored: list[StoredMap]
    sha256: str
    resampled: bool = False

    @property
    def whole(self) -> CaseMaps:
        """The maps of a pair that was read whole."""
        assert self.maps is not None
        return self.maps


class CaseScorer:
    """Measures one pair at a time; picklable, so that processes can share the work.

    Parameters
    ----------
    reading
        How its files are read.
    metrics
        Its group of the configuration.
    flag_missing
        Whether rows say which cases had no prediction.
    processes
        How many processes measure side by side, and share the memory.
    """

    def __init__(
        self,
        reading: Reading,
        metrics: MetricsConfig,
        *,
        flag_missing: bool = False,
        processes: int = 1,
    ) -> None:
        self.reading = reading
        self.metrics = metrics
        self.flag_missing = flag_missing
        self.processes = processes
        self._multilabel = reading.spec.is_multilabel
        self._references, self._predictions = (
            replace(
                reading,
                instances=reading.instances in (True, side),
                keeps_invalid=side == "predictions" and reading.spec.count_invalid,
            )
            for side in ("references", "predictions")
        )
        self._measures: tuple[Measure, ...] = build_measures(metrics, reading.spec)

    def __call__(self, pair: MaskPair) -> Scored | tuple[str, ...]:
        """Score a pair; what is wrong with its files is given back, so that all of it is said at once."""
        remedy = "Free memory, cut the pair into tiles, or measure less (metrics.measures)."
        large, needed = self._in_time(pair, self._look)
        try:
            with _turns(self.processes).take(needed, what=f"case {pair.case_id!r}", remedy=remedy):
                return self._score(pair, large=large)
        except InputError as error:
            return error.problems
        except MemoryError:
            return (f"case {pair.case_id!r}: out of memory. {remedy}",)

    def _in_time(self, pair: MaskPair, read: Callable[[MaskPair], Result]) -> Result:
        return limit_of(pair, self.reading.timeout_s)(lambda: read(pair))

    def read(self, pair: MaskPair) -> CaseMaps:
        """Read target and labels of a case, every value checked.

        Raises
        ------
        DataError
            With every problem of its files; each line names one.
        """
        loaded = self._in_time(pair, self._load)
        problems = self._label_problems(pair, loaded)
        if problems:
            raise DataError(problems)
        return loaded.whole

    def _look(self, pair: MaskPair) -> tuple[bool, int]:
        """Whether a pair is read by lines, and the memory it takes otherwise, from the header of its first file."""
        if any(is_large(path, self.reading) for path in (*pair.references, *pair.predictions)):
            return True, 0
        per_pixel = max([_COUNTED, *map(_bytes_per_pixel, self.metrics.measures)])
        width = self.reading.spec.label_dtype.itemsize
        pixels = stated_pixels(pair.references[0], self.reading.max_pixels)
        numbers = _NUMBERED if self.reading.instances else 0
        image = _PICTURED if pair.image else 0
        return False, pixels * (len(pair.references) * (per_pixel * width + numbers) + image)

    def _score(self, pair: MaskPair, *, large: bool) -> Scored:
        with ExitStack() as files:
            loaded = self._open(pair, files) if large else self._in_time(pair, self._load)
            row = self._count(pair, loaded)
        if loaded.maps is not None:
            row = measure_row(row, loaded.maps, self._measures)
        if self.reading.resample != "refuse":
            row = replace(row, extra={**row.extra, "resampled": float(loaded.resampled)})
        if self.flag_missing:
            row = replace(row, extra={**row.extra, "missing": float(not pair.predictions)})
        if loaded.place.spacing:
            row = replace(row, spacing=loaded.place.spacing, unit=loaded.place.unit)
        return Scored(row=row, place=loaded.place, sha256=loaded.sha256)

    def _count(self, pair: MaskPair, loaded: _Loaded) -> CaseRow:
        """Count first: the counts themselves show whether a value is no label, without a pass over the pixels."""

        def explain(target: NDArray[Any], labels: NDArray[Any], *, hidden: bool) -> list[str]:
            problems = self._label_problems(pair, loaded)
            return problems if hidden or problems else [self._undecided(pair, target, labels)]

        return count_bands(pair.case_id, loaded.shape, loaded.bands, self.reading.spec, explain)

    def _open(self, pair: MaskPair, files: ExitStack) -> _Loaded:
        """Open a pair of which a file is too large to be decoded at once."""
        stored, target, labels = open_large(pair, self.reading, self.metrics, files)
        paths = (*pair.references, *pair.predictions)
        place = find_place(paths, stored, self.metrics.spacing, references=len(pair.references))
        return _Loaded(
            shape=target.shape[-2:],
            bands=bands_of(target, labels),
            maps=None,
            place=place,
            stored=stored,
            sha256=_hash_together(*(each.sha256 for each in stored)),
        )

    def _load(self, pair: MaskPair) -> _Loaded:
        """Read all files of a pair; their values are not yet known to be labels."""
        paths, count = (*pair.references, *pair.predictions), len(pair.references)
        as_stored = self._read(paths, count)
        stored = self._on_one_grid(paths, as_stored, count)
        place = find_place(paths, stored, self.metrics.spacing, references=count)
        target = self._planes(stored[:count])
        digests = [each.sha256 for each in stored]
        first = second = None
        if self._references.instances:
            target, first = self._split(paths[0], target)
        labels = self._planes(stored[count:]) if pair.predictions else np.zeros_like(target)
        if self._predictions.instances:  # what stands in for a missing prediction holds labels, and no objects
            labels, second = self._split(paths[-1], labels) if pair.predictions else (labels, np.zeros_like(labels))
        if first is not None and second is not None and pair.predictions:
            doubts = find_labels(paths[0], first, second, "references"), find_labels(paths[-1], second, first)
            place = replace(place, warnings=(*place.warnings, *filter(None, doubts)))
        maps = CaseMaps(
            case_id=pair.case_id,
            target=target,
            labels=labels,
            spacing=place.spacing or (1.0,) * stored[0].values.ndim,
            spec=self.reading.spec,
            target_instances=first,
            instances=second,
        )
        if pair.image:
            image, digest = read_case_image(pair.image, maps.shape, max_pixels=self.reading.max_pixels)
            maps, digests = replace(maps, image=image), [*digests, digest]
        resampled = any(one is not other for one, other in zip(stored, as_stored, strict=True))
        return _Loaded(
            shape=maps.shape,
            bands=[(target, labels)],
            maps=maps,
            place=place,
            stored=stored,
            sha256=_hash_together(*digests),
            resampled=resampled,
        )

    def _split(self, path: Path, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels and objects of a map that holds numbers of objects."""
        spec, divisor = self.reading.spec, self.reading.divisor
        if divisor is None:
            return split_objects(path, numbers, spec)
        return split_codes(path, numbers, spec=spec, label_map=self.reading.label_map, divisor=divisor)

    def _read(self, paths: Sequence[Path], count: int) -> list[StoredMap]:
        """Read references, then predictions; drawn objects last, as their files do not say the size of the map."""
        problems, stored = list[str](), dict[int, StoredMap]()
        shape: tuple[int, ...] | None = None
        for number in sorted(range(len(paths)), key=lambda each: volume_format(paths[each]) in OUTLINES):
            path = paths[number]
            try:
                reading = self._references if number < count else self._predictions
                stored[number] = read_map(path, reading, shape=shape)
                shape = shape or stored[number].values.shape
            except DataError as error:
                problems += error.problems
            except OSError as error:
                problems.append(expected(show(path), "file", "to be readable", error.strerror or error))
        if problems:
            raise DataError(list(dict.fromkeys(problems)))
        return [stored[number] for number in range(len(paths))]

    def _on_one_grid(self, paths: Sequence[Path], stored: list[StoredMap], count: int) -> list[StoredMap]:
        """Bring predictions onto the grid of the first reference, where that is asked for."""
        if self.reading.resample == "refuse":
            return stored
        first, found = stored[0], stored[:count]
        for path, each in zip(paths[count:], stored[count:], strict=True):
            moved = onto_grid(
                path,
                each.values,
                each.geometry,
                reference=paths[0],
                wanted=first.geometry,
                shape=first.values.shape,
            )
            found.append(each if moved is None else replace(each, values=moved[0], geometry=moved[1]))
        return found

    def _planes(self, stored: Sequence[StoredMap]) -> np.ndarray:
        return np.stack([each.values for each in stored]) if self._multilabel else stored[0].values

    def _label_problems(self, pair: MaskPair, loaded: _Loaded) -> list[str]:
        """One line for each file with a value that is no label."""
        problems: list[str] = []
        if self.reading.label_map or loaded.maps is None:  # checked, and mapped, on reading
            return problems
        paths = (*pair.references, *pair.predictions)
        for number, (path, each) in enumerate(zip(paths, loaded.stored, strict=True)):
            side = self._references if number < len(pair.references) else self._predictions
            if side.instances or side.keeps_invalid:  # numbers of objects, checked on reading; or all counted
                continue
            try:
                check_labels(path, each.values, self.reading)
            except DataError as error:
                problems += error.problems
        return problems

    def _undecided(self, pair: MaskPair, target: NDArray[Any], labels: NDArray[Any]) -> str:
        """Every value is a valid label, so the prediction must contain the ignored value where the target does not."""
        ignored = self.reading.spec.ignore_index
        pixels = int(((labels == ignored) & (target != ignored)).sum())
        rule = "to hold a class wherever its reference does"
        remedy = "A tool that leaves pixels undecided has to decide on them, or be scored on a class of its own."
        several = len(pair.predictions) > 1
        paths = pair.predictions or pair.references  # without predictions, it is the reference
        where = show(paths[0].parents[1] / pair.stem if several else paths[0])
        return expected(where, "prediction", rule, f"{pixels} pixels of the ignored value {ignored}", remedy)


def _hash_together(*digests: str) -> str:
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def _bytes_per_pixel(measure: MeasureConfig) -> int:
    """Memory that a measure takes."""
    return _OTHERWISE if getattr(measure, "distances", False) else _MEASURED.get(measure.name, _OTHERWISE)


@cache
def _turns(processes: int) -> Turns:
    """The turns that all threads of this process take."""
    return Turns(processes)
