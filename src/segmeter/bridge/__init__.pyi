from .arrays import to_numpy as to_numpy
from .arrays import to_torch as to_torch
from .decode import labels_to_numpy as labels_to_numpy
from .decode import probs_to_numpy as probs_to_numpy
from .host_copier import HostCopier as HostCopier
from .host_copier import PendingArray as PendingArray
