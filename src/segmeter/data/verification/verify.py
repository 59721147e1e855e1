"""Reads every file of a data set once before work starts, except those whose findings an earlier start has stored.

A file counts as unchanged while its path, size, modification time, status change time and inode are the same. Writing
into a file changes its status time even if size and modification time are put back. If a file was read less than
`SETTLED_SECONDS` after its last change, a later write could get the same times. So its findings are not stored, and the
next start reads it again.
"""

import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
import tifffile
from numpy.typing import NDArray

from segmeter import __version__
from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset, check_same_size, turned_size
from segmeter.data.files.refusals import read_state, show
from segmeter.data.images import check_image_header
from segmeter.data.masks.annotations import annotations_of
from segmeter.data.masks.reading import check_mask_header, check_one_plane, has_pixels, hash_map
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair, count_classes, count_decided
from segmeter.data.verification.intensity import FULL_SCALE, LEVELS, measure_image, measure_rows
from segmeter.errors import DataError
from segmeter.files import atomic_write, sha256_json
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.records import cache_folder
from segmeter.remote import fetch_ahead

Value = TypeVar("Value")
Rows = NDArray[np.void]

DTYPES = tuple(FULL_SCALE)
SETTLED_SECONDS = 2.0  # the resolution of FAT's clock, the coarsest of all file systems in use
# The cache holds at most this many files and bytes. The least recently used files are deleted first.
MAX_FILES = 64
MAX_BYTES = 2 * 1024**3
_SUFFIX = ".verified"
_FINDINGS = 3  # Raise this version whenever the findings of an unchanged file would be different.
_CHUNK = 512  # One task reads the states of this many cases.
_LINES = 512  # Read this many lines of a large image at a time.


def header_problems(dataset: Dataset) -> list[str]:
    """Read the header of every file and return one line for each problem.

    A file may be unreadable, the wrong kind of image or mask, or have another size than its partner.
    """
    ahead = fetch_ahead(range(len(dataset)), lambda index: dataset.pairs[index].files)
    checks = track(map_in_threads(partial(_header_problems, dataset), ahead), "checking headers", len(dataset))
    return [problem for problems in checks for problem in problems]


def _header_problems(dataset: Dataset, index: int) -> list[str]:
    if isinstance(dataset, VolumeSet):
        return dataset.header_problems(index)
    pair = dataset.pairs[index]
    problems: list[str] = []
    image = _attempt(problems, partial(dataset.header_of, index))
    if image is not None:
        check = partial(check_image_header, channels=dataset.in_channels, orientation=dataset.orientation)
        _attempt(problems, partial(check, pair.image, image, level=dataset.reading.level))
    for number, path in enumerate(pair.masks, 1):
        if not has_pixels(path):  # drawn objects take the image's size
            continue
        mask = _attempt(problems, partial(dataset.header_of, index, number))
        if mask is None:
            continue
        _attempt(problems, partial(check_mask_header, path, mask, label_map=dataset.reading.label_map))
        _attempt(problems, partial(check_one_plane, path, mask.shape[: 2 + len(mask.lead)]))
        if image is not None:
            size = turned_size(image, dataset.orientation)
            _attempt(problems, partial(check_same_size, pair.image, size, path, (mask.height, mask.width)))
    return problems


@dataclass(frozen=True)
class Verified:
    """The findings of a data set.

    `rows` has one row per case, see `row_dtype`. `known` is the number of cases that came from the cache.
    """

    rows: Rows
    problems: tuple[str, ...]
    known: int

    @cached_property
    def hashes(self) -> list[tuple[str, ...]]:
        """Sha256 of the files of each case, the image first."""
        n_files = self.rows["sha256"].shape[1]
        digits = self.rows["sha256"].tobytes().hex()
        hashes = [digits[start : start + 64] for start in range(0, len(digits), 64)]
        return [tuple(hashes[start : start + n_files]) for start in range(0, len(hashes), n_files)]


def verify(dataset: Dataset, *, use_cache: bool) -> Verified:
    """Read every file of all cases, except those unchanged since they were last verified.

    Parameters
    ----------
    dataset
        All its cases are read.
    use_cache
        Whether to use the findings of earlier starts. Those of this one are stored either way, except for files that
        have just changed.
    """
    dtype = row_dtype(dataset)
    store = _store(dataset, dtype)
    rows = np.zeros(len(dataset), dtype)
    working_folder = str(Path.cwd())
    names = [os.path.join(working_folder, pair.paths[0]) for pair in dataset.pairs]  # noqa: PTH118 - as in `read_state`
    start_ns = time.time_ns()
    n_files = rows["state"].shape[1]
    # in chunks, because starting a task per case would cost more than its work
    chunks = (dataset.pairs[start : start + _CHUNK] for start in range(0, len(dataset), _CHUNK))
    states_of = map_in_threads(lambda chunk: np.array([_states(pair, n_files) for pair in chunk], np.int64), chunks)
    states = np.concatenate([rows["state"][:0], *states_of])
    numbers, cached_rows = load_rows(store, dtype) if use_cache else ({}, rows)
    cached = np.array([numbers.get(name, -1) for name in names], np.int64)
    is_cached = cached >= 0
    rows[is_cached] = cached_rows[cached[is_cached]]
    unchanged = is_cached & (rows["state"] == states).all((1, 2))
    rows[~unchanged] = np.zeros((), dtype)
    rows["state"] = states
    unread = np.flatnonzero(~unchanged).tolist()
    problems: list[str] = []
    streamed = dataset.streamed_cases() if unread else frozenset()  # reads headers
    ahead = fetch_ahead(unread, lambda index: dataset.pairs[index].files)
    read = map_in_threads(partial(_verify_case, dataset, dtype, streamed), ahead)
    for index, (row, lines) in zip(unread, track(read, f"checking {dataset.split}", len(unread)), strict=True):
        rows[index] = row
        problems += lines
    settled_ns = start_ns - int(SETTLED_SECONDS * 1e9)
    valid = [index for index in unread if rows[index]["size"].all()]
    settled = [index for index in valid if (rows[index]["state"][:, 1:3] < settled_ns).all()]
    if settled:
        save_rows(store, [names[index] for index in settled], rows[settled])
    return Verified(rows, tuple(problems), len(rows) - len(unread))


def row_dtype(dataset: Dataset) -> np.dtype[Any]:
    """Return the dtype of the findings of a case.

    `state` and `sha256` are those of each file, see `read_state`. `size` is the (height, width) of the planes, zeros if
    something is wrong, and `planes` is their number. `dtype` is that of the image, as an index of `DTYPES`. `mean`,
    `variance` and `levels` describe its values, see `measure_image`. `classes` holds the pixels of each class, and
    `counted` the pixels that are not ignored, see `count_decided`. `palette` tells whether a mask has one.
    """
    n_files = max((len(pair.paths) for pair in dataset.pairs), default=1)
    channels = dataset.in_channels
    classes = dataset.spec.num_classes
    return np.dtype(
        [
            ("state", np.int64, (n_files, 4)),
            ("sha256", np.uint8, (n_files, 32)),
            ("size", np.int32, (2,)),
            ("planes", np.int32),
            ("dtype", np.int8),
            ("mean", np.float64, (channels,)),
            ("variance", np.float64, (channels,)),
            ("levels", np.float32, (len(LEVELS), channels)),
            ("classes", np.int64, (classes,)),
            ("counted", np.int64, (classes,)),
            ("palette", np.bool_),
        ]
    )


def _store(dataset: Dataset, dtype: np.dtype[Any]) -> Path:
    """Return the file of the cache, whose name is a hash of everything that decides what is found in a file.

    The folders of the first case are in the hash too, so that each data set has a file of its own.
    """
    spec = dataset.spec
    reading = dataset.reading
    folders = sorted({show(path.parent.absolute()) for pair in dataset.pairs[:1] for path in pair.files})
    options = [dataset.in_channels, sorted(reading.label_map.items()), reading.max_pixels, dataset.orientation]
    options += [reading.level, dataset.streams, reading.key, reading.overlap, reading.corners]
    tools = [__version__, np.__version__, PIL.__version__, tifffile.__version__]
    meaning = [spec.task, *spec.counting.values(), reading.instances, reading.divisor]
    planes = dataset.planes if isinstance(dataset, VolumeSet) else None
    settings = [_FINDINGS, tools, folders, options, meaning, planes, str(dtype)]
    return cache_folder() / f"{sha256_json(settings)[:40]}{_SUFFIX}"


def load_rows(store: Path, dtype: np.dtype[Any]) -> tuple[dict[str, int], Rows]:
    """Return the number of each case's row by name, and the rows; both are empty if the file is missing or damaged."""
    try:
        if store.stat().st_size <= MAX_BYTES:
            # a ZIP file, whose checksums are verified
            with store.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                names, rows = json.loads(bytes(stored["names"])), stored["rows"]
            os.utime(store)  # marks it as used
            if len(rows) == len(names) and rows.dtype == dtype:
                return {name: number for number, name in enumerate(names)}, rows
    except Exception:  # a damaged ZIP or NPY file raises many types, and none is worth a refusal
        pass
    return {}, np.zeros(0, dtype)


def save_rows(store: Path, names: Sequence[str], rows: Rows) -> None:
    """Add rows, replace older ones of the same names, and delete files for which the cache has no room."""
    numbers, old_rows = load_rows(store, rows.dtype)
    new_names = set(names)
    others = {name: number for name, number in numbers.items() if name not in new_names}
    names_json = json.dumps([*others, *names]).encode()
    buffer = io.BytesIO()
    all_rows = np.concatenate([old_rows[[*others.values()]], rows])
    np.savez(buffer, names=np.frombuffer(names_json, np.uint8), rows=all_rows)
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(store) as file:
            file.write(buffer.getbuffer())
        total_bytes = 0
        files = store.parent.glob(f"*{_SUFFIX}")
        for number, path in enumerate(sorted(files, key=lambda path: -path.stat().st_mtime_ns)):
            total_bytes += path.stat().st_size
            if number >= MAX_FILES or total_bytes > MAX_BYTES:
                path.unlink(missing_ok=True)
    except OSError:  # the next start verifies everything again
        return


def _states(pair: Pair, n_files: int) -> list[tuple[int, int, int, int]]:
    states = [read_state(annotations_of(Path(path)) or path) for path in pair.paths]
    return states + [(0, 0, 0, 0)] * (n_files - len(states))


def _verify_case(
    dataset: Dataset, dtype: np.dtype[Any], streamed: frozenset[int], index: int
) -> tuple[Rows, list[str]]:
    """Read the files of a case within its time limit, which holds for each read of a large file."""
    row = np.zeros((), dtype)
    problems: list[str] = []
    limit = dataset.limit(index)
    work = partial(_verify_lines, dataset, index, row)
    if isinstance(dataset, VolumeSet):
        problems += dataset.header_problems(index)
        work = partial(_verify_volume, dataset, index, row)
    elif index not in streamed:
        limit(partial(_verify_files, dataset, index, row, problems))
        return row, problems
    if not problems:
        row["state"] = limit(partial(_states, dataset.pairs[index], len(row["state"])))
        _attempt(problems, work)
    return row, problems


def _verify_files(dataset: Dataset, index: int, row: Rows, problems: list[str]) -> None:
    """Read the files of a case; a problem with one file does not hide problems with others."""
    pair = dataset.pairs[index]
    row["state"] = _states(pair, len(row["state"]))
    read = _attempt(problems, partial(dataset.read_image, index, hashed=True))
    shape = (0, 0) if read is None else read[0].shape
    numbers = range(1, len(pair.paths))
    masks = [_attempt(problems, partial(dataset.read_target, index, number, shape)) for number in numbers]
    for path, mask in zip(pair.masks, masks, strict=True):
        if read is not None and mask is not None:
            _attempt(problems, partial(check_same_size, pair.image, shape[:2], path, mask.labels.shape))
    if not problems and (row["state"] != _states(pair, len(row["state"]))).any():
        problems.append(expected(show(pair.image), "files", "to stay as they are while they are checked", "changes"))
    if problems or read is None:
        return
    image, sha256 = read
    targets = [mask for mask in masks if mask is not None]
    if targets:
        target = dataset.stack([mask.labels for mask in targets])
        row["classes"] = count_classes(target, dataset.spec)
        row["counted"] = count_decided(target, dataset.spec)
    _fill(row, [sha256, *(mask.stored.sha256 for mask in targets)], image.shape, image.dtype, measure_image(image))
    row["palette"] = any(mask.stored.is_palette for mask in targets)


def _verify_lines(dataset: Dataset, index: int, row: Rows) -> None:
    """Read a case that is larger than memory, some lines at a time."""
    with dataset.open_rows(index) as (image, target):
        bands = [(top, min(top + _LINES, image.shape[0])) for top in range(0, image.shape[0], _LINES)]
        parts = ((image.read(*band), None if target is None else target.read(*band)) for band in bands)
        measured = measure_rows(_counted(parts, row, dataset.spec), image.dtype)
        hashes = [dataset.limit(index)(partial(hash_map, path)) for path in dataset.pairs[index].files]
    _fill(row, hashes, image.shape, image.dtype, measured)


def _verify_volume(dataset: VolumeSet, index: int, row: Rows) -> None:
    """Read the planes of a case that is a volume, one after the other."""
    volume = dataset.open_volume(index)
    hashes = [dataset.limit(index)(partial(hash_map, path)) for path in dataset.pairs[index].files]
    first = volume[0].image
    planes = (volume[number] for number in range(len(volume)))
    parts = ((plane.image[..., volume.own_channels], plane.target) for plane in planes)
    _fill(row, hashes, first.shape, first.dtype, measure_rows(_counted(parts, row, dataset.spec), first.dtype))
    row["planes"] = len(volume)


def _counted(
    parts: Iterable[tuple[NDArray[Any], NDArray[Any] | None]], row: Rows, spec: ClassSpec
) -> Iterator[NDArray[Any]]:
    """Yield the parts of an image, and add the classes of their targets to the row."""
    for image, target in parts:
        if target is not None:
            row["classes"] += count_classes(target, spec)
            row["counted"] += count_decided(target, spec)
        yield image


def _fill(row: Rows, hashes: list[str], shape: tuple[int, ...], dtype: np.dtype[Any], measured: Any) -> None:
    row["sha256"][: len(hashes)] = [list(bytes.fromhex(sha256)) for sha256 in hashes]
    row["size"], row["planes"], row["dtype"] = shape[:2], 1, DTYPES.index(dtype.name)
    row["mean"], row["variance"], row["levels"] = measured


def _attempt(problems: list[str], work: Callable[[], Value]) -> Value | None:
    """Return what `work` returns, or add its problems to the list."""
    try:
        return work()
    except DataError as error:
        problems.extend(error.problems)
        return None
