"""Dataset -> DataReport: every file read once, and everything that is wrong said at once."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from segmeter.checks import expected
from segmeter.data.dataset import Dataset, in_threads, join_hashes
from segmeter.data.formats import show
from segmeter.data.header import read_header
from segmeter.data.listing import some
from segmeter.errors import DataError
from segmeter.files import sha256_file
from segmeter.progress import track
from segmeter.vocabulary import ClassSpec


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """What a split holds.

    `class_pixels` and `class_cases` are int64 (K,): pixels of each class, and cases that have any. `sizes` counts the
    cases of each (height, width). `dtypes` counts those of each image dtype. `content_sha256` is over all files'
    bytes in the order of the case ids, `case_hashes` are those of `Dataset.hash_case`. `warnings` are odd but usable:
    each is one line.
    """

    split: str
    n_cases: int
    class_pixels: np.ndarray
    class_cases: np.ndarray
    ignored_pixels: int
    total_pixels: int
    sizes: dict[tuple[int, int], int]
    dtypes: dict[str, int]
    content_sha256: str
    case_hashes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Case:
    """What one pass over a case's files leaves."""

    problems: tuple[str, ...]
    size: tuple[int, int] = (0, 0)
    dtype: str = ""
    hashes: tuple[str, ...] = ()
    class_pixels: np.ndarray | None = None
    ignored_pixels: int = 0
    has_palette: bool = False


def check_dataset(dataset: Dataset) -> DataReport:
    """Read every file of a split once, in parallel.

    Raises
    ------
    DataError
        With one line for every file that can't be used.
    """
    return check_splits([dataset])[0]


def check_splits(datasets: Sequence[Dataset]) -> tuple[DataReport, ...]:
    """Check several splits of one data set, and that they share no case, by name or by content.

    Raises
    ------
    DataError
        With one line for every file that can't be used, and for every overlap.
    """
    passes = [_read_all(dataset) for dataset in datasets]
    problems = [problem for cases in passes for case in cases for problem in case.problems]
    for (one, one_cases), (two, two_cases) in combinations(zip(datasets, passes, strict=True), 2):
        problems += _overlaps(one, one_cases, two, two_cases)
    if problems:
        raise DataError(problems)
    return tuple(_report(dataset, cases) for dataset, cases in zip(datasets, passes, strict=True))


def class_counts(dataset: Dataset) -> np.ndarray:
    """Count the pixels of each class over all targets.

    Returns
    -------
    int64 (K,). Ignored pixels are in none.

    Raises
    ------
    DataError
        A mask can't be used.
    """
    total = np.zeros(dataset.spec.num_classes, np.int64)
    counts = in_threads(partial(_count_case, dataset), range(len(dataset)))
    for pixels in track(counts, "counting classes", len(dataset)):
        total += pixels
    return total


def count_classes(target: np.ndarray, spec: ClassSpec) -> np.ndarray:
    """Count the pixels of each class in one target.

    Parameters
    ----------
    target : (H, W), or (K, H, W) for multilabel
    spec
        What its labels mean.

    Returns
    -------
    int64 (K,). Ignored pixels are in none.
    """
    if spec.task == "multilabel":
        return np.asarray((target == 1).sum((1, 2)), np.int64)
    counts = np.bincount(target.ravel(), minlength=spec.num_classes)
    return np.asarray(counts[: spec.num_classes], np.int64)


def _count_case(dataset: Dataset, index: int) -> np.ndarray:
    target = dataset.read_target(index)
    if target is None:
        return np.zeros(dataset.spec.num_classes, np.int64)
    return count_classes(target, dataset.spec)


def _read_all(dataset: Dataset) -> list[_Case]:
    cases = in_threads(partial(_read_case, dataset), range(len(dataset)))
    return list(track(cases, f"checking {dataset.split}", len(dataset)))


def _read_case(dataset: Dataset, index: int) -> _Case:
    pair = dataset.pairs[index]
    try:
        sample = dataset[index]
        hashes = tuple(sha256_file(path) for path in (pair.image, *pair.masks))
        palette = any(read_header(path, max_pixels=dataset.max_pixels).kind == "palette" for path in pair.masks)
    except DataError as error:
        return _Case(error.problems)
    case = partial(_Case, (), sample.image.shape[:2], sample.image.dtype.name, hashes)
    if sample.target is None:
        return case()
    ignored = dataset.spec.ignore_index
    return case(
        class_pixels=count_classes(sample.target, dataset.spec),
        ignored_pixels=0 if ignored is None else int((sample.target == ignored).sum()),
        has_palette=palette,
    )


def _overlaps(one: Dataset, one_cases: list[_Case], two: Dataset, two_cases: list[_Case]) -> list[str]:
    splits = f"{one.split} and {two.split}"
    names = set(one.case_ids) & set(two.case_ids)
    problems = [expected("data", splits, "to share no case", some(names), "Keep each in one split.")] if names else []
    here = {case.hashes[0]: pair for case, pair in zip(one_cases, one.pairs, strict=True) if case.hashes}
    twins = [
        f"{here[case.hashes[0]].case_id} = {pair.case_id}"
        for case, pair in zip(two_cases, two.pairs, strict=True)
        if case.hashes and case.hashes[0] in here and pair.case_id not in names
    ]
    if twins:
        remedy = "The images are equal to the last byte. Keep each in one split."
        problems.append(expected("data", splits, "to share no image", some(twins), remedy))
    return problems


def _report(dataset: Dataset, cases: list[_Case]) -> DataReport:
    counted = [case.class_pixels for case in cases if case.class_pixels is not None]
    per_class = np.stack(counted) if counted else np.zeros((0, dataset.spec.num_classes), np.int64)
    digest = hashlib.sha256("".join(value for case in cases for value in case.hashes).encode())
    return DataReport(
        split=dataset.split,
        n_cases=len(cases),
        class_pixels=per_class.sum(0),
        class_cases=(per_class > 0).sum(0),
        ignored_pixels=sum(case.ignored_pixels for case in cases),
        total_pixels=sum(case.size[0] * case.size[1] for case in cases),
        sizes=dict(sorted(Counter(case.size for case in cases).items())),
        dtypes=dict(sorted(Counter(case.dtype for case in cases).items())),
        content_sha256=digest.hexdigest(),
        case_hashes=tuple(join_hashes(case.hashes) for case in cases),
        warnings=tuple(_warnings(dataset, cases, per_class)),
    )


def _warnings(dataset: Dataset, cases: list[_Case], per_class: np.ndarray) -> list[str]:
    where, found = f"data, {dataset.split}", []
    by_hash: dict[str, list[Path]] = defaultdict(list)
    for case, pair in zip(cases, dataset.pairs, strict=True):
        by_hash[case.hashes[0]].append(pair.image)
    twins = [" = ".join(show(Path(path.name)) for path in paths) for paths in by_hash.values() if len(paths) > 1]
    if twins:
        found.append(f"{where}: images that are equal to the last byte ({some(twins)}).")
    if len({case.dtype for case in cases}) > 1:
        found.append(f"{where}: images of several dtypes, which are scaled by different maxima.")
    if any(case.has_palette for case in cases):
        found.append(f"{where}: masks with a palette; their indices are the labels, not their colours.")
    if len(per_class):
        found += _class_warnings(where, dataset, cases, per_class)
    return found


def _class_warnings(where: str, dataset: Dataset, cases: list[_Case], per_class: np.ndarray) -> list[str]:
    found = []
    absent = [name for name, count in zip(dataset.spec.names, per_class.sum(0), strict=True) if not count]
    if absent:
        found.append(f"{where}: no pixel of {', '.join(absent)}; their scores are undefined.")
    has_ignored = any(case.ignored_pixels for case in cases)
    if has_ignored and not per_class.sum(0)[1:].any():
        found.append(
            f"{where}: nothing but {dataset.spec.names[0]} and ignored pixels; "
            f"if {dataset.spec.ignore_index} is the object, set data.label_map and another data.ignore_index."
        )
    if dataset.spec.task == "multilabel":
        return found
    empty = [pair.case_id for pair, row in zip(dataset.pairs, per_class, strict=True) if not row.any()]
    if empty:
        found.append(f"{where}: cases in which every pixel is ignored; their scores are undefined ({some(empty)}).")
    plain = [pair.case_id for pair, row in zip(dataset.pairs, per_class, strict=True) if row[0] and not row[1:].any()]
    if plain:
        found.append(f"{where}: cases of {dataset.spec.names[0]} only ({some(plain)}).")
    return found
