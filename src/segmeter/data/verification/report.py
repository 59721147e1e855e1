"""Opens the splits of a data set, checks them, and reports what they hold or everything that is wrong with them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.classes import IGNORED_KEY
from segmeter.data.config import DATA, SPLITS, DataConfig, channel_label
from segmeter.data.dataset import Dataset
from segmeter.data.files.sniff import show
from segmeter.data.verification.intensity import LEVELS, Intensity, merge_images
from segmeter.data.verification.verify import DTYPES, Rows, Verified, header_problems, verify
from segmeter.errors import ConfigError, DataError

_NO_CHANNELS = "image to have 0 channels"  # in the cause of a problem every number is 0


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """The content of a split.

    Parameters
    ----------
    n_cases, n_known
        The number of cases, and of those whose files are unchanged since an earlier start.
    n_planes
        Planes of all volumes; as many as cases for images.
    class_pixels, class_cases : (K,), int64
        Pixels of each class, and cases that have any.
    counted_pixels : (K,), int64
        Pixels that are not ignored; for multilabel each class has its own plane.
    ignored_pixels, total_pixels
        Over all planes of all targets.
    presence : (N, K), bool
        The classes in each case.
    sizes, dtypes
        The number of cases of each (height, width), and of each image dtype.
    intensities
        The values of the images, per dtype.
    content_sha256
        Over the hashes of all files in the order of the case ids.
    file_sha256
        Hashes of the files of each case, the image first, which `Dataset.with_contents` compares.
    warnings
        What is odd but usable, one line each.
    """

    split: str
    n_cases: int
    n_planes: int
    n_known: int
    class_pixels: NDArray[np.int64]
    class_cases: NDArray[np.int64]
    counted_pixels: NDArray[np.int64]
    ignored_pixels: int
    total_pixels: int
    presence: NDArray[np.bool_]
    sizes: dict[tuple[int, int], int]
    dtypes: dict[str, int]
    intensities: tuple[Intensity, ...]
    content_sha256: str
    file_sha256: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]


def check_dataset(dataset: Dataset, *, use_cache: bool = True) -> DataReport:
    """Read every file of a split once, in parallel; see `check_splits`."""
    return check_splits([dataset], use_cache=use_cache)[0]


def check_splits(
    datasets: Sequence[Dataset], *, problems: Iterable[str] = (), use_cache: bool = True, unread: Sequence[Dataset] = ()
) -> tuple[DataReport, ...]:
    """Check several splits of one data set, and that they share no case by name or content.

    Parameters
    ----------
    datasets
        The splits; their `problems` are reported together with those of their files.
    problems
        Problems of splits that could not be opened.
    use_cache
        Whether files that are unchanged since an earlier start are not read again, see
        `segmeter.data.verification.verify`.
    unread
        Other splits, which may not have a case of the same name; none of their files is read.

    Raises
    ------
    DataError
        One line for every file that can't be used, and for every overlap.
    """
    passes = [verify(dataset, use_cache=use_cache) for dataset in datasets]
    found = [*problems, *(line for dataset in datasets for line in dataset.problems)]
    found += [line for verified in passes for line in verified.problems]
    odd, images = sum(getattr(line, "cause", "").startswith(_NO_CHANNELS) for line in found), sum(map(len, datasets))
    if 0 < odd < images:  # no number of channels fits all, so advice about one file would only make others fail
        given = f"another one in {odd} of {images}"
        remedy = "Convert all images to one number: data.in_channels is that of the whole data set."
        found.append(expected("data", "images", "to have one number of channels", given, remedy))
    hashes = [verified.hashes for verified in passes]
    for (one, first), (two, second) in combinations(zip(datasets, hashes, strict=True), 2):
        found += _shared(one, first, two, second)
    found += [line for one in datasets for other in unread for line in _shared(one, [], other, [])]
    if found:
        raise DataError(list(dict.fromkeys(found)))
    return tuple(_report(dataset, verified) for dataset, verified in zip(datasets, passes, strict=True))


def _shared(one: Dataset, first: list[tuple[str, ...]], two: Dataset, second: list[tuple[str, ...]]) -> list[str]:
    """Report leakage between two splits: cases of one name, and equal images of different names.

    `first` and `second` are the hashes of their files, or empty if they were not read.
    """
    names = set(one.case_ids) & set(two.case_ids)
    here = {hashes[0]: pair for hashes, pair in zip(first, one.pairs, strict=False) if int(hashes[0], 16)}
    twins = [
        f"{here[hashes[0]].case_id} = {pair.case_id}"
        for hashes, pair in zip(second, two.pairs, strict=False)
        if hashes[0] in here and pair.case_id not in names
    ]
    where, remedy, found = f"{one.split} and {two.split}", "Keep each in one split.", list[str]()
    if names:
        found.append(expected("data", where, "to share no case", some(names), remedy))
    if twins:
        remedy = f"The images are equal to the last byte. {remedy}"
        found.append(expected("data", where, "to share no image", some(twins), remedy))
    return found


def _report(dataset: Dataset, verified: Verified) -> DataReport:
    rows, hashes = verified.rows, verified.hashes
    planes = dataset.spec.num_classes if dataset.spec.is_multilabel else 1
    has_target = any(pair.masks for pair in dataset.pairs)
    pixels = np.asarray(rows["size"].astype(np.int64).prod(1) * rows["planes"])  # or voxels, of each image
    total = int(pixels.sum()) * planes
    digest = hashlib.sha256(rows["sha256"].tobytes().hex().encode())
    sizes, cases = np.unique(rows["size"], axis=0, return_counts=True)
    intensities = []
    for code in np.unique(rows["dtype"]):
        own = rows["dtype"] == code
        levels, moments = rows["levels"][own].astype(np.float64), (rows["mean"][own], rows["variance"][own])
        intensities.append(merge_images(DTYPES[code], pixels[own].astype(np.float64), *moments, levels))
    return DataReport(
        split=dataset.split,
        n_cases=len(rows),
        n_planes=int(rows["planes"].sum()),
        n_known=verified.known,
        class_pixels=rows["classes"].sum(0),
        class_cases=(rows["classes"] > 0).sum(0),
        counted_pixels=rows["counted"].sum(0),
        ignored_pixels=total - int(rows["counted"][:, :planes].sum()) if has_target else 0,
        total_pixels=total,
        presence=rows["classes"] > 0,
        sizes=dict(zip(map(tuple, sizes.tolist()), cases.tolist(), strict=True)),
        dtypes=dict(sorted(Counter(DTYPES[code] for code in rows["dtype"].tolist()).items())),
        intensities=tuple(intensities),
        content_sha256=digest.hexdigest(),
        file_sha256=tuple(hashes),
        warnings=tuple(_warnings(dataset, rows, hashes, pixels)),
    )


def _warnings(dataset: Dataset, rows: Rows, hashes: list[tuple[str, ...]], pixels: NDArray[np.int64]) -> list[str]:
    spec, where, found = dataset.spec, f"data, {dataset.split}", list[str]()
    by_hash: dict[str, list[str]] = defaultdict(list)
    for files, pair in zip(hashes, dataset.pairs, strict=True):
        by_hash[files[0]].append(pair.paths[0])
    twins = [" = ".join(show(Path(Path(path).name)) for path in paths) for paths in by_hash.values() if len(paths) > 1]
    if twins:
        found.append(f"{where}: images that are equal to the last byte ({some(twins)}).")
    if len(np.unique(rows["dtype"])) > 1:
        found.append(f"{where}: images of several dtypes, which are scaled by different maxima.")
    if rows["palette"].any():
        found.append(f"{where}: masks with a palette; their indices are the labels, not their colours.")
    if not any(pair.masks for pair in dataset.pairs):
        return found
    per_class = rows["classes"]
    total = per_class.sum(0)
    absent = [name for name, count in zip(spec.names, total, strict=True) if not count]
    if absent:
        found.append(f"{where}: no pixel of {', '.join(absent)}; their scores are undefined.")
    if spec.is_multilabel:
        return found
    if (rows["counted"] < pixels[:, None]).any() and not total[1:].any():
        found.append(
            f"{where}: nothing but {spec.names[0]} and ignored pixels; "
            f"if {spec.unlabelled_value} is the object, set data.label_map and another {IGNORED_KEY}."
        )
    names = np.array(dataset.case_ids)
    empty, plain = ~per_class.any(1), (per_class[:, 0] > 0) & ~per_class[:, 1:].any(1)
    if empty.any():
        listed = some(names[empty])
        found.append(f"{where}: cases in which every pixel is ignored; their scores are undefined ({listed}).")
    if plain.any():
        found.append(f"{where}: cases of {spec.names[0]} only ({some(names[plain])}).")
    return found


def describe_report(report: DataReport, config: DataConfig) -> dict[str, Any]:
    """Return everything in a report as plain values for a JSON file, except the hash of each file.

    A class's share is that of the pixels in which it is decided; None if there are none.
    """
    classes = {
        name: {"pixels": int(own), "share": float(own / counted) if counted else None, "cases": int(cases)}
        for name, own, counted, cases in zip(
            config.classes, report.class_pixels, report.counted_pixels, report.class_cases, strict=True
        )
    }
    return {
        "cases": report.n_cases,
        "sizes": [{"height": h, "width": w, "cases": count} for (h, w), count in report.sizes.items()],
        "dtypes": report.dtypes,
        "classes": classes,
        "ignored_share": report.ignored_pixels / report.total_pixels if report.total_pixels else None,
        "intensities": [_values(each, config) for each in report.intensities],
        "content_sha256": report.content_sha256,
        "warnings": list(report.warnings),
    }


def _values(found: Intensity, config: DataConfig) -> dict[str, Any]:
    channels = {
        channel_label(config, c): {
            "low": float(found.low[c]),
            "high": float(found.high[c]),
            "mean": float(found.mean[c]),
            "std": float(found.std[c]),
            "percentiles": {
                f"{level:g}": float(value) for level, value in zip(LEVELS, found.levels[:, c], strict=True)
            },
        }
        for c in range(len(found.mean))
    }
    return {"dtype": found.dtype, "full_scale": found.full_scale, "pixels": found.pixels, "channels": channels}


def build_dataset(config: DataConfig, *, split: str | None = None) -> Dataset:
    """Open one split of the data set.

    Every file's header is read, so that all unusable files are refused at once, before the first step.

    Parameters
    ----------
    config
        A schema of the registry `DATA`.
    split
        "train", "val", "test" or "all"; None takes ``config.split``.

    Raises
    ------
    ConfigError
        There is no such split.
    DataError
        Files are missing, unpaired, unreadable or of two sizes.
    """
    dataset = _open(config, split or config.split)
    problems = [*dataset.problems, *header_problems(dataset)]
    if problems:
        raise DataError(problems)
    return dataset


def open_splits(
    config: DataConfig, splits: Sequence[str], *, unread: Sequence[str] = ()
) -> tuple[tuple[Dataset, ...], tuple[DataReport, ...]]:
    """Open splits and read every file of them once, so that all problems are reported before any work starts.

    Images larger than memory are read line by line, see `Dataset`, unless masks hold object numbers, which need whole
    maps.

    Parameters
    ----------
    config
        A schema of the registry `DATA`; with ``verify="cached"`` files that are unchanged since an earlier start are
        not read again.
    splits
        Each of "train", "val", "test" and "all".
    unread
        Other splits, if they exist, which may not have a case of the same name; none of their files is read.

    Returns
    -------
    The data sets, which refuse files that change later, and a report of each.

    Raises
    ------
    ConfigError
        There is no such split.
    DataError
        One line for every problem in any of the splits, and for every case that two of them share.
    """
    datasets, problems, others = list[Dataset](), list[str](), list[Dataset]()
    for split in unread:
        with suppress(DataError):  # the data may have no such list, or no masks for it
            others.append(_open(config, split))
    for split in splits:
        try:
            datasets.append(replace(_open(config, split), streams=not config.instances))
        except DataError as error:
            problems += error.problems
    reports = check_splits(datasets, problems=problems, use_cache=config.verify == "cached", unread=others)
    verified = (dataset.with_contents(report.file_sha256) for dataset, report in zip(datasets, reports, strict=True))
    return tuple(verified), reports


def _open(config: DataConfig, split: str) -> Dataset:
    if split not in SPLITS:
        raise ConfigError(expected("data", "split", f"to be one of {', '.join(SPLITS)}", repr(split)))
    dataset: Dataset = DATA.build(config, split=split)
    return dataset
