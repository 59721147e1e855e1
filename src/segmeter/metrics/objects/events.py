"""overlaps of the objects of two maps -> what became of each object: matched, missed, spurious, split or merged.

Axis letters: T objects of the target, I predicted objects.
"""

from dataclasses import dataclass

import numpy as np

from segmeter.metrics.arrays import IntArray
from segmeter.metrics.objects.matching import Overlaps

TARGET_EVENTS = ("matched", "split", "merged", "missed")
INSTANCE_EVENTS = ("matched", "part", "merging", "spurious", "void")


@dataclass(frozen=True, kw_only=True)
class Events:
    """What became of each object.

    Parameters
    ----------
    targets : (T,), int64
        Index into `TARGET_EVENTS`.
    instances : (I,), int64
        Index into `INSTANCE_EVENTS`; "void" ones lie mostly in void and are not counted.
    partners : (T,), int64
        Of a matched target object the index of the predicted one; -1 of the others.
    """

    targets: IntArray
    instances: IntArray
    partners: IntArray

    def numbers(self) -> dict[str, int]:
        """How many objects each event has: of the target's, then of the predicted ones that are not matched."""
        targets = np.bincount(self.targets, minlength=len(TARGET_EVENTS))
        instances = np.bincount(self.instances, minlength=len(INSTANCE_EVENTS))
        found = dict(zip(TARGET_EVENTS, targets.tolist(), strict=True))
        return found | dict(zip(INSTANCE_EVENTS[1:4], instances[1:4].tolist(), strict=True))


def find_events(overlaps: Overlaps, chosen: IntArray) -> Events:
    """Classify the objects that are in none of the chosen pairs.

    A target object is held by the predicted one that covers more than half of it, and a predicted object lies in the
    target object that covers more than half of it; both are at most one. "merged" are target objects that are held by a
    predicted one ("merging") which holds others too. "split" are those in which two or more predicted objects lie, the
    "part"s; matched ones keep that name.

    References
    ----------
    Matula et al. 2015, doi:10.1371/journal.pone.0144959 (more than half: the vertices of the Cell Tracking Challenge).
    Caicedo et al. 2019, doi:10.1002/cyto.a.23863 (merges and splits of nuclei).
    """
    n_targets, n_instances = len(overlaps.target_ids), len(overlaps.instance_ids)
    holder, host = np.full(n_targets, -1), np.full(n_instances, -1)
    held = 2 * overlaps.common > overlaps.target_sizes[overlaps.first]
    lies = 2 * overlaps.common > overlaps.instance_sizes[overlaps.second]
    holder[overlaps.first[held]] = overlaps.second[held]
    host[overlaps.second[lies]] = overlaps.first[lies]
    holds = np.bincount(holder[holder >= 0], minlength=n_instances) > 1
    parts = np.bincount(host[host >= 0], minlength=n_targets) > 1
    targets = np.full(n_targets, TARGET_EVENTS.index("missed"))
    targets[parts] = TARGET_EVENTS.index("split")
    targets[(holder >= 0) & _at(holds, holder)] = TARGET_EVENTS.index("merged")
    targets[overlaps.first[chosen]] = TARGET_EVENTS.index("matched")
    instances = np.full(n_instances, INSTANCE_EVENTS.index("spurious"))
    instances[overlaps.mostly_void] = INSTANCE_EVENTS.index("void")
    instances[(host >= 0) & _at(targets == TARGET_EVENTS.index("split"), host)] = INSTANCE_EVENTS.index("part")
    instances[holds] = INSTANCE_EVENTS.index("merging")
    instances[overlaps.second[chosen]] = INSTANCE_EVENTS.index("matched")
    partners = np.full(n_targets, -1)
    partners[overlaps.first[chosen]] = overlaps.second[chosen]
    return Events(targets=targets, instances=instances, partners=partners)


def _at(values: np.ndarray, index: IntArray) -> np.ndarray:
    """Values at the indices; anything where an index is -1, also without values."""
    return values[index] if len(values) else np.zeros(len(index), values.dtype)
