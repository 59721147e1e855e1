"""A split of a data set: its cases in order, each read on demand."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from os import cpu_count
from pathlib import Path
from typing import TypeVar

import numpy as np

from segmeter.checks import expected
from segmeter.data.formats import show
from segmeter.data.header import MAX_PIXELS, Header, read_header
from segmeter.data.labels import label_dtype
from segmeter.data.read import Orientation, check_image_header, check_mask_header, read_image, read_mask
from segmeter.data.sample import Pair, Sample
from segmeter.errors import DataError
from segmeter.files import sha256_file
from segmeter.progress import track
from segmeter.vocabulary import ClassSpec

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 64  # tasks per thread that wait or are done, so that a million cases need no million results


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
        How files are read, see `segmeter.data.read`.
    """

    spec: ClassSpec
    in_channels: int
    split: str
    pairs: tuple[Pair, ...]
    label_map: Mapping[str, int] = field(default_factory=dict)
    max_pixels: int = MAX_PIXELS
    orientation: Orientation = "refuse"

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        """Read one case; DataError names the file that is damaged, gone or of another size."""
        pair = self.pairs[index]
        image = read_image(
            pair.image, channels=self.in_channels, max_pixels=self.max_pixels, orientation=self.orientation
        )
        return Sample(case_id=pair.case_id, image=image, target=self.read_target(index, image.shape[:2]))

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(pair.case_id for pair in self.pairs)

    def read_target(self, index: int, size: tuple[int, ...] | None = None) -> np.ndarray | None:
        """Read the target of one case alone, None where it has none.

        Parameters
        ----------
        index
            Which case.
        size
            (height, width) that it must have; None checks nothing.
        """
        pair = self.pairs[index]
        if not pair.masks:
            return None
        read = partial(read_mask, spec=self.spec, label_map=self.label_map, max_pixels=self.max_pixels)
        masks = [read(path) for path in pair.masks]
        for path, mask in zip(pair.masks, masks, strict=True):
            _check_same_size(pair.image, size or masks[0].shape, path, mask.shape)
        return np.stack(masks).astype(label_dtype(self.spec), copy=False) if self._is_multilabel else masks[0]

    def hash_case(self, index: int) -> str:
        """Sha256 over the hashes of a case's files; "" where one is gone."""
        pair = self.pairs[index]
        try:
            hashes = [sha256_file(path) for path in (pair.image, *pair.masks)]
        except OSError:
            return ""
        return join_hashes(hashes)

    def fingerprint(self) -> str:
        """Sha256 over classes, case ids, file names and file sizes; contents are hashed by `check_dataset`."""
        digest = hashlib.sha256(repr((self.spec, self.in_channels, sorted(self.label_map.items()))).encode())
        for pair in self.pairs:
            files = [(path.name, path.stat().st_size) for path in (pair.image, *pair.masks)]
            digest.update(repr((pair.case_id, files)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @property
    def _is_multilabel(self) -> bool:
        return self.spec.task == "multilabel"


def join_hashes(hashes: Iterable[str]) -> str:
    """Sha256 over the hashes of a case's files."""
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def check_headers(dataset: Dataset) -> None:
    """Refuse a data set before its first use, with every file whose header does not fit.

    Raises
    ------
    DataError
        One line per problem: unreadable files, kinds that are no image or mask, images and masks of two sizes.
    """
    checks = track(in_threads(partial(_header_problems, dataset), dataset.pairs), "checking headers", len(dataset))
    problems = [problem for found in checks for problem in found]
    if problems:
        raise DataError(problems)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map `work` over `items` in threads (decoding frees the interpreter), in order and in bounded memory."""
    workers = min(16, 2 * (cpu_count() or 1))
    waiting = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(work, item) for item in islice(waiting, workers * _AHEAD)]
        while running:
            results = [job.result() for job in running]
            running = [pool.submit(work, item) for item in islice(waiting, workers * _AHEAD)]
            yield from results


def _header_problems(dataset: Dataset, pair: Pair) -> list[str]:
    problems: list[str] = []
    image = _try_header(dataset, pair.image, problems)
    if image is not None:
        check = partial(check_image_header, channels=dataset.in_channels, orientation=dataset.orientation)
        _note(problems, lambda: check(pair.image, image))
    for path in pair.masks:
        mask = _try_header(dataset, path, problems)
        if mask is not None:
            _note(problems, partial(check_mask_header, path, mask, label_map=dataset.label_map))
        if mask is not None and image is not None:
            size = _turned(image, dataset.orientation)
            _note(problems, partial(_check_same_size, pair.image, size, path, (mask.height, mask.width)))
    return problems


def _try_header(dataset: Dataset, path: Path, problems: list[str]) -> Header | None:
    try:
        return read_header(path, max_pixels=dataset.max_pixels)
    except DataError as error:
        problems.extend(error.problems)
        return None


def _note(problems: list[str], check: Callable[[], None]) -> None:
    try:
        check()
    except DataError as error:
        problems.extend(error.problems)


def _turned(header: Header, orientation: Orientation) -> tuple[int, int]:
    """Height and width as read: EXIF orientations from 5 up swap them."""
    size = (header.height, header.width)
    return size[::-1] if orientation == "apply" and header.orientation >= 5 else size


def _check_same_size(image: Path, image_size: tuple[int, ...], mask: Path, mask_size: tuple[int, ...]) -> None:
    if tuple(image_size) == tuple(mask_size):
        return
    remedy = "Give the mask of this image; nothing is resized."
    if tuple(image_size) == tuple(mask_size)[::-1]:
        remedy = "Height and width are swapped: turn the mask as the image was turned."
    rule = f"to have the size of its image {show(image)}, {image_size[0]} x {image_size[1]}"
    raise DataError(expected(show(mask), "mask", rule, f"{mask_size[0]} x {mask_size[1]} (height x width)", remedy))
