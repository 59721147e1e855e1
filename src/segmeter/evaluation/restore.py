"""The manifest of an interrupted evaluation -> the cases that need no prediction, and those that do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segmeter.data.dataset import Dataset
from segmeter.data.sample import Sample
from segmeter.evaluation.manifest import Entry, Manifest


class Rest:
    """The cases of a data set from one on."""

    def __init__(self, dataset: Dataset, start: int) -> None:
        self._dataset = dataset
        self._start = start

    def __len__(self) -> int:
        return len(self._dataset) - self._start

    def __getitem__(self, index: int) -> Sample:
        return self._dataset[self._start + index]


def count_restorable(manifest: Manifest, predictions: Path, *, batch_size: int) -> int:
    """How many of the first cases are done with all their files, up to the end of a batch.

    What follows is predicted again in the batches of an uninterrupted run: in others a network's figures may differ in
    their last bits. At most one batch, and what waited to be written, is done twice, and counted once.

    Parameters
    ----------
    manifest
        Of a run that went through the cases in the order of ``manifest.cases``; its notes are those of `describe`.
    predictions
        The folder of its files.
    batch_size
        Images of one shape that are predicted together.
    """
    kinds: list[Any] = []
    for entry, case_id in zip(manifest.entries(), manifest.cases, strict=False):
        if entry.row.case_id != case_id or not _is_written(entry, predictions):
            break
        kinds.append(entry.note["image"])
    return whole_batches(kinds, batch_size, len(manifest.cases))


def whole_batches(kinds: Sequence[Any], size: int, total: int) -> int:
    """How many of the first images fill batches of one kind each, of `total` that there are.

    Examples
    --------
    >>> whole_batches("aaaab", 2, 9), whole_batches("aaaaab", 4, 6)
    (4, 6)
    """
    start = 0
    for index, kind in enumerate(kinds):
        if kind != kinds[start] or index - start == size:
            start = index
    return len(kinds) if len(kinds) in (total, start + size) else start


def describe(sample: Sample, files: Sequence[str]) -> dict[str, Any]:
    """What a case's entry notes: the kind of its image, which decides on batches, and the files that were queued."""
    return {"image": [*sample.image.shape, str(sample.image.dtype)], "files": list(files)}


def _is_written(entry: Entry, predictions: Path) -> bool:
    """Files appear complete or not at all."""
    return all((predictions / name).exists() for name in entry.note["files"])
