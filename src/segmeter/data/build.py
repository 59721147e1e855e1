"""Opens the splits of the data set that a configuration describes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from segmeter.checks import expected
from segmeter.data.config import DATA, SPLITS, DataConfig
from segmeter.data.dataset import Dataset
from segmeter.data.verification.report import DataReport, check_splits
from segmeter.data.verification.verify import header_problems
from segmeter.errors import ConfigError, DataError


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
