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
from segmeter.data.files.refusals import show
from segmeter.data.verification.intensity import LEVELS, Intensity, merge_images
from segmeter.data.verification.verify import DTYPES, Rows, Verified, header_problems, verify
from segmeter.errors import ConfigError, DataError

# The cause of a refused number of channels begins with this text: causes have 0 in place of every number.
_NO_CHANNELS = "image to have 0 channels"


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """The content of a split.

    Parameters
    ----------
    n_cases, n_known
        The number of cases, and the number of cases whose files are unchanged since an earlier start.
    n_planes
        The number of planes of all volumes; for images, the number of cases.
    class_pixels, class_cases : (K,), int64
        The number of pixels of each class, and of cases that have any.
    counted_pixels : (K,), int64
        The number of pixels that are not ignored; for multilabel each class has its own plane.
    ignored_pixels, total_pixels
        Counted over all planes of all targets.
    presence : (N, K), bool
        The classes in each case.
    sizes, dtypes
        The number of cases of each (height, width), and of each image dtype.
    intensities
        The values of the images, per dtype.
    content_sha256
        One hash over the hashes of all files, in the order of the case ids.
    file_sha256
        Hashes of the files of each case, the image first, for `Dataset.with_contents`.
    warnings
        Oddities of usable data, one line each.
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
    datasets: Sequence[Dataset], *, problems: Iterable[str] = (), use_cache: bool = True, named: Sequence[Dataset] = ()
) -> tuple[DataReport, ...]:
    """Check several splits of one data set, and check that no two share a case's name or an image.

    Parameters
    ----------
    datasets
        The splits. Their `problems` are reported together with problems of their files.
    problems
        Problems of splits that could not be opened.
    use_cache
        Whether to skip files that are unchanged since an earlier start, see `segmeter.data.verification.verify`.
    named
        Other splits, which may not have a case of the same name; none of their files is read.

    Raises
    ------
    DataError
        One line for every file that can't be used, and for every overlap.
    """
    verified = [verify(dataset, use_cache=use_cache) for dataset in datasets]
    lines = [*problems, *(line for dataset in datasets for line in dataset.problems)]
    lines += [line for findings in verified for line in findings.problems]
    n_images = sum(map(len, datasets))
    n_odd = sum(getattr(line, "cause", "").startswith(_NO_CHANNELS) for line in lines)
    if 0 < n_odd < n_images:  # no number of channels fits all, so advice about one file would only make others fail
        count = f"another one in {n_odd} of {n_images}"
        remedy = "Convert all images to one number: data.in_channels is that of the whole data set."
        lines.append(expected("data", "images", "to have one number of channels", count, remedy))
    hashes = [findings.hashes for findings in verified]
    for (first, first_hashes), (second, second_hashes) in combinations(zip(datasets, hashes, strict=True), 2):
        lines += _shared(first, first_hashes, second, second_hashes)
    lines += [line for dataset in datasets for other in named for line in _shared(dataset, [], other, [])]
    if lines:
        raise DataError(list(dict.fromkeys(lines)))
    return tuple(_report(dataset, findings) for dataset, findings in zip(datasets, verified, strict=True))


def _shared(
    first: Dataset, first_hashes: list[tuple[str, ...]], second: Dataset, second_hashes: list[tuple[str, ...]]
) -> list[str]:
    """Report leakage between two splits: cases of the same name, and equal images of different names.

    The hashes are those of the files of each case, or empty if the files were not read.
    """
    names = set(first.case_ids) & set(second.case_ids)
    by_hash = {files[0]: pair for files, pair in zip(first_hashes, first.pairs, strict=False) if int(files[0], 16)}
    twins = [
        f"{by_hash[files[0]].case_id} = {pair.case_id}"
        for files, pair in zip(second_hashes, second.pairs, strict=False)
        if files[0] in by_hash and pair.case_id not in names
    ]
    where = f"{first.split} and {second.split}"
    remedy = "Keep each in one split."
    problems: list[str] = []
    if names:
        problems.append(expected("data", where, "to share no case", some(names), remedy))
    if twins:
        remedy = f"The images are equal to the last byte. {remedy}"
        problems.append(expected("data", where, "to share no image", some(twins), remedy))
    return problems


def _report(dataset: Dataset, verified: Verified) -> DataReport:
    rows = verified.rows
    hashes = verified.hashes
    class_planes = dataset.spec.num_classes if dataset.spec.is_multilabel else 1
    has_target = any(pair.masks for pair in dataset.pairs)
    pixels = np.asarray(rows["size"].astype(np.int64).prod(1) * rows["planes"])  # pixels or voxels of each image
    total = int(pixels.sum()) * class_planes
    digest = hashlib.sha256(rows["sha256"].tobytes().hex().encode())
    sizes, cases = np.unique(rows["size"], axis=0, return_counts=True)
    intensities = []
    for code in np.unique(rows["dtype"]):
        of_dtype = rows["dtype"] == code
        levels = rows["levels"][of_dtype].astype(np.float64)
        moments = (rows["mean"][of_dtype], rows["variance"][of_dtype])
        intensities.append(merge_images(DTYPES[code], pixels[of_dtype].astype(np.float64), *moments, levels))
    return DataReport(
        split=dataset.split,
        n_cases=len(rows),
        n_planes=int(rows["planes"].sum()),
        n_known=verified.known,
        class_pixels=rows["classes"].sum(0),
        class_cases=(rows["classes"] > 0).sum(0),
        counted_pixels=rows["counted"].sum(0),
        ignored_pixels=total - int(rows["counted"][:, :class_planes].sum()) if has_target else 0,
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
    spec = dataset.spec
    where = f"data, {dataset.split}"
    warnings: list[str] = []
    by_hash: dict[str, list[str]] = defaultdict(list)
    for files, pair in zip(hashes, dataset.pairs, strict=True):
        by_hash[files[0]].append(pair.paths[0])
    twins = [" = ".join(show(Path(Path(path).name)) for path in paths) for paths in by_hash.values() if len(paths) > 1]
    if twins:
        warnings.append(f"{where}: images that are equal to the last byte ({some(twins)}).")
    if len(np.unique(rows["dtype"])) > 1:
        warnings.append(f"{where}: images of several dtypes, which are scaled by different maxima.")
    if rows["palette"].any():
        warnings.append(f"{where}: masks with a palette; their indices are the labels, not their colours.")
    if not any(pair.masks for pair in dataset.pairs):
        return warnings
    class_pixels = rows["classes"]
    total = class_pixels.sum(0)
    absent = [name for name, count in zip(spec.names, total, strict=True) if not count]
    if absent:
        warnings.append(f"{where}: no pixel of {', '.join(absent)}; their scores are undefined.")
    if spec.is_multilabel:
        return warnings
    if (rows["counted"] < pixels[:, None]).any() and not total[1:].any():
        warnings.append(
            f"{where}: nothing but {spec.names[0]} and ignored pixels; "
            f"if {spec.unlabelled_value} is the object, set data.label_map and another {IGNORED_KEY}."
        )
    names = np.array(dataset.case_ids)
    is_ignored = ~class_pixels.any(1)
    is_background = (class_pixels[:, 0] > 0) & ~class_pixels[:, 1:].any(1)
    if is_ignored.any():
        ignored = some(names[is_ignored])
        warnings.append(f"{where}: cases in which every pixel is ignored; their scores are undefined ({ignored}).")
    if is_background.any():
        warnings.append(f"{where}: cases of {spec.names[0]} only ({some(names[is_background])}).")
    return warnings


def describe_report(report: DataReport, config: DataConfig) -> dict[str, Any]:
    """Return everything in a report as plain values for a JSON file, except the hash of each file.

    The share of a class is its fraction of the pixels that are not ignored; None if all are.
    """
    classes = {
        name: {"pixels": int(pixels), "share": float(pixels / counted) if counted else None, "cases": int(cases)}
        for name, pixels, counted, cases in zip(
            config.classes, report.class_pixels, report.counted_pixels, report.class_cases, strict=True
        )
    }
    return {
        "cases": report.n_cases,
        "sizes": [{"height": h, "width": w, "cases": count} for (h, w), count in report.sizes.items()],
        "dtypes": report.dtypes,
        "classes": classes,
        "ignored_share": report.ignored_pixels / report.total_pixels if report.total_pixels else None,
        "intensities": [_values(intensity, config) for intensity in report.intensities],
        "content_sha256": report.content_sha256,
        "warnings": list(report.warnings),
    }


def _values(intensity: Intensity, config: DataConfig) -> dict[str, Any]:
    channels = {
        channel_label(config, c): {
            "low": float(intensity.low[c]),
            "high": float(intensity.high[c]),
            "mean": float(intensity.mean[c]),
            "std": float(intensity.std[c]),
            "percentiles": {
                f"{level:g}": float(value) for level, value in zip(LEVELS, intensity.levels[:, c], strict=True)
            },
        }
        for c in range(len(intensity.mean))
    }
    return {
        "dtype": intensity.dtype,
        "full_scale": intensity.full_scale,
        "pixels": intensity.pixels,
        "channels": channels,
    }


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
        Files are missing, unpaired or unreadable, or a mask has another size than its image.
    """
    dataset = _open(config, split or config.split)
    problems = [*dataset.problems, *header_problems(dataset)]
    if problems:
        raise DataError(problems)
    return dataset


def open_splits(
    config: DataConfig, splits: Sequence[str], *, names_of: Sequence[str] = ()
) -> tuple[tuple[Dataset, ...], tuple[DataReport, ...]]:
    """Open splits and read all of their files once, so that all problems are reported before any work starts.

    Images larger than memory are read line by line, see `Dataset`. If masks hold object numbers they are not, because
    objects need whole maps.

    Parameters
    ----------
    config
        A schema of the registry `DATA`. With ``verify="cached"``, files that are unchanged since an earlier start are
        not read again.
    splits
        Each of "train", "val", "test" and "all".
    names_of
        Other splits, if they exist, which may not have a case of the same name; none of their files is read.

    Returns
    -------
    The data sets, which refuse files that have changed since then, and a report of each.

    Raises
    ------
    ConfigError
        There is no such split.
    DataError
        One line for every problem in any of the splits, and for every case that two of them share.
    """
    datasets: list[Dataset] = []
    problems: list[str] = []
    named: list[Dataset] = []
    for split in splits:
        try:
            datasets.append(replace(_open(config, split), streams=not config.instances))
        except DataError as error:
            problems += error.problems
    for split in names_of:
        with suppress(DataError):  # the data may have no such list, or no masks for it
            named.append(_open(config, split))
    reports = check_splits(datasets, problems=problems, use_cache=config.verify == "cached", named=named)
    pinned = (dataset.with_contents(report.file_sha256) for dataset, report in zip(datasets, reports, strict=True))
    return tuple(pinned), reports


def _open(config: DataConfig, split: str) -> Dataset:
    if split not in SPLITS:
        raise ConfigError(expected("data", "split", f"to be one of {', '.join(SPLITS)}", repr(split)))
    dataset: Dataset = DATA.build(config, split=split)
    return dataset
