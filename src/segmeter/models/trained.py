"""Opens the models that a command names: checkpoints of ours, or a model that others trained."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.files.refusals import known_place
from segmeter.errors import ConfigError
from segmeter.models.checkpoint import Checkpoint, read_checkpoint
from segmeter.models.ensemble import Ensemble
from segmeter.models.foreign.config import ForeignConfig
from segmeter.models.foreign.opened import ForeignCheckpoint, describe, find_source, open_foreign

_LOG = logging.getLogger(__name__)


class Checkpoints:
    """Verified checkpoints whose models are averaged; a single one is used alone.

    `card` is the first member's. `sha256` is the hash of a single member's weights; of several members, it is the hash
    over their hashes in the given order. `class_pixels` (K,) counts the pixels per class of the training set; None if
    it is unknown, or if the members differ. `folders` are our own checkpoints' folders: we can't write beside others.
    """

    def __init__(self, members: Sequence[Checkpoint | ForeignCheckpoint]) -> None:
        self.members = tuple(members)
        self.card = members[0].card
        self.sha256 = members[0].sha256
        if len(members) > 1:
            self.sha256 = hashlib.sha256(" ".join(member.sha256 for member in members).encode()).hexdigest()
        counts = {member.card.class_pixels for member in members}
        known = len(counts) == 1 and bool(self.card.class_pixels)
        self.class_pixels = np.array(self.card.class_pixels, np.int64) if known else None
        self.folders = [member.folder for member in members if isinstance(member, Checkpoint)]

    def facts(self) -> dict[str, Any]:
        """Return the entries of run.json about these checkpoints."""
        paths = list[str]()
        progress = list[dict[str, Any]]()
        for member in self.members:
            paths.append(known_place(member.folder) if isinstance(member, Checkpoint) else member.source.text)
            progress.append(dict(member.progress) if isinstance(member, Checkpoint) else {})
        single = len(self.members) == 1
        return {
            "checkpoint": paths[0] if single else paths,
            "checkpoint_sha256": self.sha256,
            "trained": progress[0] if single else progress,
        }

    def load(self, device: str | torch.device = "cpu") -> Ensemble:
        """Build the models and load their weights, in evaluation mode.

        Raises
        ------
        CheckpointError
            As for `Checkpoint.load_segmenter`.
        ConfigError
            They differ in task, classes, ignored value or channels.
        """
        return Ensemble([member.load_segmenter(device) for member in self.members])


def read_checkpoints(
    paths: Sequence[Path], *, user_card: ForeignConfig | None = None, spec: ClassSpec | None = None
) -> Checkpoints:
    """Open one or several checkpoints, and verify their manifests and weights; or a model that others trained.

    Parameters
    ----------
    user_card
        The configuration's card of a model that others trained.
    spec
        The data's classes, to which its classes are mapped; None takes those of its card.

    Raises
    ------
    CheckpointError
        As for `read_checkpoint`; or a foreign model can't be read or would run code.
    ConfigError
        There is none, or a checkpoint is given twice, which would weigh it twice; or a foreign model's card is not
        complete.
    """
    sources = [find_source(path) for path in paths]
    if len(sources) == 1 and sources[0] is not None:
        described = describe(sources[0], user_card or ForeignConfig())
        if described.guessed:
            keys = ", ".join(f"model.{key}" for key in described.guessed)
            _LOG.warning("%s: guessed %s. segmeter check checkpoint=... writes a card to confirm.", paths[0], keys)
        return Checkpoints((open_foreign(described, spec),))
    if any(sources):
        rule = "to be a single model if others trained it"
        raise ConfigError(expected("config", "checkpoint", rule, ", ".join(map(str, paths))))
    if user_card not in (None, ForeignConfig()):
        raise ConfigError("model: its keys describe models that others trained; this checkpoint has its own card.")
    members = tuple(read_checkpoint(path) for path in paths)
    folders = [str(member.folder) for member in members]
    twice = sorted({folder for folder in folders if folders.count(folder) > 1})
    if twice or not members:
        given = f"{', '.join(twice)} twice" if twice else "none"
        raise ConfigError(expected("config", "checkpoint", "to name one or more different checkpoints", given))
    return Checkpoints(members)
