"""configuration -> Dataset."""

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
    """Open one split of the data set that the configuration describes.

    Every file's header is read, so that what can't be used is refused, all of it at once, before the first step.

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
    """Open splits and read every file of them once, so that all that is wrong is said before any work starts.

    Images that are larger than memory are read by rows, see `Dataset`, but where masks hold numbers of objects: these
    are told apart in whole maps.

    Parameters
    ----------
    config
        A schema of the registry `DATA`; with ``verify="cached"`` files that an earlier start has verified, and that are
        unchanged, are not read again.
    splits
        Each of "train", "val", "test" and "all".
    unread
        Others, where there are such, that may not have a case of the same name; no file of them is read.

    Returns
    -------
    The data sets, which refuse a file whose content is no longer the verified one, and what each holds.

    Raises
    ------
    ConfigError
        There is no such split.
    DataError
        One line for everything that can't be used in any of the splits, and for every case that two of them share.
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
