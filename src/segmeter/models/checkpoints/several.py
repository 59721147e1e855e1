"""One checkpoint, or several that are averaged -> the model that they make."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.sniff import known_place
from segmeter.errors import ConfigError
from segmeter.models.card import ModelCard
from segmeter.models.checkpoints.checkpoint import Checkpoint, read_checkpoint
from segmeter.models.ensemble import Ensemble


@dataclass(frozen=True)
class Checkpoints:
    """Verified checkpoints whose models are averaged; one alone is run as it is."""

    members: tuple[Checkpoint, ...]

    @property
    def card(self) -> ModelCard:
        """That of the first."""
        return self.members[0].card

    @property
    def sha256(self) -> str:
        """Hash of the weights; of several, over their hashes in the given order."""
        if len(self.members) == 1:
            return self.members[0].sha256
        return hashlib.sha256(" ".join(member.sha256 for member in self.members).encode()).hexdigest()

    @property
    def class_pixels(self) -> NDArray[np.int64] | None:
        """Pixels per class, (K,), of the training set; None where it is not known, or not the same for all members."""
        known = {member.card.class_pixels for member in self.members}
        counts = known.pop()
        return np.array(counts, np.int64) if counts and not known else None

    def facts(self) -> dict[str, Any]:
        """What run.json says about them."""
        folders = [known_place(member.folder) for member in self.members]
        trained = [dict(member.progress) for member in self.members]
        alone = len(self.members) == 1
        return {
            "checkpoint": folders[0] if alone else folders,
            "checkpoint_sha256": self.sha256,
            "trained": trained[0] if alone else trained,
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


def read_checkpoints(paths: Sequence[Path]) -> Checkpoints:
    """Open one or several checkpoints, and verify their manifests and weights.

    Raises
    ------
    CheckpointError
        As for `read_checkpoint`.
    ConfigError
        There is none, or one is given twice, which would weigh it twice.
    """
    members = tuple(read_checkpoint(path) for path in paths)
    folders = [str(member.folder) for member in members]
    twice = sorted({folder for folder in folders if folders.count(folder) > 1})
    if twice or not members:
        given = f"{', '.join(twice)} twice" if twice else "none"
        raise ConfigError(expected("config", "checkpoint", "to name one or more different checkpoints", given))
    return Checkpoints(members)
