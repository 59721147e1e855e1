"""Plants known errors in a reference, to calibrate the scores of suspects: which of them mean an error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.objects.suspects import KINDS, Kind, Suspect, make_suspect, number_regions

SHARE = 0.05  # of the objects, changed while scores are calibrated

_LEAST, _TRIES = 12, 20  # pixels of an object that is changed; places tried for one that is added
_EIGHT = np.ones((3, 3), bool)
_HIT = 0.3  # a suspect has found an error from this IoU, or share of the planted region, on
_STEPS = 2, 5  # pixels by which a border moves, from and to


def plant_errors(
    target: NDArray[Any],
    spec: ClassSpec,
    rng: np.random.Generator,
    *,
    share: float,
    instances: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any] | None, list[Suspect]]:
    """Change a share of the objects of a reference: drop, add, move the border, or swap the class.

    Kinds take turns at random. Without a background, a dropped object takes the class around it, and an added one
    covers other classes. With two classes no class is swapped.

    Parameters
    ----------
    target : (H, W), integer
        Is not changed.
    share
        Of the objects, 0 to 1.
    instances : (H, W), integer
        The objects, of which some may touch; None takes connected pixels of a class.

    Returns
    -------
    The changed reference, its objects if there were any, and the planted errors: region, kind as `find_suspects` names
    it, and score 1.
    """
    changed, planted = target.copy(), list[Suspect]()
    numbers = None if instances is None else instances.copy()
    regions = number_regions(target, spec.valid(target), spec, instances)
    kinds = KINDS if spec.num_classes - int(spec.has_background) > 1 else ("extra", "missing", "border")
    for number in range(1, int(regions.max(initial=0)) + 1):
        if rng.random() >= share:
            continue
        mask = regions == number
        if mask.sum() < _LEAST or mask.mean() > 0.25:
            continue
        found = _change(changed, mask, int(target[mask][0]), kinds[rng.integers(len(kinds))], spec, rng)
        if found is None:
            continue
        planted.append(found)
        if numbers is not None and instances is not None:
            own = numbers.max() + 1 if found.kind == "extra" else instances[mask][0]
            place = numbers[found.box]
            place[found.mask] = np.where(changed[found.box][found.mask] == 0, 0, own)  # such maps have a background
    return changed, numbers, planted


def _change(
    changed: NDArray[Any], mask: BoolArray, k: int, kind: Kind, spec: ClassSpec, rng: np.random.Generator
) -> Suspect | None:
    """Plant one error where nothing else was changed, or return None if there is no room for it."""
    free = spec.valid(changed)
    around = 0  # the class around the object
    if not spec.has_background:
        ring = ndimage.binary_dilation(mask, _EIGHT, iterations=2) & ~mask & free
        around = int(np.bincount(changed[ring], minlength=spec.num_classes)[: spec.num_classes].argmax())
    region, value, suggested = mask & free, around, k  # as of a missing object
    if kind == "class":
        value = int(rng.choice([c for c in range(int(spec.has_background), spec.num_classes) if c != k]))
    elif kind == "border":
        steps = int(rng.integers(_STEPS[0], _STEPS[1] + 1))
        if rng.random() < 0.5:
            region &= ~ndimage.binary_erosion(mask, _EIGHT, iterations=steps)
            if 2 * region.sum() > mask.sum():
                return None  # most of it would be missing
        else:
            region = ndimage.binary_dilation(mask, _EIGHT, iterations=steps) & ~mask & free & (changed == around)
            value = k
    elif kind == "extra":
        placed = _elsewhere(mask, changed, around if spec.has_background else None, rng)
        region, value = (np.zeros_like(mask) if placed is None else placed & free), k
        suggested = int(np.bincount(changed[region]).argmax()) if region.any() else around
    if region.sum() < _LEAST:
        return None
    given = k if kind in ("border", "extra") else value
    changed[region] = value
    box = ndimage.find_objects(region.astype(np.uint8))[0]
    return make_suspect(kind, given, suggested, 1.0, box, region[box], size=int(mask.sum()))


def _elsewhere(
    mask: BoolArray, labels: NDArray[Any], background: int | None, rng: np.random.Generator
) -> BoolArray | None:
    """Move a shape to a random place, on background alone if there is one."""
    rows, columns = ndimage.find_objects(mask.astype(np.uint8))[0]
    shape = mask[rows, columns]
    room = [side - edge for side, edge in zip(mask.shape, shape.shape, strict=True)]
    for _ in range(_TRIES if min(room) > 0 else 0):
        top, left = (int(rng.integers(each)) for each in room)
        placed = np.zeros_like(mask)
        placed[top : top + shape.shape[0], left : left + shape.shape[1]] = shape
        if background is None or (labels[ndimage.binary_dilation(placed, _EIGHT)] == background).all():
            return placed
    return None


def match_planted(
    found: Sequence[Suspect], planted: Sequence[Suspect], shape: tuple[int, ...]
) -> tuple[BoolArray, BoolArray]:
    """Tell which suspects lie on a planted error of an image (H, W), and which errors have a suspect.

    A border is found by a border, any other kind by any other.
    """
    hits, recovered = np.zeros(len(found), bool), np.zeros(len(planted), bool)
    for border in (False, True):
        numbers = np.zeros(shape, np.int32)
        for number, error in enumerate(planted, start=1):
            if (error.kind == "border") == border:
                numbers[error.box][error.mask] = number
        sizes = np.bincount(numbers.ravel(), minlength=len(planted) + 1)
        for place, one in enumerate(found):
            if (one.kind == "border") == border:
                common = np.bincount(numbers[one.box][one.mask], minlength=1)
                same = common >= _HIT * (sizes[: len(common)] + one.mask.sum() - common)
                hits[place] = same[1:].any()
                recovered[np.flatnonzero(same[1:])] = True
    return hits, recovered


def find_chances(scores: FloatArray, planted: FloatArray, rounds: int) -> FloatArray:
    """Estimate the chance (N,) that each suspect is an error. It never falls as the score rises.

    The chance at a score is the number of errors expected there, if as many objects are wrong as were planted, over the
    number of suspects. Both are smoothed together, by isotonic regression.

    Parameters
    ----------
    scores : (N,)
        Of the suspects of the references as they are.
    planted : (M,)
        Of the suspects that lie on planted errors.
    rounds
        Copies of each reference in which errors were planted.

    Examples
    --------
    >>> find_chances(np.array([0.1, 0.2, 0.9]), np.array([0.2, 0.8, 0.9, 0.9]), 2).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    if not len(scores):
        return np.empty(0)
    errors = np.repeat([0.0, 1.0], [len(scores), len(planted)])
    weights = np.repeat([1.0, 1 / rounds], [len(scores), len(planted)])
    _, place = np.unique(np.concatenate([scores, planted]), return_inverse=True)  # equal scores have one chance
    total = np.bincount(place, weights)
    from scipy.optimize import isotonic_regression  # takes a sixth of a second to load, and is seldom needed

    fitted = isotonic_regression(np.bincount(place, weights * errors) / total, weights=total).x
    return np.asarray(np.minimum(1, fitted / np.maximum(1 - fitted, 1e-9))[place[: len(scores)]])
