"""The only crossing between NumPy and torch: exact in dtype, complete on return. Logits become labels here."""

from segmeter.bridge.arrays import read_scalars, to_numpy, to_torch
from segmeter.bridge.decode import labels_to_numpy, probs_to_numpy
from segmeter.bridge.host_copier import HostCopier, PendingArray

__all__ = [
    "HostCopier",
    "PendingArray",
    "labels_to_numpy",
    "probs_to_numpy",
    "read_scalars",
    "to_numpy",
    "to_torch",
]
