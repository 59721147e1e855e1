"""mask -> its topology: objects, holes, cavities, and the Euler number."""

from itertools import combinations
from typing import Literal

import numpy as np
from scipy import ndimage

from segmeter.metrics.arrays import BoolArray


def betti_numbers(mask: BoolArray, connectivity: Literal[8, 4] = 8) -> tuple[int, ...]:
    """Count the objects and holes of an image, or the objects, tunnels and cavities of a volume.

    Parameters
    ----------
    mask : (H, W) or (D, H, W), bool
        What lies outside of it is background.
    connectivity
        8: pixels that share a corner belong to one object (26 in a volume), and the background has the other
        connectivity; 4: those that share a side do (6).

    Returns
    -------
    (b0, b1), or (b0, b1, b2) of a volume. Their alternating sum is the Euler number.

    Examples
    --------
    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)
    >>> betti_numbers(ring), betti_numbers(np.stack([ring * 0, ring, ring * 0]) > 0)
    ((1, 1), (1, 1, 0))
    """
    padded = np.pad(mask, 1)
    objects = _count(padded, connectivity == 8)
    enclosed = _count(~padded, connectivity == 4) - 1
    if mask.ndim == 2:
        return objects, enclosed
    return objects, objects + enclosed - euler_number(mask, connectivity), enclosed


def euler_number(mask: BoolArray, connectivity: Literal[8, 4] = 8) -> int:
    """Vertices - edges + faces (- cubes) of the mask as a union of closed pixels, or with 4 of open ones.

    Closed pixels hold a vertex, edge or face as soon as one pixel around it is there; open ones are joined only where
    all of them are.
    """
    padded = np.pad(mask, 1)
    total = 0
    for dimension in range(mask.ndim + 1):
        for axes in combinations(range(mask.ndim), dimension):
            cells = padded
            for axis in axes:
                one, other = np.delete(cells, 0, axis), np.delete(cells, -1, axis)
                cells = one | other if connectivity == 8 else one & other
            sign = (-1) ** ((mask.ndim - dimension) if connectivity == 8 else dimension)
            total += sign * int(cells.sum())
    return total


def _count(mask: BoolArray, corners: bool) -> int:
    structure = ndimage.generate_binary_structure(mask.ndim, mask.ndim if corners else 1)
    return int(ndimage.label(mask, structure)[1])
