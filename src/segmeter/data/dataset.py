"""Represents a split of a data set: its cases in order, each read on demand."""

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.data.files.array import Header, LazyArray, stack_planes
from segmeter.data.files.geometry import Geometry
from segmeter.data.files.opened import TimeLimit, open_array, read_geometry, read_header
from segmeter.data.files.sniff import file_error, show, unchanged
from segmeter.data.images import Orientation, image_of, open_image_lines
from segmeter.data.masks.label_mapping import mark_cores
from segmeter.data.masks.reading import Target, hash_map, open_map, read_target
from segmeter.data.sample import Pair, Reading, Sample
from segmeter.errors import DataError
from segmeter.parallel import map_in_threads
from segmeter.remote import fetched

Item = TypeVar("Item")
Read = TypeVar("Read", covariant=True)

_BY_ROWS = (".tif", ".tiff", ".zarr")  # suffixes of images that can be read line by line


class Indexed(Protocol[Read]):
    """A data set: items that are read by index, in any order and from several threads."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Read: ...


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One split of a data set. It is picklable and pure: reading a case depends only on its index.

    Parameters
    ----------
    reading
        How masks are read. Images have the same limit of pixels and the same level of a pyramid; masks without one
        belong to this level.
    in_channels
        Channels that every image must have.
    split
        "train", "val", "test", "all", or a name of the caller's.
    pairs
        The files of each case, ordered by case id.
    orientation
        How images are read, see `segmeter.data.images`.
    streams
        Whether images larger than memory are read line by line, see `streamed_cases` and `open_rows`.
    rows_above
        TIFF images with more pixels are read line by line too.
    core_depth
        Where cores of objects begin, if targets mark them for training; see `mark_cores`.
    source
        How the cases of the split were chosen, in words.
    problems
        What is wrong with files that are not in any pair, one line each.
    weights
        The share of each source in the training samples, if there are several.
    dealt
        How the cases were dealt into splits, from `describe_dealing`; empty if they were not.
    timeout_s
        The most seconds that reading a case may take, see `read_case`; None for no limit.
    """

    reading: Reading
    in_channels: int
    split: str
    pairs: tuple[Pair, ...]
    orientation: Orientation = "refuse"
    streams: bool = False
    rows_above: float = math.inf
    core_depth: float | None = None
    source: str = ""
    problems: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    dealt: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        """Read one case; DataError names a file that is damaged, gone, of another size or changed since the check."""
        pair = self.pairs[index]
        with fetched(pair.files):
            image, _ = self.read_image(index)
            targets = [self.read_target(index, number, image.shape) for number in range(1, len(pair.paths))]
        for path, target in zip(pair.masks, targets, strict=True):
            check_same_size(pair.image, image.shape[:2], path, target.labels.shape)
        if not targets:
            return Sample(case_id=pair.case_id, image=image, target=None)
        labels, instances = self.stack([each.labels for each in targets]), targets[0].instances
        if self.core_depth is not None and instances is not None:
            labels = mark_cores(labels, instances, depth=self.core_depth)
        return Sample(case_id=pair.case_id, image=image, target=labels, instances=instances)

    @property
    def spec(self) -> ClassSpec:
        """The meaning of the labels."""
        return self.reading.spec

    def streamed_cases(self) -> frozenset[int]:
        """Return the cases whose image is read line by line: Zarr, or larger than memory or `rows_above`."""
        candidates = [i for i, pair in enumerate(self.pairs) if self.streams and pair.image.suffix.lower() in _BY_ROWS]
        found = map_in_threads(lambda index: self.is_streamed(self.header_of(index)), candidates)
        return frozenset(i for i, streamed in zip(candidates, found, strict=True) if streamed)

    def is_streamed(self, header: Header) -> bool:
        """Tell whether an image is read line by line."""
        turned = self.orientation == "apply" and header.orientation != 1  # turning needs the whole image
        more = header.format == "tiff" and header.height * header.width > self.rows_above and not turned
        return self.streams and (header.streamed or more)

    @contextmanager
    def open_rows(self, index: int) -> Iterator[tuple[LazyArray, LazyArray | None]]:
        """Open the image (H, W, C) of a case, and its target like that of a `Sample` or None, to be read line by line.

        Raises
        ------
        DataError
            A file is damaged, of another size, or changed since it was verified; reading lines and leaving raise it
            too.
        """
        pair, in_time = self.pairs[index], self.limit(index)
        if self.reading.instances:
            rule, remedy = "to be false for images that are read by rows", "Cut them into tiles."
            raise file_error(pair.image, "data.instances", rule, "true", remedy)
        with unchanged(pair.files, in_time), ExitStack() as stack:
            hashes = in_time(lambda: [hash_map(path) for path, _ in zip(pair.files, pair.sha256, strict=False)])
            for path, sha256, now in zip(pair.files, pair.sha256, hashes, strict=False):
                if now != sha256:
                    raise content_changed(path)
            asked: dict[str, Any] = {"channels": self.in_channels, "orientation": self.orientation}
            opened = open_image_lines(pair.image, **asked, **self.reading.limits)
            image = in_time.lines(in_time(partial(stack.enter_context, opened)))
            every = [open_map(path, self.reading, shape=image.shape[:2]) for path in pair.masks]
            masks = [in_time.lines(in_time(partial(stack.enter_context, each))) for each in every]
            for path, mask in zip(pair.masks, masks, strict=True):
                check_same_size(pair.image, image.shape[:2], path, mask.shape)
            yield image, (stack_planes(masks) if self.spec.is_multilabel and masks else next(iter(masks), None))

    def locate(self, case_id: str) -> Geometry:
        """Return where the pixels of a case's image lie."""
        index = self.numbers[case_id]
        return self.limit(index)(partial(read_geometry, self.pairs[index].image, level=self.reading.level))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each case."""
        return {pair.case_id: index for index, pair in enumerate(self.pairs)}

    def header_of(self, index: int, number: int = 0) -> Header:
        """Read the header of file `number` of a case, 0 being the image; DataError if it is damaged or too large."""
        path = Path(self.pairs[index].paths[number])
        options = self.reading.options(path) if number else self.reading.limits
        return self.limit(index)(partial(read_header, path, **options, streams=self.streams))

    def limit(self, index: int) -> TimeLimit:
        """Return the time limit of a case."""
        pair = self.pairs[index]
        return TimeLimit(seconds=self.timeout_s, case_id=pair.case_id, index=index, files=pair.files)

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(pair.case_id for pair in self.pairs)

    def kinds(self) -> list[tuple[int, int, str]]:
        """Return height, width and dtype of each image after reading, from the headers alone."""
        return list(map_in_threads(self._kind, range(len(self))))

    def _kind(self, index: int) -> tuple[int, int, str]:
        header = self.header_of(index)
        height, width = turned_size(header, self.orientation)
        alone = f" by rows {self.pairs[index].case_id}" if self.is_streamed(header) else ""
        return height, width, f"{header.dtype}{alone}"

    def subset(self, indices: Sequence[int]) -> "Dataset":
        """Return a data set of some of the cases, by index."""
        return replace(self, pairs=tuple(self.pairs[index] for index in indices))

    def with_contents(self, sha256: Sequence[tuple[str, ...]]) -> "Dataset":
        """Return the same data set, which refuses files whose content has another hash.

        Parameters
        ----------
        sha256
            Hashes of the files of each case, the image first: ``DataReport.file_sha256``.
        """
        pairs = (replace(pair, sha256=hashes) for pair, hashes in zip(self.pairs, sha256, strict=True))
        return replace(self, pairs=tuple(pairs))

    def read_image(self, index: int, *, hashed: bool = False) -> tuple[np.ndarray, str]:
        """Read the image of a case, (H, W, C), and the sha256 of its file, "" if it is not needed.

        Raises
        ------
        DataError
            It is damaged, gone, not such an image, or changed since it was verified.
        """
        pair = self.pairs[index]
        with open_array(pair.image, settled=True, streams=self.streams, **self.reading.limits) as stored:
            sha256 = stored.sha256 if hashed or pair.sha256 else ""
            if pair.sha256 and sha256 != pair.sha256[0]:
                raise content_changed(pair.image)
            level = self.reading.level
            return image_of(stored, channels=self.in_channels, orientation=self.orientation, level=level), sha256

    def read_target(self, index: int, number: int, shape: tuple[int, ...]) -> Target:
        """Read file `number` of a case, a mask, whose image has this shape; raises as `read_image`."""
        pair = self.pairs[index]
        path = Path(pair.paths[number])
        found = read_target(path, self.reading, shape=shape[:2])
        if pair.sha256 and found.stored.sha256 != pair.sha256[number]:
            raise content_changed(path)
        return found

    def stack(self, masks: Sequence[np.ndarray]) -> np.ndarray:
        """Combine the labels of a case's masks to its target: (H, W), or (K, H, W) for multilabel."""
        if not self.spec.is_multilabel:
            return masks[0]
        return np.stack(masks).astype(self.spec.label_dtype, copy=False)

    def contents(self) -> dict[str, str]:
        """Return the sha256 of every file by folder and name; files that were not verified are read."""
        unknown = [index for index, pair in enumerate(self.pairs) if not pair.sha256]
        hashes = map_in_threads(lambda i: self.limit(i)(lambda: tuple(map(hash_map, self.pairs[i].files))), unknown)
        fresh, found = dict(zip(unknown, hashes, strict=True)), dict[str, str]()
        for index, pair in enumerate(self.pairs):
            for path, sha256 in zip(pair.paths, pair.sha256 or fresh[index], strict=True):
                name = "/".join(("", *path.rsplit(os.sep, 2))[-2:])  # its folder and its own
                found[f"{pair.source}/{name}" if pair.source else name] = sha256
        return found

    def fingerprint(self) -> str:
        """Return the sha256 over classes, label map, case ids, and the names and contents of all files."""
        reading = self.reading
        digest = hashlib.sha256(repr((self.spec, self.in_channels, sorted(reading.label_map.items()))).encode())
        digest.update(repr((reading.instances, self.case_ids)).encode())
        if reading.divisor:
            digest.update(f"divisor {reading.divisor}".encode())
        if reading.level:
            digest.update(f"level {reading.level}".encode())
        for name, sha256 in self.contents().items():
            digest.update(f"{name} {sha256}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def read_case(cases: Indexed[Item], index: int) -> Item:
    """Return ``cases[index]``; LateError after the data set's `timeout_s`."""
    return cases.limit(index)(partial(cases.__getitem__, index)) if isinstance(cases, Dataset) else cases[index]


def content_changed(path: Path) -> DataError:
    """Build the refusal of a file that changed since it was verified."""
    rule, remedy = "to have the content that was checked at the start", "Start again once the data is settled."
    return file_error(path, "file", rule, "another content", remedy)


def turned_size(header: Header, orientation: Orientation) -> tuple[int, int]:
    """Return height and width after reading; EXIF orientations from 5 swap them."""
    size = (header.height, header.width)
    return size[::-1] if orientation == "apply" and header.orientation >= 5 else size


def check_same_size(image: Path, image_size: tuple[int, ...], mask: Path, mask_size: tuple[int, ...]) -> None:
    """Raise DataError unless a mask has the size (height, width) of its image."""
    if tuple(image_size) == tuple(mask_size):
        return
    remedy = "Give the mask of this image; nothing is resized."
    if tuple(image_size) == tuple(mask_size)[::-1]:
        remedy = "Height and width are swapped: turn the mask as the image was turned."
    rule = f"to have the size of its image {show(image)}, {image_size[0]} x {image_size[1]}"
    raise file_error(mask, "mask", rule, f"{mask_size[0]} x {mask_size[1]} (height x width)", remedy)


@dataclass(frozen=True, eq=False)
class Part:
    """Some cases of a data set."""

    dataset: Indexed[Sample]
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        return read_case(self.dataset, self.indices[index])
