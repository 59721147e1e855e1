"""Represents a split of a data set: its cases in order, each of which is read on demand."""

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
from segmeter.data.files.refusals import file_error, show, unchanged
from segmeter.data.images import Orientation, image_of, open_image_lines
from segmeter.data.masks.label_mapping import mark_cores
from segmeter.data.masks.reading import Target, hash_map, open_map, read_target
from segmeter.data.sample import Pair, Reading, Sample
from segmeter.errors import DataError
from segmeter.parallel import map_in_threads
from segmeter.remote import fetched

Item = TypeVar("Item")
ItemOut = TypeVar("ItemOut", covariant=True)

_BY_ROWS = (".tif", ".tiff", ".zarr")  # suffixes of images that can be read line by line


class Indexed(Protocol[ItemOut]):
    """A data set: items that are read by index, in any order and from several threads."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> ItemOut: ...


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One split of a data set. It can be pickled, and reading a case depends only on the case's index.

    Parameters
    ----------
    reading
        How masks are read. The limit of pixels and the level of a pyramid hold for images too. A mask without a pyramid
        belongs to that level.
    in_channels
        Channels that every image must have.
    split
        "train", "val", "test", "all", or a name that the caller chose.
    pairs
        The files of each case, ordered by case id.
    orientation
        How images are read, see `segmeter.data.images`.
    streams
        Whether images larger than memory are read line by line, see `streamed_cases` and `open_rows`.
    rows_above
        TIFF images with more pixels than this are read line by line too.
    core_depth
        The depth at which the core of an object begins, if targets mark cores for training; see `mark_cores`.
    source
        Says in words how the cases of the split were chosen.
    problems
        Problems of files that are not in any pair, one line each.
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
        labels = self.stack([target.labels for target in targets])
        instances = targets[0].instances
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
        are_streamed = map_in_threads(lambda index: self.is_streamed(self.header_of(index)), candidates)
        return frozenset(i for i, is_streamed in zip(candidates, are_streamed, strict=True) if is_streamed)

    def is_streamed(self, header: Header) -> bool:
        """Tell whether an image is read line by line."""
        is_turned = self.orientation == "apply" and header.orientation != 1  # turning needs the whole image
        is_large_tiff = header.format == "tiff" and header.height * header.width > self.rows_above
        return self.streams and (header.streamed or (is_large_tiff and not is_turned))

    @contextmanager
    def open_rows(self, index: int) -> Iterator[tuple[LazyArray, LazyArray | None]]:
        """Open the image (H, W, C) of a case and its target, as in `Sample`, to be read line by line.

        Raises
        ------
        DataError
            A file is damaged, of another size, or changed since it was verified. Reading lines and leaving the block
            may raise it too.
        """
        pair = self.pairs[index]
        in_time = self.limit(index)
        if self.reading.instances:
            rule, remedy = "to be false for images that are read by rows", "Cut them into tiles."
            raise file_error(pair.image, "data.instances", rule, "true", remedy)
        with unchanged(pair.files, in_time), ExitStack() as stack:
            hashes = in_time(lambda: [hash_map(path) for path, _ in zip(pair.files, pair.sha256, strict=False)])
            for path, verified, sha256 in zip(pair.files, pair.sha256, hashes, strict=False):
                if sha256 != verified:
                    raise content_changed(path)
            opening = open_image_lines(
                pair.image, channels=self.in_channels, orientation=self.orientation, **self.reading.limits
            )
            image = in_time.lines(in_time(partial(stack.enter_context, opening)))
            openings = [open_map(path, self.reading, shape=image.shape[:2]) for path in pair.masks]
            masks = [in_time.lines(in_time(partial(stack.enter_context, opening))) for opening in openings]
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
        """Read the header of file `number` of a case, where 0 is the image; DataError if it is damaged or too large."""
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
        """Return the height, width and dtype that each image will have once it is read. Only headers are opened.

        An image that is read line by line gets a text of its own, so that it is in no batch with others.
        """
        return list(map_in_threads(self._kind, range(len(self))))

    def _kind(self, index: int) -> tuple[int, int, str]:
        header = self.header_of(index)
        height, width = turned_size(header, self.orientation)
        suffix = f" by rows {self.pairs[index].case_id}" if self.is_streamed(header) else ""
        return height, width, f"{header.dtype}{suffix}"

    def subset(self, indices: Sequence[int]) -> "Dataset":
        """Return a data set of the cases with these indices."""
        return replace(self, pairs=tuple(self.pairs[index] for index in indices))

    def with_contents(self, sha256: Sequence[tuple[str, ...]]) -> "Dataset":
        """Return the same data set, but refuse any file whose content has another hash.

        Parameters
        ----------
        sha256
            Hashes of the files of each case, the image first: ``DataReport.file_sha256``.
        """
        pairs = (replace(pair, sha256=hashes) for pair, hashes in zip(self.pairs, sha256, strict=True))
        return replace(self, pairs=tuple(pairs))

    def read_image(self, index: int, *, hashed: bool = False) -> tuple[np.ndarray, str]:
        """Read the image of a case, (H, W, C), and the sha256 of its file. The hash is "" if nobody needs it.

        Raises
        ------
        DataError
            The file is damaged, gone, not such an image, or changed since it was verified.
        """
        pair = self.pairs[index]
        with open_array(pair.image, refuse_changes=True, streams=self.streams, **self.reading.limits) as stored:
            sha256 = stored.sha256 if hashed or pair.sha256 else ""
            if pair.sha256 and sha256 != pair.sha256[0]:
                raise content_changed(pair.image)
            level = self.reading.level
            image = image_of(stored, channels=self.in_channels, orientation=self.orientation, level=level)
        return image, sha256

    def read_target(self, index: int, number: int, shape: tuple[int, ...]) -> Target:
        """Read file `number` of a case, which is a mask; `shape` is that of its image. Raises as `read_image` does."""
        pair = self.pairs[index]
        path = Path(pair.paths[number])
        target = read_target(path, self.reading, shape=shape[:2])
        if pair.sha256 and target.stored.sha256 != pair.sha256[number]:
            raise content_changed(path)
        return target

    def stack(self, masks: Sequence[np.ndarray]) -> np.ndarray:
        """Combine the labels of a case's masks into its target: (H, W), or (K, H, W) for multilabel."""
        if not self.spec.is_multilabel:
            return masks[0]
        return np.stack(masks).astype(self.spec.label_dtype, copy=False)

    def contents(self) -> dict[str, str]:
        """Return the sha256 of every file by folder and name; files that were not verified are read."""
        unverified = [index for index, pair in enumerate(self.pairs) if not pair.sha256]
        hashes = map_in_threads(lambda i: self.limit(i)(lambda: tuple(map(hash_map, self.pairs[i].files))), unverified)
        hashes_by_index = dict(zip(unverified, hashes, strict=True))
        contents: dict[str, str] = {}
        for index, pair in enumerate(self.pairs):
            for path, sha256 in zip(pair.paths, pair.sha256 or hashes_by_index[index], strict=True):
                name = "/".join(("", *path.rsplit(os.sep, 2))[-2:])  # the folder's name and the file's
                contents[f"{pair.source}/{name}" if pair.source else name] = sha256
        return contents

    def fingerprint(self) -> str:
        """Return one sha256 of the classes, the label map, the case ids, and the names and contents of all files."""
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
    """Return ``cases[index]``; LateError if a `Dataset` takes longer than its `timeout_s`."""
    return cases.limit(index)(partial(cases.__getitem__, index)) if isinstance(cases, Dataset) else cases[index]


def content_changed(path: Path) -> DataError:
    """Build the refusal of a file that changed since it was verified."""
    rule, remedy = "to have the content that was checked at the start", "Start again once the data is settled."
    return file_error(path, "file", rule, "another content", remedy)


def turned_size(header: Header, orientation: Orientation) -> tuple[int, int]:
    """Return the height and width that an image has once it is read; EXIF orientations from 5 on swap them."""
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
