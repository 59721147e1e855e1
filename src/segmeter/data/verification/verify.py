"""Reads every file of a data set once before work starts, or not at all if an earlier start has read it unchanged.

A file counts as unchanged while its path, size, modification time, status change time and inode are the same. Writing
into a file changes its status time even if size and modification time are put back. If a file was read less than
`SETTLED_SECONDS` after its last change, a later write could get the same times, so it is verified again.
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
from segmeter.data.files.sniff import read_state, show
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
SETTLED_SECONDS = 2.0  # the coarsest clock of any file system in use (FAT's)
MAX_FILES, MAX_BYTES = 64, 2 * 1024**3  # of the whole cache; the least recently used files go first
_SUFFIX = ".verified"
_FINDINGS = 3  # raise it whenever something else is found in a file
_CHUNK = 512  # cases whose states one task reads
_LINES = 512  # lines of a large image that are read at a time


def header_problems(dataset: Dataset) -> list[str]:
    """Read the header of every file and return one line for each problem.

    A file may be unreadable, the wrong kind of image or mask, or of another size than its partner.
    """
    ahead = fetch_ahead(range(len(dataset)), lambda index: dataset.pairs[index].files)
    checks = track(map_in_threads(partial(_header_problems, dataset), ahead), "checking headers", len(dataset))
    return [problem for found in checks for problem in found]


def _header_problems(dataset: Dataset, index: int) -> list[str]:
    if isinstance(dataset, VolumeSet):
        return dataset.header_problems(index)
    pair, problems = dataset.pairs[index], list[str]()
    image = _attempt(problems, partial(dataset.header_of, index))
    if image is not None:
        given: dict[str, Any] = {"channels": dataset.in_channels, "orientation": dataset.orientation}
        _attempt(problems, partial(check_image_header, pair.image, image, **given, level=dataset.reading.level))
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
    """The findings of a data set: one row per case (see `row_dtype`), its problems, and how many cases were known."""

    rows: Rows
    problems: tuple[str, ...]
    known: int

    @cached_property
    def hashes(self) -> list[tuple[str, ...]]:
        """Sha256 of the files of each case, the image first."""
        count, digits = self.rows["sha256"].shape[1], self.rows["sha256"].tobytes().hex()
        whole = [digits[start : start + 64] for start in range(0, len(digits), 64)]
        return [tuple(whole[start : start + count]) for start in range(0, len(whole), count)]


def verify(dataset: Dataset, *, use_cache: bool) -> Verified:
    """Read every file of all cases, except those unchanged since they were last verified.

    Parameters
    ----------
    dataset
        All its cases are read.
    use_cache
        Whether to use the findings of earlier starts. The findings of this one are stored either way.
    """
    dtype = row_dtype(dataset)
    store, rows = _store(dataset, dtype), np.zeros(len(dataset), dtype)
    here = str(Path.cwd())
    names = [os.path.join(here, pair.paths[0]) for pair in dataset.pairs]  # noqa: PTH118 - as in `read_state`
    now, most = time.time_ns(), rows["state"].shape[1]
    # in chunks, because a task per file costs more than its work
    chunks = (dataset.pairs[start : start + _CHUNK] for start in range(0, len(dataset), _CHUNK))
    found = map_in_threads(lambda chunk: np.array([_states(pair, most) for pair in chunk], np.int64), chunks)
    states = np.concatenate([rows["state"][:0], *found])
    known, kept = load_rows(store, dtype) if use_cache else ({}, rows)
    places = np.array([known.get(name, -1) for name in names], np.int64)
    there = places >= 0
    rows[there] = kept[places[there]]
    same = there & (rows["state"] == states).all((1, 2))
    rows[~same] = np.zeros((), dtype)
    rows["state"] = states
    fresh, problems = np.flatnonzero(~same).tolist(), list[str]()
    streamed = dataset.streamed_cases() if fresh else frozenset()  # reads headers
    ahead = fetch_ahead(fresh, lambda index: dataset.pairs[index].files)
    read = map_in_threads(partial(_verify_case, dataset, dtype, streamed), ahead)
    for place, (row, lines) in zip(fresh, track(read, f"checking {dataset.split}", len(fresh)), strict=True):
        rows[place] = row
        problems += lines
    limit = now - int(SETTLED_SECONDS * 1e9)
    good = [i for i in fresh if rows[i]["size"].all() and (rows[i]["state"][:, 1:3] < limit).all()]
    if good:
        save_rows(store, [names[place] for place in good], rows[good])
    return Verified(rows, tuple(problems), len(rows) - len(fresh))


def row_dtype(dataset: Dataset) -> np.dtype[Any]:
    """Return the dtype of the findings of a case.

    `state` of each file, see `read_state`; `sha256` of each; `size` (height, width) of its `planes`, zeros if something
    is wrong;
    `dtype` of the image as an index of `DTYPES`; `mean`, `variance` and `levels` of its values, see `measure_image`;
    `classes`, pixels of each class; `counted`, pixels in which each class is decided; `palette`, whether a mask has
    one.
    """
    files = max((len(pair.paths) for pair in dataset.pairs), default=1)
    channels, classes = dataset.in_channels, dataset.spec.num_classes
    return np.dtype(
        [
            ("state", np.int64, (files, 4)),
            ("sha256", np.uint8, (files, 32)),
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
    """Return the cache's file for everything that decides what is found in a file.

    The images' folder keeps data sets apart.
    """
    spec, masks = dataset.spec, dataset.reading
    folders = sorted({show(path.parent.absolute()) for pair in dataset.pairs[:1] for path in pair.files})
    reading = [dataset.in_channels, sorted(masks.label_map.items()), masks.max_pixels, dataset.orientation]
    reading += [masks.level, dataset.streams, masks.key, masks.overlap, masks.corners]
    tools = [__version__, np.__version__, PIL.__version__, tifffile.__version__]
    meaning = [spec.task, *spec.counting.values(), masks.instances, masks.divisor]
    planes = dataset.planes if isinstance(dataset, VolumeSet) else None
    settings = [_FINDINGS, tools, folders, reading, meaning, planes, str(dtype)]
    return cache_folder() / f"{sha256_json(settings)[:40]}{_SUFFIX}"


def load_rows(store: Path, dtype: np.dtype[Any]) -> tuple[dict[str, int], Rows]:
    """Return the place of each case's row by name, and the rows; none if the file is missing or damaged."""
    try:
        if store.stat().st_size <= MAX_BYTES:
            # a ZIP file, whose checksums are verified
            with store.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                names, rows = json.loads(bytes(stored["names"])), stored["rows"]
            os.utime(store)  # used now
            if len(rows) == len(names) and rows.dtype == dtype:
                return {name: place for place, name in enumerate(names)}, rows
    except Exception:  # a damaged ZIP or NPY file raises many types, and none is worth a refusal
        pass
    return {}, np.zeros(0, dtype)


def save_rows(store: Path, names: Sequence[str], rows: Rows) -> None:
    """Add rows, replace older ones of the same names, and delete what the cache has no room for."""
    known, kept = load_rows(store, rows.dtype)
    fresh = set(names)
    stay = {name: place for name, place in known.items() if name not in fresh}
    listed, buffer = json.dumps([*stay, *names]).encode(), io.BytesIO()
    every = np.concatenate([kept[[*stay.values()]], rows])
    np.savez(buffer, names=np.frombuffer(listed, np.uint8), rows=every)
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(store) as file:
            file.write(buffer.getbuffer())
        total, files = 0, store.parent.glob(f"*{_SUFFIX}")
        for number, path in enumerate(sorted(files, key=lambda path: -path.stat().st_mtime_ns)):
            total += path.stat().st_size
            if number >= MAX_FILES or total > MAX_BYTES:
                path.unlink(missing_ok=True)
    except OSError:  # everything is verified again then
        return


def _states(pair: Pair, most: int) -> list[tuple[int, int, int, int]]:
    states = [read_state(annotations_of(Path(path)) or path) for path in pair.paths]
    return states + [(0, 0, 0, 0)] * (most - len(states))


def _verify_case(
    dataset: Dataset, dtype: np.dtype[Any], streamed: frozenset[int], index: int
) -> tuple[Rows, list[str]]:
    """Read the files of a case within its time limit; large ones are limited line by line."""
    row, problems, limit = np.zeros((), dtype), list[str](), dataset.limit(index)
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
        row["classes"], row["counted"] = count_classes(target, dataset.spec), count_decided(target, dataset.spec)
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
    volume, hashes = dataset.open_volume(index), [hash_map(path) for path in dataset.pairs[index].files]
    first = volume[0].image
    planes = (volume[number] for number in range(len(volume)))
    parts = ((plane.image[..., volume.own_channels], plane.target) for plane in planes)
    _fill(row, hashes, first.shape, first.dtype, measure_rows(_counted(parts, row, dataset.spec), first.dtype))
    row["planes"] = len(volume)


def _counted(
    parts: Iterable[tuple[NDArray[Any], NDArray[Any] | None]], row: Rows, spec: ClassSpec
) -> Iterator[NDArray[Any]]:
    """Yield the parts of an image, and add up the classes of their targets."""
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
