"""A split of a data set: its cases in order, each read on demand."""

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

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.by_rows.opened import header_of, open_image_rows, open_label_rows
from segmeter.data.by_rows.rows import Rows, StackedRows
from segmeter.data.files.header import MAX_PIXELS, Header
from segmeter.data.files.images import (
    Orientation,
    StoredFile,
    decode_image,
    decode_mask,
    read_file,
)
from segmeter.data.files.label_mapping import split_codes, split_objects, to_labels
from segmeter.data.files.sniff import show, unchanged
from segmeter.data.files.zarr import hash_folder
from segmeter.data.in_time import TimeLimit, fetched
from segmeter.data.location import Location, read_location
from segmeter.data.sample import Pair, Sample
from segmeter.errors import DataError
from segmeter.files import sha256_file
from segmeter.parallel import map_in_threads

Item = TypeVar("Item")
Read = TypeVar("Read", covariant=True)

_BY_ROWS = (".tif", ".tiff", ".zarr")  # suffixes of images that may be larger than memory


class Indexed(Protocol[Read]):
    """A data set: items that are read by index, in any order, from several threads."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Read: ...


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One split of a data set; picklable, and pure: reading a case depends on nothing but its index.

    Parameters
    ----------
    spec
        What the labels mean.
    in_channels
        Channels that every image must have.
    split
        "train", "val", "test", "all", or what the caller calls it.
    pairs
        The files of each case, ordered by case id.
    label_map, max_pixels, orientation
        How files are read, see `segmeter.data.files.images`.
    level
        Which level of pyramids is read, 0 being the finest; masks without a pyramid are those of this level.
    streams
        Whether images that are larger than memory are given by rows: see `streamed_cases` and `open_rows`.
    rows_above
        TIFF images of more pixels are given by rows as well.
    instances
        Whether the stored values of masks are numbers of objects, 0 being none; labels are then 1 inside any object.
    divisor
        Where they are class * divisor + number, as Cityscapes has them; None for numbers alone.
    source
        What decided which cases belong to the split, for people to read.
    problems
        What is wrong with files that are therefore in no pair, one line each.
    weights
        Of each source, where the data set has several: its share of the training samples.
    dealt
        How its cases were dealt into splits, from `describe_dealing`; empty where they were not.
    timeout_s
        The most seconds that reading a case may take, see `read_case`; None for any.
    """

    spec: ClassSpec
    in_channels: int
    split: str
    pairs: tuple[Pair, ...]
    label_map: Mapping[str, int] = field(default_factory=dict)
    max_pixels: int = MAX_PIXELS
    orientation: Orientation = "refuse"
    level: int = 0
    streams: bool = False
    rows_above: float = math.inf
    instances: bool = False
    divisor: int | None = None
    source: str = ""
    problems: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    dealt: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        """Read one case; DataError names the file that is damaged, gone, of another size or changed since the check."""
        with fetched(self.pairs[index].files):
            return self._read(index)

    def _read(self, index: int) -> Sample:
        pair = self.pairs[index]
        if self.streams and pair.image.suffix.lower() == ".zarr":
            with self.open_rows(index) as (rows, target_rows):
                height = rows.shape[0]
                target = None if target_rows is None else target_rows.read(0, height)
                return Sample(case_id=pair.case_id, image=rows.read(0, height), target=target)
        files = [self.read_stored(index, number) for number in range(len(pair.paths))]
        image = self.decode_image(files[0])
        masks = [self.decode_mask(file) for file in files[1:]]
        for file, (labels, _) in zip(files[1:], masks, strict=True):
            check_same_size(pair.image, image.shape[:2], file.path, labels.shape)
        if not masks:
            return Sample(case_id=pair.case_id, image=image, target=None)
        return Sample(
            case_id=pair.case_id, image=image, target=self.stack([mask[0] for mask in masks]), instances=masks[0][1]
        )

    def streamed_cases(self) -> frozenset[int]:
        """Indices of the cases whose image is read by rows: a Zarr folder, or larger than memory or `rows_above`."""
        candidates = [i for i, pair in enumerate(self.pairs) if self.streams and pair.image.suffix.lower() in _BY_ROWS]
        found = map_in_threads(lambda index: self.is_streamed(self.header_of(index)), candidates)
        return frozenset(i for i, streamed in zip(candidates, found, strict=True) if streamed)

    def is_streamed(self, header: Header) -> bool:
        """Whether an image is read by rows."""
        turned = self.orientation == "apply" and header.orientation != 1  # which takes the whole picture
        more = header.format == "tiff" and header.height * header.width > self.rows_above and not turned
        return self.streams and (header.streamed or more)

    @contextmanager
    def open_rows(self, index: int) -> Iterator[tuple[Rows, Rows | None]]:
        """Open the image (H, W, C) of a case, and its target like that of a `Sample`, or None, to be read by rows.

        Raises
        ------
        DataError
            A file is damaged, of another size, or not what was verified; reading rows and leaving raise it too.
        """
        pair, in_time = self.pairs[index], self.limit(index)
        if self.instances:
            rule, remedy = "to be false for images that are read by rows", "Cut them into tiles."
            raise DataError(expected(show(pair.image), "data.instances", rule, "true", remedy))
        limits: dict[str, Any] = {"max_pixels": self.max_pixels, "level": self.level}
        reading: dict[str, Any] = {"spec": self.spec, "label_map": self.label_map, **limits}
        with unchanged(pair.files, in_time), ExitStack() as stack:
            in_time(partial(self.check_content, index))
            opened = open_image_rows(pair.image, channels=self.in_channels, orientation=self.orientation, **limits)
            every = [opened, *(open_label_rows(path, **reading) for path in pair.masks)]
            image, *masks = [in_time.rows(in_time(partial(stack.enter_context, each))) for each in every]
            for path, mask in zip(pair.masks, masks, strict=True):
                check_same_size(pair.image, image.shape[:2], path, mask.shape)
            yield image, (StackedRows(masks) if self.spec.is_multilabel and masks else next(iter(masks), None))

    def number_of(self, case_id: str) -> int:
        """The index of a case."""
        return self._numbers[case_id]

    def files_of(self, case_id: str) -> tuple[Path, ...]:
        """The image of a case, then each mask."""
        return self.pairs[self._numbers[case_id]].files

    def locate(self, case_id: str) -> Location:
        """Where the pixels of a case's image lie, as its file says."""
        index = self._numbers[case_id]
        return self.limit(index)(partial(read_location, self.pairs[index].image, level=self.level))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {pair.case_id: index for index, pair in enumerate(self.pairs)}

    def header_of(self, index: int, number: int = 0) -> Header:
        """The header of file `number` of a case, 0 being the image; DataError where it is damaged or too large."""
        path = Path(self.pairs[index].paths[number])
        options: dict[str, Any] = {"max_pixels": self.max_pixels, "level": self.level, "streams": self.streams}
        return self.limit(index)(partial(header_of, path, **options))

    def limit(self, index: int) -> TimeLimit:
        """How long reading a case may take."""
        pair = self.pairs[index]
        return TimeLimit(seconds=self.timeout_s, case_id=pair.case_id, index=index, files=pair.files)

    def check_content(self, index: int) -> None:
        """Raise DataError where a file of a case is no longer what was verified."""
        pair = self.pairs[index]
        for path, sha256 in zip(pair.files, pair.sha256, strict=False):
            if hash_path(path) != sha256:
                raise _changed(path)

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(pair.case_id for pair in self.pairs)

    def kinds(self) -> list[tuple[int, int, str]]:
        """Height, width and dtype of each image as it will be read, from the headers alone."""
        return list(map_in_threads(self._kind, range(len(self))))

    def _kind(self, index: int) -> tuple[int, int, str]:
        header = self.header_of(index)
        height, width = turned_size(header, self.orientation)
        alone = f" by rows {self.pairs[index].case_id}" if self.is_streamed(header) else ""
        return height, width, f"{header.dtype}{alone}"

    def subset(self, indices: Sequence[int]) -> "Dataset":
        """Some of the cases, by their numbers."""
        return replace(self, pairs=tuple(self.pairs[index] for index in indices))

    def with_contents(self, sha256: Sequence[tuple[str, ...]]) -> "Dataset":
        """The same data set, which refuses a file whose content is no longer the one that has this hash.

        Parameters
        ----------
        sha256
            Hashes of the files of each case, the image first: ``DataReport.file_sha256``.
        """
        pairs = (replace(pair, sha256=hashes) for pair, hashes in zip(self.pairs, sha256, strict=True))
        return replace(self, pairs=tuple(pairs))

    def read_stored(self, index: int, number: int) -> StoredFile:
        """Read file `number` of a case, 0 being the image.

        Raises
        ------
        DataError
            It is damaged, gone, or its content is not what was verified.
        """
        pair = self.pairs[index]
        file = read_file(Path(pair.paths[number]), max_pixels=self.max_pixels, level=self.level)
        if pair.sha256 and file.sha256 != pair.sha256[number]:
            raise _changed(file.path)
        return file

    def decode_image(self, file: StoredFile) -> np.ndarray:
        """Decode an image as this data set has them: (H, W, C)."""
        return decode_image(file, channels=self.in_channels, orientation=self.orientation)

    def decode_mask(self, file: StoredFile) -> tuple[np.ndarray, np.ndarray | None]:
        """Decode one mask.

        Returns
        -------
        Labels (H, W), for multilabel of one class, and the objects' numbers (H, W) where the masks hold these.

        Raises
        ------
        DataError
            The file is not a mask, or a value is not a label.
        """
        stored = decode_mask(file, label_map=self.label_map)
        nodata = file.early.nodata if isinstance(file.early, Header) else None
        if self.instances and self.divisor is None:
            return split_objects(file.path, stored, self.spec, nodata=nodata)
        meaning: dict[str, Any] = {"spec": self.spec, "label_map": self.label_map, "nodata": nodata}
        if self.divisor is not None:
            return split_codes(file.path, stored, divisor=self.divisor, **meaning)
        return to_labels(file.path, stored, **meaning), None

    def stack(self, masks: Sequence[np.ndarray]) -> np.ndarray:
        """Turn the labels of a case's masks into its target: (H, W), or (K, H, W) for multilabel."""
        if not self.spec.is_multilabel:
            return masks[0]
        return np.stack(masks).astype(self.spec.label_dtype, copy=False)

    def contents(self) -> dict[str, str]:
        """Sha256 of every file, by its folder and name; files that were not verified are read for it."""
        unknown = [index for index, pair in enumerate(self.pairs) if not pair.sha256]
        hashes = map_in_threads(lambda index: self.limit(index)(partial(_hash_pair, self.pairs[index])), unknown)
        fresh = dict(zip((self.pairs[index].case_id for index in unknown), hashes, strict=True))
        return {
            f"{pair.source}{'/' * bool(pair.source)}{_folder_and_name(path)}": sha256
            for pair in self.pairs
            for path, sha256 in zip(pair.paths, pair.sha256 or fresh[pair.case_id], strict=True)
        }

    def fingerprint(self) -> str:
        """Sha256 over classes, label map, case ids, and the names and contents of all files."""
        digest = hashlib.sha256(repr((self.spec, self.in_channels, sorted(self.label_map.items()))).encode())
        digest.update(repr((self.instances, self.case_ids)).encode())
        if self.divisor:
            digest.update(f"divisor {self.divisor}".encode())
        if self.level:
            digest.update(f"level {self.level}".encode())
        for name, sha256 in self.contents().items():
            digest.update(f"{name} {sha256}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def read_case(cases: Indexed[Item], index: int) -> Item:
    """``cases[index]``, or LateError where a data set's `timeout_s` is over before."""
    return cases.limit(index)(partial(cases.__getitem__, index)) if isinstance(cases, Dataset) else cases[index]


def _folder_and_name(path: str) -> str:
    folder, _, name = path.rpartition(os.sep)
    return f"{folder.rpartition(os.sep)[2]}/{name}"


def _hash_pair(pair: Pair) -> tuple[str, ...]:
    return tuple(hash_path(path) for path in pair.files)


def hash_path(path: Path) -> str:
    """Sha256 of a file, or of the files of a Zarr folder."""
    return hash_folder(path) if path.is_dir() else sha256_file(path)


def _changed(path: Path) -> DataError:
    rule, remedy = "to have the content that was checked at the start", "Start again once the data is settled."
    return DataError(expected(show(path), "file", rule, "another content", remedy))


def turned_size(header: Header, orientation: Orientation) -> tuple[int, int]:
    """Height and width as read: EXIF orientations from 5 up swap them."""
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
    raise DataError(expected(show(mask), "mask", rule, f"{mask_size[0]} x {mask_size[1]} (height x width)", remedy))
