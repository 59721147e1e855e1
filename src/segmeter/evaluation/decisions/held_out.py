"""Opens finished evaluations with their probabilities, and refuses those of cases that a model was trained on."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.data.config import DATA, DataConfig
from segmeter.data.dataset import Dataset, read_case
from segmeter.data.files.opened import open_array
from segmeter.data.files.refusals import show
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, DataError

# A file of probabilities is named by its case, and by its dtype if they are rounded
_PROBS = re.compile(r"(.+?)(?:\.float16|\.uint8)?\.(?:npy|npz|tif|zarr)")
_REMEDY = "Run it again with export.probs=true export.probs_dtype=uint8; for suspects, on held-out cases."
_KEEP = "Run tune again with a larger keep_gb, or eval on the same split with export.probs=true."


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A finished evaluation of cases that its model never saw.

    Parameters
    ----------
    folder
        The run's folder.
    dataset
        Its cases.
    probs
        The file of probabilities of each case.
    """

    folder: Path
    dataset: Dataset
    probs: Mapping[str, Path]


def find_probs(where: str, folder: Path, case_ids: Sequence[str] | None = None) -> dict[str, Path]:
    """Find a run's files of probabilities by case, for every case or for the given ones.

    Raises
    ------
    DataError
        The run kept no probabilities, or lacks those of a case.
    """
    files = (folder / "predictions" / "probs").glob("*")
    probs = {match[1]: path for path in sorted(files) if (match := _PROBS.fullmatch(path.name))}
    key = "probs" if where == "tune" else "runs"
    wanted = sorted(probs) if case_ids is None else case_ids
    lacking = [case_id for case_id in wanted if case_id not in probs]
    if lacking or not probs:
        given = f"{folder} without those of {some(lacking)}" if probs else f"{folder}, which has none"
        remedy = _KEEP if where == "tune" else _REMEDY
        raise DataError(expected(where, key, "to hold predictions/probs", given, remedy))
    return {case_id: probs[case_id] for case_id in wanted}


def open_held_out(folder: Path, data: DataConfig, *, unseen: bool = False) -> HeldOut:
    """Open the cases of an evaluation, after checking that its model was not trained on them.

    Parameters
    ----------
    folder
        Folder of the finished run of eval.
    data
        The group `data` of the run's configuration.
    unseen
        Whether the user knows that the model saw none of the cases. data.split=all requires it.

    Raises
    ------
    ConfigError
        The evaluated split is, or may hold, the training split of the model.
    DataError
        Files are missing.
    """
    remedy = "Evaluate data.split=val or test, or each fold on its own cases (segmeter train folds=5)."
    if data.split == "train" or (data.split == "all" and not unseen):
        rule = "to be evaluations of cases that their model never saw"
        remedy += "" if data.split == "train" else " If you know that it saw none of them, add unseen=true."
        raise ConfigError(expected("suspects", "runs", rule, f"{folder} with data.split={data.split}", remedy))
    dataset = DATA.build(data, split=data.split)
    if dataset.spec.is_multilabel:
        raise ConfigError(expected("suspects", "runs", "to be of a binary or multiclass task", "multilabel"))
    if data.split != "all":
        trained = set[str]()
        with suppress(DataError):  # a test set without a training set
            trained = set(DATA.build(data, split="train").case_ids)
        if shared := sorted(trained & set(dataset.case_ids)):
            rule = "to hold no case of the training split"
            raise ConfigError(expected("suspects", "runs", rule, f"{folder} with {some(shared)}", remedy))
    return HeldOut(folder=folder, dataset=dataset, probs=find_probs("suspects", folder, dataset.case_ids))


def read_probs(path: Path, *, max_pixels: int) -> NDArray[np.float32]:
    """Read stored probabilities (C, H, W)."""
    with open_array(path, refuse_changes=True, max_pixels=max_pixels, axes="probs") as array:
        values = array.read()
    return values.astype(np.float32) / np.float32(255 if values.dtype == np.uint8 else 1)


def read_held_out(run: HeldOut, index: int) -> tuple[Sample, NDArray[Any], NDArray[np.float32]]:
    """Read a case: its sample, its reference, and its probabilities (C, H, W); DataError if their sizes differ."""
    sample = read_case(run.dataset, index)
    path = run.probs[sample.case_id]
    max_values = run.dataset.reading.max_pixels * run.dataset.spec.num_classes
    probs = read_probs(path, max_pixels=max_values)
    wanted = (run.dataset.spec.num_channels, *sample.image.shape[:2])
    if probs.shape != wanted:
        raise DataError(expected(show(path), "probabilities", f"to be {wanted}", probs.shape, _REMEDY))
    assert sample.target is not None  # evaluated cases have one
    return sample, sample.target, probs
