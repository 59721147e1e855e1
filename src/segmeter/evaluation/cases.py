"""Reads the files of one pair onto one grid, whole or in bands of lines, and measures it: its row, or its problems."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files import array
from segmeter.data.files.array import ArrayRows, LazyArray, stack_planes
from segmeter.data.files.geometry import onto_grid
from segmeter.data.files.opened import open_array, read_header
from segmeter.data.files.png import read_layout
from segmeter.data.files.sniff import show, unchanged, volume_format
from segmeter.data.in_time import TimeLimit
from segmeter.data.masks.label_mapping import find_labels, split_codes, split_objects
from segmeter.data.masks.options import Reading
from segmeter.data.masks.outlines import OUTLINES
from segmeter.data.masks.reading import StoredMap, check_labels, hash_map, open_map, read_map
from segmeter.errors import DataError, InputError
from segmeter.evaluation.manifest import Entry, Outcome
from segmeter.evaluation.memory import Room
from segmeter.evaluation.pairing import MaskPair, hash_together, limit_of, read_case_image
from segmeter.evaluation.spacings import CaseSpacing, find_spacing
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import BandedMaps, make_row

# Peak bytes per pixel of a pair, measured on 12,000 x 12,000 uint8 masks and rounded up
_COUNTED = 4
_OBJECTS = dict.fromkeys(("instances", "average_precision", "aji", "sizes"), 18)
_MEASURED = {"surface": 10, "boundary": 16, "cldice": 10, **_OBJECTS}
_OTHERWISE = 40  # distances of objects, and measures of users
_IMAGE = 16  # more for an image of three channels in float32 beside its own decoding
_NUMBERED = 16  # more if files hold object numbers: 32 in all were measured for int64
_LOOK_BYTES = 1 << 14  # smaller files are read without a look at their header
_IN_BANDS = (".tif", ".tiff", ".zarr")


@dataclass(frozen=True, kw_only=True, eq=False)
class PairMaps:
    """The maps of a pair, with what its files say.

    Parameters
    ----------
    maps
        Whole, or in bands of lines. A missing prediction is 0 everywhere.
    spacing
        Of the case, and where it comes from.
    sha256
        Hash over the hashes of all files.
    stored
        Each file and its map if its values were not checked on reading: they are counted first, as the counts
        themselves show whether all values are labels.
    resampled
        Whether a prediction was brought onto the grid of its reference.
    """

    maps: CaseMaps | BandedMaps
    spacing: CaseSpacing
    sha256: str
    stored: Sequence[tuple[Path, StoredMap]] = ()
    resampled: bool = False


class PairReader:
    """Reads pairs.

    Parameters
    ----------
    reading
        How each file is read.
    spacing
        The configuration's spacing, or None.
    """

    def __init__(self, reading: Reading, spacing: tuple[float, ...] | None) -> None:
        self.reading, self.spacing = reading, spacing
        self._sides = {
            side: replace(
                reading,
                instances=reading.instances in (True, side),
                keeps_invalid=side == "predictions" and reading.spec.count_invalid,
            )
            for side in ("references", "predictions")
        }

    def look(self, pair: MaskPair) -> tuple[bool, int]:
        """Whether a file of the pair is too large to be read whole, and the pixels of a map otherwise.

        The pixels are those of the first file whose header states them: drawn outlines have none, and tiny files don't
        matter. If a header can't be read, reading the file will say why.
        """
        paths = (*pair.references, *pair.predictions)
        try:
            if any(self._is_large(path) for path in paths):
                return True, 0
            return False, next(filter(None, map(self._stated_pixels, paths)), 0)
        except (DataError, OSError):
            return False, 0

    def _stated_pixels(self, path: Path) -> int:
        """Pixels by the header; the size of the file stands in for those of a volume, which is rarely packed."""
        size = path.stat().st_size
        if size < _LOOK_BYTES or path.is_dir() or volume_format(path) in OUTLINES:
            return 0
        with path.open("rb") as file:
            layout = read_layout(file.read(33))
        if layout is None and volume_format(path):
            return size
        header = layout or read_header(path, max_pixels=self.reading.max_pixels)
        return header.height * header.width

    def load(self, pair: MaskPair) -> PairMaps:
        """Read all files of a pair, whole. Values that `stored` lists are not yet known to be labels."""
        references, predictions = pair.references, pair.predictions
        paths, count = (*references, *predictions), len(references)
        as_stored = self._read(paths, count)
        maps = self._on_one_grid(paths, as_stored, count)
        spacing = find_spacing(paths, maps, self.spacing, references=count)
        target, first = self._labels(references, maps[:count], "references")
        if predictions:
            labels, second = self._labels(predictions, maps[count:], "predictions")
        else:
            labels = np.zeros_like(target)
            second = np.zeros_like(target) if self._sides["predictions"].instances else None
        if first is not None and second is not None and predictions:
            doubts = find_labels(paths[0], first, second, "references"), find_labels(paths[-1], second, first)
            spacing = replace(spacing, warnings=(*spacing.warnings, *filter(None, doubts)))
        whole = CaseMaps(
            case_id=pair.case_id,
            target=target,
            labels=labels,
            spacing=spacing.spacing or (1.0,) * maps[0].values.ndim,
            spec=self.reading.spec,
            target_instances=first,
            instances=second,
        )
        digests = [each.sha256 for each in maps]
        if pair.image:
            image, digest = read_case_image(pair.image, whole.shape, max_pixels=self.reading.max_pixels)
            whole, digests = replace(whole, image=image), [*digests, digest]
        return PairMaps(
            maps=whole,
            spacing=spacing,
            stored=list(zip(paths, maps, strict=True)),
            sha256=hash_together(digests),
            resampled=any(one is not other for one, other in zip(maps, as_stored, strict=True)),
        )

    def load_readers(self, case_id: str, readers: Sequence[tuple[Path, ...]]) -> tuple[list[CaseMaps], CaseSpacing]:
        """Read the maps that several readers made of one case, whole and on one grid, with every value checked.

        Returns
        -------
        The maps of each reader, as `target` and `labels` alike, and the spacing of the case.
        """
        paths = [path for files in readers for path in files]
        stored = self._read(paths, len(paths))
        spacing = find_spacing(paths, stored, self.spacing, references=len(paths))
        problems = self.problems(
            MaskPair(case_id=case_id, stem=case_id, references=(*paths,), predictions=()),
            [*zip(paths, stored, strict=True)],
        )
        if problems:
            raise DataError(problems)
        edges, found = spacing.spacing or (1.0,) * stored[0].values.ndim, []
        for start, files in zip(range(0, len(paths), len(readers[0])), readers, strict=True):
            labels, numbers = self._labels(files, stored[start : start + len(files)], "references")
            given: dict[str, Any] = {"target_instances": numbers, "instances": numbers, "spec": self.reading.spec}
            found.append(CaseMaps(case_id=case_id, target=labels, labels=labels, spacing=edges, **given))
        return found, spacing

    def problems(self, pair: MaskPair, stored: Sequence[tuple[Path, StoredMap]]) -> list[str]:
        """One line for each file with a value that is not a label."""
        problems: list[str] = []
        if self.reading.label_map:  # values were checked, and mapped, on reading
            return problems
        for number, (path, each) in enumerate(stored):
            side = self._sides["references" if number < len(pair.references) else "predictions"]
            if side.instances or side.keeps_invalid:  # object numbers, checked on reading; or all are counted
                continue
            try:
                check_labels(path, each.values, self.reading)
            except DataError as error:
                problems += error.problems
        return problems

    def open(self, pair: MaskPair, files: ExitStack) -> PairMaps:
        """Open a pair of large files, to be read in bands of lines for as long as `files` is open.

        Raises
        ------
        DataError
            The files don't go together, or can't be read; reading a band raises it for values that are not labels.
        """
        paths, count = (*pair.references, *pair.predictions), len(pair.references)
        in_time = limit_of(pair, self.reading.timeout_s)
        opened = [in_time(partial(files.enter_context, self._open_file(path, in_time))) for path in paths]
        spacing = find_spacing(paths, [stored for _, stored in opened], self.spacing, references=count)
        planes = [in_time.lines(lines) for lines, _ in opened]
        target = self._in_one(planes[:count])
        if pair.predictions:
            labels = self._in_one(planes[count:])
        else:
            nothing = np.broadcast_to(np.zeros((), self.reading.spec.label_dtype), target.shape)
            labels = ArrayRows(nothing, axis=len(target.shape) - 2)
        maps = BandedMaps(case_id=pair.case_id, target=target, labels=labels, spec=self.reading.spec)
        return PairMaps(maps=maps, spacing=spacing, sha256=hash_together([stored.sha256 for _, stored in opened]))

    def _is_large(self, path: Path) -> bool:
        """Whether a file holds one plane of more pixels than are decoded at once, in a format that is read in bands."""
        reading = self.reading
        if path.suffix.lower() not in _IN_BANDS or reading.key is not None or reading.has_colours:
            return False
        try:
            found = read_header(path, **reading.options(path), streams=True)
        except DataError:  # a stack, a volume, or damaged
            return False
        return found.channels == 1 and not found.lead and found.height * found.width > array.STREAMED_PIXELS

    @contextmanager
    def _open_file(self, path: Path, in_time: TimeLimit) -> Iterator[tuple[LazyArray, StoredMap]]:
        """The labels of a file, and what is known of it; of a large file, the size stands in for its values."""
        if not self._is_large(path):
            found = read_map(path, self.reading)
            checked = self.reading.label_map
            yield ArrayRows(found.values if checked else check_labels(path, found.values, self.reading)), found
            return
        with unchanged([path], in_time), open_map(path, self.reading) as lines:
            with open_array(path, **self.reading.options(path), streams=True) as again:
                geometry, sha256 = again.geometry, hash_map(path)
            size = np.broadcast_to(np.zeros((), np.uint8), lines.shape)  # takes one byte
            yield lines, StoredMap(values=size, geometry=geometry, sha256=sha256)

    def _in_one(self, planes: list[LazyArray]) -> LazyArray:
        return stack_planes(planes) if self.reading.spec.is_multilabel else planes[0]

    def _read(self, paths: Sequence[Path], count: int) -> list[StoredMap]:
        """Read references, then predictions; drawn objects last, because they take the size of the other maps."""
        problems, stored = list[str](), dict[int, StoredMap]()
        shape: tuple[int, ...] | None = None
        for number in sorted(range(len(paths)), key=lambda each: volume_format(paths[each]) in OUTLINES):
            path = paths[number]
            try:
                side = self._sides["references" if number < count else "predictions"]
                stored[number] = read_map(path, side, shape=shape)
                shape = shape or stored[number].values.shape
            except DataError as error:
                problems += error.problems
            except OSError as error:
                problems.append(expected(show(path), "file", "to be readable", error.strerror or error))
        if problems:
            raise DataError(list(dict.fromkeys(problems)))
        return [stored[number] for number in range(len(paths))]

    def _on_one_grid(self, paths: Sequence[Path], stored: list[StoredMap], count: int) -> list[StoredMap]:
        """Bring predictions onto the grid of the first reference, if ``data.resample`` asks for it."""
        if self.reading.resample == "refuse":
            return stored
        first, found = stored[0], stored[:count]
        for path, each in zip(paths[count:], stored[count:], strict=True):
            grid: dict[str, Any] = {"reference": paths[0], "wanted": first.geometry, "shape": first.values.shape}
            moved = onto_grid(path, each.values, each.geometry, **grid)
            found.append(each if moved is None else replace(each, values=moved[0], geometry=moved[1]))
        return found

    def _labels(
        self, paths: Sequence[Path], stored: Sequence[StoredMap], side: str
    ) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
        """Labels of one side, and the numbers of their objects if its files hold those."""
        reading = self._sides[side]
        values = np.stack([each.values for each in stored]) if reading.spec.is_multilabel else stored[0].values
        path = paths[0] if side == "references" else paths[-1]
        if not reading.instances:
            return values, None
        if reading.divisor is None:
            return split_objects(path, values, reading.spec)
        return split_codes(path, values, spec=reading.spec, label_map=reading.label_map, divisor=reading.divisor)


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
        self, reading: Reading, metrics: MetricsConfig, *, flag_missing: bool = False, processes: int = 1
    ) -> None:
        self.reading, self.metrics = reading, metrics
        self.flag_missing, self.processes = flag_missing, processes
        self._reader = PairReader(reading, metrics.spacing)
        self._measures = build_measures(metrics, reading.spec)
        most = _COUNTED
        for measure in metrics.measures:
            far = getattr(measure, "distances", False)  # those of objects
            most = max(most, _OTHERWISE if far else _MEASURED.get(measure.name, _OTHERWISE))
        numbers = _NUMBERED if reading.instances else 0
        self._bytes_per_pixel = most * reading.spec.label_dtype.itemsize + numbers  # at the peak

    def __call__(self, pair: MaskPair) -> Outcome:
        """Measure a pair. Problems of its files are returned, so that those of all pairs can be reported together."""
        in_time = limit_of(pair, self.reading.timeout_s)
        is_large, pixels = in_time(partial(self._reader.look, pair))
        remedy = "Free memory, cut the pair into tiles, or measure less (metrics.measures)."
        try:
            needed = pixels * (len(pair.references) * self._bytes_per_pixel + (_IMAGE if pair.image else 0))
            room = _room(self.processes).hold(needed, what=f"case {pair.case_id!r}", remedy=remedy)
            with room, ExitStack() as files:
                if is_large:
                    self._refuse_whole_maps(pair)
                    found = self._reader.open(pair, files)
                else:
                    found = in_time(partial(self._reader.load, pair))
                return self._measure(pair, found)
        except InputError as error:
            return error.problems
        except MemoryError:
            return (f"case {pair.case_id!r}: out of memory. {remedy}",)

    def read(self, pair: MaskPair) -> CaseMaps:
        """Read target and labels of a case, whole, with every value checked.

        Raises
        ------
        DataError
            With every problem of its files; each line names one.
        """
        found = limit_of(pair, self.reading.timeout_s)(partial(self._reader.load, pair))
        problems = self._reader.problems(pair, found.stored)
        if problems or not isinstance(found.maps, CaseMaps):
            raise DataError(problems)
        return found.maps

    def _measure(self, pair: MaskPair, found: PairMaps) -> Entry:
        def explain(target: NDArray[Any], labels: NDArray[Any], *, hidden: bool) -> list[str]:
            problems = self._reader.problems(pair, found.stored)
            return problems if hidden or problems else [self._undecided(pair, target, labels)]

        row, spacing = make_row(found.maps, self._measures, explain), found.spacing
        extra = dict(row.extra)
        if self.reading.resample != "refuse":
            extra["resampled"] = float(found.resampled)
        if self.flag_missing:
            extra["missing"] = float(not pair.predictions)
        known: dict[str, Any] = {"spacing": spacing.spacing, "unit": spacing.unit} if spacing.spacing else {}
        row = replace(row, extra=extra, **known)
        return Entry(case_id=pair.case_id, row=row, sha256=found.sha256, record=vars(spacing))

    def _refuse_whole_maps(self, pair: MaskPair) -> None:
        """Refuse, for a pair that is read in bands, everything that needs a whole map."""
        needs = [f"metrics.measures: {measure.name}" for measure in self.metrics.measures]
        needs += ["data.instances"] if self.reading.instances else []
        needs += ["metrics.calibration"] if self.metrics.calibration else []
        needs += ["data.invalid"] if self.reading.spec.count_invalid else []
        if needs:
            rule = "to be small enough for memory, as a larger one is read in bands and can only be counted"
            remedy = f"Leave out {', '.join(needs)}, or cut it into tiles."
            raise DataError(expected(show(pair.references[0]), "map", rule, "a larger one", remedy))

    def _undecided(self, pair: MaskPair, target: NDArray[Any], labels: NDArray[Any]) -> str:
        """Every value is a valid label, so the prediction must contain the ignore value where the target does not."""
        spec = self.reading.spec
        pixels = int((spec.is_ignored(labels) & spec.valid(target)).sum())
        rule = "to hold a class wherever its reference does"
        remedy = "A tool that leaves pixels undecided has to decide on them, or be scored on a class of its own."
        paths = pair.predictions or pair.references  # without predictions, it is the reference
        where = show(paths[0].parents[1] / pair.stem if len(pair.predictions) > 1 else paths[0])
        return expected(where, "prediction", rule, f"{pixels} pixels of the ignored value {spec.values[-1]}", remedy)


@cache
def _room(processes: int) -> Room:
    """The memory that all threads of this process share."""
    return Room(processes=processes)
