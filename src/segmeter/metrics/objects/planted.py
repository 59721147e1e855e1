"""Plants known errors in a reference, to learn which scores of suspects mean an error: their calibration."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.objects.suspects import KINDS, Kind, Suspect, overlap

SHARE = 0.05  # of the objects, that are changed while scores are calibrated

_LEAST, _TRIES = 12, 20  # pixels of an object that is changed; places tried for one that is added
_EIGHT = np.ones((3, 3), bool)
_HIT = 0.3  # IoU, or share of a planted region, from which a suspect has found it
_STEPS = 2, 5  # pixels by which a border moves, from and to


def plant_errors(
    target: NDArray[Any], spec: ClassSpec, rng: np.random.Generator, *, share: float
) -> tuple[NDArray[Any], list[Suspect]]:
    """Change a share of the objects of a reference: drop, add, move the border, or swap the class.

    Kinds take turns at random. Without a background an object that is dropped takes the class around it, and one that
    is added covers what was there. With two classes no class is swapped.

    Parameters
    ----------
    target : (H, W), integer
        Stays as it is.
    share
        Of the objects, 0 to 1.

    Returns
    -------
    The changed reference, and the planted errors: region, kind as `find_suspects` names it, and score 1.
    """
    changed, planted, first = target.copy(), list[Suspect](), int(spec.has_background)
    objects = [
        (k, number, parts)
        for k in range(first, spec.num_classes)
        for parts, count in [ndimage.label(target == k, _EIGHT)]
        for number in range(1, count + 1)
    ]
    swaps = spec.num_classes - first > 1
    for k, number, parts in objects:
        if rng.random() >= share:
            continue
        mask = parts == number
        if mask.sum() < _LEAST or mask.mean() > 0.25:
            continue
        kind = KINDS[rng.integers(len(KINDS))] if swaps else ("extra", "missing", "border")[rng.integers(3)]
        found = _change(changed, mask, k, kind, spec, rng)
        if found is not None:
            planted.append(found)
    return changed, planted


def _change(
    changed: NDArray[Any], mask: BoolArray, k: int, kind: Kind, spec: ClassSpec, rng: np.random.Generator
) -> Suspect | None:
    """Plant one error where nothing else was changed; None where there is no place for it."""
    free = spec.valid(changed)
    around = 0 if spec.has_background else _class_around(changed, mask, spec)
    if kind == "missing":
        region, value, suggested = mask & free, around, k
    elif kind == "class":
        others = [c for c in range(int(spec.has_background), spec.num_classes) if c != k]
        region, value, suggested = mask & free, int(rng.choice(others)), k
    elif kind == "border":
        steps = int(rng.integers(_STEPS[0], _STEPS[1] + 1))
        if rng.random() < 0.5:
            region, value = mask & ~ndimage.binary_erosion(mask, _EIGHT, iterations=steps) & free, around
            if 2 * region.sum() > mask.sum():
                return None  # most of it would be missing
        else:
            grown = ndimage.binary_dilation(mask, _EIGHT, iterations=steps) & ~mask & free
            region, value = grown & (changed == around), k
        suggested = k
    else:
        placed = _elsewhere(mask, changed, around if spec.has_background else None, rng)
        if placed is None:
            return None
        region, value = placed & free, k
        suggested = int(np.bincount(changed[region]).argmax()) if region.any() else around
    if region.sum() < _LEAST:
        return None
    given = k if kind in ("border", "extra") else value
    changed[region] = value
    rows, columns = ndimage.find_objects(region.astype(np.uint8))[0]
    place: dict[str, Any] = {"top": rows.start, "left": columns.start, "mask": region[rows, columns]}
    return Suspect(kind=kind, given=given, suggested=suggested, score=1.0, size=int(mask.sum()), **place)


def _class_around(labels: NDArray[Any], mask: BoolArray, spec: ClassSpec) -> int:
    ring = ndimage.binary_dilation(mask, _EIGHT, iterations=2) & ~mask & spec.valid(labels)
    counts = np.bincount(labels[ring], minlength=spec.num_classes)[: spec.num_classes]
    return int(counts.argmax())


def _elsewhere(
    mask: BoolArray, labels: NDArray[Any], background: int | None, rng: np.random.Generator
) -> BoolArray | None:
    """The same shape at a random place, on background alone where there is one."""
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


def match_planted(found: Sequence[Suspect], planted: Sequence[Suspect]) -> BoolArray:
    """Whether each suspect lies on a planted error: a border on a border, any other kind on any other."""
    hit = np.zeros(len(found), bool)
    for place, one in enumerate(found):
        alike = (each for each in planted if (each.kind == "border") == (one.kind == "border"))
        hit[place] = any(overlap(one, each) >= _HIT for each in alike)
    return hit


def calibrate(scores: FloatArray, planted: FloatArray, rounds: int) -> tuple[FloatArray, FloatArray]:
    """Fit the chance of an error to the score, never falling: ascending scores, and the chance at each.

    The chance is the number of errors that are expected at a score, if as many objects are wrong as were planted, over
    the number of suspects there. Both are smoothed together, by isotonic regression.

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
    >>> steps, chances = calibrate(np.array([0.1, 0.2, 0.9]), np.array([0.2, 0.8, 0.9, 0.9]), 2)
    >>> chance_of(np.array([0.1, 0.2, 0.9]), steps, chances).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    if not len(scores):
        return np.empty(0), np.empty(0)
    every = np.concatenate([scores, planted])
    errors = np.repeat([0.0, 1.0], [len(scores), len(planted)])
    order = np.lexsort((errors, every))
    weights = np.repeat([1.0, 1 / rounds], [len(scores), len(planted)])
    steps, place = np.unique(every[order], return_inverse=True)  # equal scores have one chance
    total = np.bincount(place, weights[order])
    shares = np.bincount(place, weights[order] * errors[order]) / total
    from scipy.optimize import isotonic_regression  # takes a sixth of a second to load, and is seldom needed

    fitted = isotonic_regression(shares, weights=total).x
    return steps, np.minimum(1, fitted / np.maximum(1 - fitted, 1e-9))


def chance_of(scores: FloatArray, steps: FloatArray, chances: FloatArray) -> FloatArray:
    """The chance at each score; 0 if nothing was fitted."""
    return np.interp(scores, steps, chances) if len(steps) else np.zeros(len(scores))
