"""Reads the files of one pair onto one grid, whole or in bands of lines, and names values that are not labels."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files import array
from segmeter.data.files.array import ArrayRows, LazyArray, Opening, check_pixel_count, stack_planes
from segmeter.data.files.formats import volume_format
from segmeter.data.files.medical import count_itk_pixels
from segmeter.data.files.opened import TimeLimit, open_array, read_header
from segmeter.data.files.pictures import read_layout
from segmeter.data.files.refusals import show, unchanged
from segmeter.data.masks.drawn import OUTLINES
from segmeter.data.masks.label_mapping import doubt_object_numbers, split_codes, split_objects
from segmeter.data.masks.reading import StoredMap, label_lines, labels_of, read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.mask_pairs import MaskPair, hash_together, limit_of, read_case_image
from segmeter.evaluation.spacings import CaseSpacing, find_spacing, onto_grid
from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.measures.row import BandedMaps

_LEAST_MEASURED = 1 << 14  # Smaller files, in bytes, are read without opening their header first
_IN_BANDS = (".tif", ".tiff", ".zarr")


@dataclass(frozen=True, kw_only=True, eq=False)
class PairMaps:
    """The maps of a pair, with spacing and hash of its files.

    Parameters
    ----------
    maps
        Whole, or in bands of lines. A missing prediction is 0 everywhere.
    spacing
        The spacing of the case, and where it comes from.
    sha256
        Hash over the hashes of all files.
    problems
        Checks whole maps, and names the files with values that are not labels. It is called only if the counts show
        such values. Bands are checked when they are read.
    resampled
        Whether a prediction was brought onto the grid of its reference.
    """

    maps: CaseMaps | BandedMaps
    spacing: CaseSpacing
    sha256: str
    problems: Callable[[], list[str]] = list
    resampled: bool = False


class PairLoader:
    """Reads the files of pairs.

    Parameters
    ----------
    reading
        How each file is read.
    spacing
        The configuration's spacing, or None.
    """

    def __init__(self, reading: Reading, spacing: tuple[float, ...] | None) -> None:
        self.reading = reading
        self.spacing = spacing
        self._sides = {
            side: replace(
                reading,
                instances=reading.instances in (True, side),
                keeps_invalid=side == "predictions" and reading.spec.count_invalid,
            )
            for side in ("references", "predictions")
        }

    def find_size(self, pair: MaskPair) -> tuple[int, bool]:
        """Find the pixels of a map of this pair from the headers of its files, and whether a file is read in bands.

        The first file whose header states its pixels decides: drawn outlines have none, and tiny files don't matter.
        The size is 0 if no header states it. If a header can't be read, reading the file will say why.
        """
        sizes = [self._size_of_file(path) for path in (*pair.references, *pair.predictions)]
        return next((pixels for pixels, _ in sizes if pixels), 0), any(is_large for _, is_large in sizes)

    def _size_of_file(self, path: Path) -> tuple[int, bool]:
        """Find the pixels of a file by its header, 0 if it states none, and whether the file is read in bands.

        Large files of some formats are read in bands, if they hold a single plane.
        """
        reading = self.reading
        form = volume_format(path)
        may_be_large = path.name.lower().endswith(_IN_BANDS) and reading.key is None and not reading.has_colours
        try:
            if not may_be_large and form != "zarr":
                file_bytes = path.stat().st_size
                if file_bytes < _LEAST_MEASURED or form in OUTLINES:
                    return 0, False
                if form == "dicom":  # its header is only read with its pixels, of which a byte may hold eight
                    return min(8 * file_bytes, reading.max_pixels), False
                if form == "itk":
                    return min(count_itk_pixels(path), reading.max_pixels), False
                with path.open("rb") as file:
                    if layout := read_layout(file.read(33)):
                        return layout.height * layout.width, False
            header = read_header(path, **reading.options(path), streams=may_be_large)
        except (DataError, OSError):
            return 0, False
        pixels = math.prod((*header.lead, header.height, header.width))
        is_plane = header.channels == 1 and not header.lead
        return pixels, may_be_large and is_plane and pixels > array.STREAMED_PIXELS

    def load(self, pair: MaskPair) -> PairMaps:
        """Read all files of a pair, whole. Values that `read_map` leaves unchecked are left to `PairMaps.problems`."""
        references = pair.references
        predictions = pair.predictions
        spec = self.reading.spec
        paths = (*references, *predictions)
        count = len(references)
        as_stored = self._read(paths, count)
        stored = as_stored if self.reading.resample == "refuse" else self._on_one_grid(paths, as_stored, count)
        spacing = find_spacing(paths, stored, self.spacing)
        target, target_instances = self._labels(references, stored[:count], "references")
        if predictions:
            labels, instances = self._labels(predictions, stored[count:], "predictions")
            if target_instances is not None and instances is not None:
                doubts = (
                    doubt_object_numbers(paths[0], target_instances, instances, "references"),
                    doubt_object_numbers(paths[-1], instances, target_instances),
                )
                spacing = replace(spacing, warnings=(*spacing.warnings, *filter(None, doubts)))
        else:
            labels = np.zeros_like(target)
            instances = np.zeros_like(target) if self._sides["predictions"].instances else None
        digests = [stored_map.sha256 for stored_map in stored]
        image = None
        if pair.image:
            shape = target.shape[spec.is_multilabel :]
            image, digest = read_case_image(pair.image, shape, max_pixels=self.reading.max_pixels)
            digests.append(digest)
        maps = CaseMaps(
            case_id=pair.case_id,
            target=target,
            labels=labels,
            spacing=spacing.spacing or (1.0,) * stored[0].values.ndim,
            spec=spec,
            target_instances=target_instances,
            instances=instances,
            image=image,
        )
        return PairMaps(
            maps=maps,
            spacing=spacing,
            sha256=hash_together(digests),
            problems=partial(self._problems, paths, stored, count),
            resampled=any(now is not before for now, before in zip(stored, as_stored, strict=True)),
        )

    def load_annotations_of(
        self, case_id: str, readers: Sequence[tuple[Path, ...]]
    ) -> tuple[list[CaseMaps], CaseSpacing]:
        """Read the maps that several people drew of one case, whole and on one grid, and check every value.

        Returns
        -------
        The maps of each reader, which are both `target` and `labels`, and the spacing of the case.
        """
        paths = [path for files in readers for path in files]
        stored = self._read(paths, len(paths))
        spacing = find_spacing(paths, stored, self.spacing)
        if problems := self._problems(paths, stored, len(paths)):
            raise DataError(problems)
        edges = spacing.spacing or (1.0,) * stored[0].values.ndim
        maps = []
        for start, files in zip(range(0, len(paths), len(readers[0])), readers, strict=True):
            labels, instances = self._labels(files, stored[start : start + len(files)], "references")
            maps.append(
                CaseMaps(
                    case_id=case_id,
                    target=labels,
                    labels=labels,
                    spacing=edges,
                    spec=self.reading.spec,
                    target_instances=instances,
                    instances=instances,
                )
            )
        return maps, spacing

    @contextmanager
    def open(self, pair: MaskPair) -> Iterator[PairMaps]:
        """Open a pair of large files, to be read in bands of lines inside the block.

        Raises
        ------
        DataError
            The files don't go together, or can't be read. Reading a band raises it for values that are not labels.
        """
        paths = (*pair.references, *pair.predictions)
        count = len(pair.references)
        spec = self.reading.spec
        in_time = limit_of(pair, self.reading.timeout_s)
        with ExitStack() as files:
            by_number = dict[int, tuple[LazyArray, StoredMap]]()
            shape: tuple[int, ...] | None = None
            for number in _drawn_last(paths):
                file = self._open_file(paths[number], in_time, shape)
                by_number[number] = in_time(partial(files.enter_context, file))
                shape = shape or by_number[number][1].values.shape
            opened = [by_number[number] for number in range(len(paths))]
            spacing = find_spacing(paths, [stored for _, stored in opened], self.spacing)
            planes = [in_time.lines(lines) for lines, _ in opened]
            planes_by_side = [side for side in (planes[:count], planes[count:]) if side]
            sides = [stack_planes(side) if spec.is_multilabel else side[0] for side in planes_by_side]
            if not pair.predictions:
                background = np.broadcast_to(np.zeros((), spec.label_dtype), sides[0].shape)
                sides.append(ArrayRows(background, axis=background.ndim - 2))
            maps = BandedMaps(case_id=pair.case_id, target=sides[0], labels=sides[1], spec=spec)
            yield PairMaps(maps=maps, spacing=spacing, sha256=hash_together([stored.sha256 for _, stored in opened]))

    @contextmanager
    def _open_file(
        self, path: Path, in_time: TimeLimit, shape: tuple[int, ...] | None
    ) -> Iterator[tuple[LazyArray, StoredMap]]:
        """Return the labels of a file, and its map. The map of a large file has its shape, but not its values."""
        _, is_large = self._size_of_file(path)
        if not is_large:
            if shape and volume_format(path) in OUTLINES:  # drawing takes a whole map of the size of the large one
                check_pixel_count(path, shape, Opening(max_pixels=self.reading.max_pixels))
            stored = read_map(path, self.reading, shape=shape)
            is_checked = self.reading.label_map
            yield ArrayRows(stored.values if is_checked else labels_of(path, stored.values, self.reading)), stored
            return
        options = self.reading.options(path)
        with unchanged([path], in_time), open_array(path, **options, streams=True) as opened:
            lines = label_lines(opened, self.reading)
            shape_only = np.broadcast_to(np.zeros((), np.uint8), lines.shape)  # takes one byte
            yield lines, StoredMap(values=shape_only, geometry=opened.geometry, sha256=opened.sha256)

    def _read(self, paths: Sequence[Path], count: int) -> list[StoredMap]:
        """Read references, then predictions, but drawn objects last."""
        problems = list[str]()
        stored = dict[int, StoredMap]()
        shape: tuple[int, ...] | None = None
        for number in _drawn_last(paths):
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

    def _problems(self, paths: Sequence[Path], stored: Sequence[StoredMap], count: int) -> list[str]:
        """Write one line for each file with a value that is not a label."""
        problems: list[str] = []
        for number, (path, stored_map) in enumerate(zip(paths, stored, strict=True)):
            side = self._sides["references" if number < count else "predictions"]
            # A label map and object numbers are checked on reading. With data.invalid=count, every value is valid.
            if side.label_map or side.instances or side.keeps_invalid:
                continue
            try:
                labels_of(path, stored_map.values, self.reading)
            except DataError as error:
                problems += error.problems
        return problems

    def _on_one_grid(self, paths: Sequence[Path], stored: list[StoredMap], count: int) -> list[StoredMap]:
        """Bring predictions onto the grid of the first reference."""
        reference = stored[0]
        maps = stored[:count]
        for path, prediction in zip(paths[count:], stored[count:], strict=True):
            moved = onto_grid(
                path,
                prediction.values,
                prediction.geometry,
                reference=paths[0],
                wanted=reference.geometry,
                shape=reference.values.shape,
            )
            maps.append(prediction if moved is None else replace(prediction, values=moved[0], geometry=moved[1]))
        return maps

    def _labels(
        self, paths: Sequence[Path], stored: Sequence[StoredMap], side: str
    ) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
        """Return the labels of one side, and their object numbers if its files contain those."""
        reading = self._sides[side]
        planes = [stored_map.values for stored_map in stored]
        values = np.stack(planes) if reading.spec.is_multilabel else planes[0]
        path = paths[0] if side == "references" else paths[-1]
        if not reading.instances:
            return values, None
        if reading.divisor is None:
            return split_objects(path, values, reading.spec)
        return split_codes(path, values, spec=reading.spec, label_map=reading.label_map, divisor=reading.divisor)


def _drawn_last(paths: Sequence[Path]) -> list[int]:
    """Return the numbers of the files, drawn objects last, because they take the size of the other maps."""
    return sorted(range(len(paths)), key=lambda number: volume_format(paths[number]) in OUTLINES)
