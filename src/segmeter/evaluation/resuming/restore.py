"""The manifest of an evaluation that is resumed -> cases that stay, files to make again, and cases to predict."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import some
from segmeter.distributed.batches import split_batches
from segmeter.evaluation.manifest import Manifest, read_journal
from segmeter.files import is_whole

_LOG = logging.getLogger(__name__)


def open_manifest(folder: Path, identity: Mapping[str, Any], cases: Sequence[str], *, resume: bool) -> Manifest:
    """Start a run's manifest, or continue it; a finished run whose results are missing or damaged is begun again.

    Raises
    ------
    ConfigError
        The resumed run used another configuration or other cases.
    """
    if not resume:
        return Manifest.begin(folder, identity, cases)
    manifest = Manifest.resume(folder, identity, cases)
    damaged = manifest.damaged_results() if manifest.done else []
    if not damaged:
        return manifest
    _LOG.warning("resume: missing or damaged results are written again (%s).", some(damaged))
    return Manifest.begin(folder, identity, cases)


def count_restorable(manifest: Manifest, *, batch_size: int, batches: Sequence[Any] | None = None) -> int:
    """Count how many of the first cases are done, up to the end of a batch.

    What follows is predicted again in the batches of an uninterrupted run: in others a network's outputs may differ in
    their last bits. At most one batch, and what waited to be written, is done twice, and counted once.

    Parameters
    ----------
    manifest
        The run's manifest; the run went through the cases in the order of ``manifest.cases``, with notes by `describe`.
    batch_size
        Images of one shape that are predicted together.
    batches
        What tells the batches of all cases apart, where that is known; None takes the kinds of the images.
    """
    kinds: list[Any] = []
    for (entry, _), case_id in zip(read_journal(manifest.folder), manifest.cases, strict=False):
        if entry.case_id != case_id:
            break
        kinds.append(entry.note["image"])
    known = kinds if batches is None else batches[: len(kinds)]
    return whole_batches(known, batch_size, len(manifest.cases))


def whole_batches(kinds: Sequence[Any], size: int, total: int) -> int:
    """Count how many of the first images fill batches of one kind each, out of `total`.

    Examples
    --------
    >>> whole_batches("aaaab", 2, 9), whole_batches("aaaaab", 4, 6)
    (4, 6)
    """
    batches = list(split_batches(kinds, size))
    whole = not batches or len(kinds) == total or len(batches[-1]) == size
    return len(kinds) if whole else batches[-1].start


def find_damaged(notes: Sequence[Mapping[str, Any]], predictions: Path) -> dict[int, list[str]]:
    """Find the cases with a file that is missing or not as it was written: index of the case -> names of the files."""
    found = {
        index: [name for name, entry in note["files"].items() if not is_whole(predictions / name, entry)]
        for index, note in enumerate(notes)
    }
    return {index: names for index, names in found.items() if names}
