"""Reads the files of one pair onto one grid, whole or in bands of lines, and names values that are not labels."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files import array
from segmeter.data.files.array import ArrayRows, LazyArray, stack_planes
from segmeter.data.files.opened import TimeLimit, open_array, read_header
from segmeter.data.files.pictures import read_layout
from segmeter.data.files.sniff import show, unchanged, volume_format
from segmeter.data.masks.drawn import OUTLINES
from segmeter.data.masks.label_mapping import doubt_object_numbers, split_codes, split_objects
from segmeter.data.masks.reading import StoredMap, check_labels, hash_map, open_map, read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.pairing import MaskPair, hash_together, limit_of, read_case_image
from segmeter.evaluation.spacings import CaseSpacing, find_spacing, onto_grid
from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.measures.row import BandedMaps

_LOOK_BYTES = 1 << 14  # smaller files are read without a look at their header
_IN_BANDS = (".tif", ".tiff", ".zarr")


@dataclass(frozen=True, kw_only=True, eq=False)
class PairMaps:
    """The maps of a pair, with spacing and hash of its files.

    Parameters
    ----------
    maps
        Whole, or in bands of lines. A missing prediction is 0 everywhere.
    spacing
        Of the case, and where it comes from.
    sha256
        Hash over the hashes of all files.
    problems
        Names the files with values that are not labels. Whole maps are counted first, as the counts themselves show
        whether there are any; the lines of bands are checked when they are read.
    resampled
        Whether a prediction was brought onto the grid of its reference.
    """

    maps: CaseMaps | BandedMaps
    spacing: CaseSpacing
    sha256: str
    problems: Callable[[], list[str]] = list
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
        """Tell whether a file of the pair is too large to be read whole, and the pixels of a map otherwise.

        The pixels are those of the first file whose header states them: drawn outlines have none, and tiny files don't
        matter. If a header can't be read, reading the file will say why.
        """
        pixels = 0
        for path in (*pair.references, *pair.predictions):
            is_large, found = self._look_at(path)
            if is_large:
                return True, 0
            pixels = pixels or found
        return False, pixels

    def _look_at(self, path: Path) -> tuple[bool, int]:
        """Return whether a file is read in bands, and the pixels by its header.

        Only one plane is read in bands, in some formats. For a volume, which is rarely packed, the file's size is taken
        instead of its pixels.
        """
        reading = self.reading
        try:
            if path.name.lower().endswith(_IN_BANDS) and reading.key is None and not reading.has_colours:
                found = read_header(path, **reading.options(path), streams=True)
                pixels = math.prod((*found.lead, found.height, found.width))
                return found.channels == 1 and not found.lead and pixels > array.STREAMED_PIXELS, pixels
            size = path.stat().st_size
            if size < _LOOK_BYTES or (form := volume_format(path)) in OUTLINES:
                return False, 0
            with path.open("rb") as file:
                layout = read_layout(file.read(33))
            if layout is None and form:
                return False, size
            header = layout or read_header(path, max_pixels=reading.max_pixels)
            return False, header.height * header.width
        except (DataError, OSError):
            return False, 0

    def load(self, pair: MaskPair) -> PairMaps:
        """Read all files of a pair, whole. `problems` tells whether their values are labels."""
        references, predictions, spec = pair.references, pair.predictions, self.reading.spec
        paths, count = (*references, *predictions), len(references)
        as_stored = self._read(paths, count)
        stored = as_stored if self.reading.resample == "refuse" else self._on_one_grid(paths, as_stored, count)
        spacing = find_spacing(paths, stored, self.spacing)
        target, first = self._labels(references, stored[:count], "references")
        if predictions:
            labels, second = self._labels(predictions, stored[count:], "predictions")
            if first is not None and second is not None:
                doubts = (
                    doubt_object_numbers(paths[0], first, second, "references"),
                    doubt_object_numbers(paths[-1], second, first),
                )
                spacing = replace(spacing, warnings=(*spacing.warnings, *filter(None, doubts)))
        else:
            labels = np.zeros_like(target)
            second = np.zeros_like(target) if self._sides["predictions"].instances else None
        digests, image = [each.sha256 for each in stored], None
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
            target_instances=first,
            instances=second,
            image=image,
        )
        return PairMaps(
            maps=maps,
            spacing=spacing,
            sha256=hash_together(digests),
            problems=partial(self._problems, paths, stored, count),
            resampled=any(one is not other for one, other in zip(stored, as_stored, strict=True)),
        )

    def load_readers(self, case_id: str, readers: Sequence[tuple[Path, ...]]) -> tuple[list[CaseMaps], CaseSpacing]:
        """Read the maps that several readers made of one case, whole and on one grid, with every value checked.

        Returns
        -------
        The maps of each reader, as `target` and `labels` alike, and the spacing of the case.
        """
        paths = [path for files in readers for path in files]
        stored = self._read(paths, len(paths))
        spacing = find_spacing(paths, stored, self.spacing)
        if problems := self._problems(paths, stored, len(paths)):
            raise DataError(problems)
        edges, found = spacing.spacing or (1.0,) * stored[0].values.ndim, []
        for start, files in zip(range(0, len(paths), len(readers[0])), readers, strict=True):
            labels, numbers = self._labels(files, stored[start : start + len(files)], "references")
            given: dict[str, Any] = {"target_instances": numbers, "instances": numbers, "spec": self.reading.spec}
            found.append(CaseMaps(case_id=case_id, target=labels, labels=labels, spacing=edges, **given))
        return found, spacing

    @contextmanager
    def open(self, pair: MaskPair) -> Iterator[PairMaps]:
        """Open a pair of large files, to be read in bands of lines inside the block.

        Raises
        ------
        DataError
            The files don't go together, or can't be read; reading a band raises it for values that are not labels.
        """
        paths, count, spec = (*pair.references, *pair.predictions), len(pair.references), self.reading.spec
        in_time = limit_of(pair, self.reading.timeout_s)
        with ExitStack() as files:
            opened = [in_time(partial(files.enter_context, self._open_file(path, in_time))) for path in paths]
            spacing = find_spacing(paths, [stored for _, stored in opened], self.spacing)
            planes = [in_time.lines(lines) for lines, _ in opened]
            given = [side for side in (planes[:count], planes[count:]) if side]
            sides = [stack_planes(side) if spec.is_multilabel else side[0] for side in given]
            if not pair.predictions:
                nothing = np.broadcast_to(np.zeros((), spec.label_dtype), sides[0].shape)
                sides.append(ArrayRows(nothing, axis=nothing.ndim - 2))
            maps = BandedMaps(case_id=pair.case_id, target=sides[0], labels=sides[1], spec=spec)
            yield PairMaps(maps=maps, spacing=spacing, sha256=hash_together([stored.sha256 for _, stored in opened]))

    @contextmanager
    def _open_file(self, path: Path, in_time: TimeLimit) -> Iterator[tuple[LazyArray, StoredMap]]:
        """Return the labels of a file, and its map; of a large file, a map of its size without the values."""
        if not self._look_at(path)[0]:
            found = read_map(path, self.reading)
            checked = self.reading.label_map
            yield ArrayRows(found.values if checked else check_labels(path, found.values, self.reading)), found
            return
        with unchanged([path], in_time), open_map(path, self.reading) as lines:
            with open_array(path, **self.reading.options(path), streams=True) as again:
                geometry, sha256 = again.geometry, hash_map(path)
            size = np.broadcast_to(np.zeros((), np.uint8), lines.shape)  # takes one byte
            yield lines, StoredMap(values=size, geometry=geometry, sha256=sha256)

    def _read(self, paths: Sequence[Path], count: int) -> list[StoredMap]:
        """Read references, then predictions; drawn objects last, because they take the size of the other maps."""
        problems, stored = list[str](), dict[int, StoredMap]()
        shape: tuple[int, ...] | None = None
        for number in sorted(range(len(paths)), key=lambda number: volume_format(paths[number]) in OUTLINES):
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
        for number, (path, each) in enumerate(zip(paths, stored, strict=True)):
            side = self._sides["references" if number < count else "predictions"]
            if side.label_map or side.instances or side.keeps_invalid:  # checked on reading; or all are counted
                continue
            try:
                check_labels(path, each.values, self.reading)
            except DataError as error:
                problems += error.problems
        return problems

    def _on_one_grid(self, paths: Sequence[Path], stored: list[StoredMap], count: int) -> list[StoredMap]:
        """Bring predictions onto the grid of the first reference."""
        first, found = stored[0], stored[:count]
        for path, each in zip(paths[count:], stored[count:], strict=True):
            grid: dict[str, Any] = {"reference": paths[0], "wanted": first.geometry, "shape": first.values.shape}
            moved = onto_grid(path, each.values, each.geometry, **grid)
            found.append(each if moved is None else replace(each, values=moved[0], geometry=moved[1]))
        return found

    def _labels(
        self, paths: Sequence[Path], stored: Sequence[StoredMap], side: str
    ) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
        """Return the labels of one side, and their object numbers if its files contain those."""
        reading = self._sides[side]
        values = np.stack([each.values for each in stored]) if reading.spec.is_multilabel else stored[0].values
        path = paths[0] if side == "references" else paths[-1]
        if not reading.instances:
            return values, None
        if reading.divisor is None:
            return split_objects(path, values, reading.spec)
        return split_codes(path, values, spec=reading.spec, label_map=reading.label_map, divisor=reading.divisor)
