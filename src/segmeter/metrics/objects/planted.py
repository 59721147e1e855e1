"""Plants known errors in a reference, to calibrate suspects: how likely is an error at each score."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import BoolArray, FloatArray
from segmeter.metrics.objects.suspects import KINDS, Kind, Suspect, make_suspect, number_regions

SHARE = 0.05  # This share of the objects is changed to calibrate scores.

_LEAST = 12  # pixels; smaller objects are not changed
_TRIES = 20  # Try this many places for an object that is added.
_EIGHT = np.ones((3, 3), bool)
_HIT = 0.3  # A suspect has found an error if its IoU with the planted region is at least this.
_STEPS = 2, 5  # A border moves by at least and at most this many pixels.


def plant_errors(
    target: NDArray[Any],
    spec: ClassSpec,
    rng: np.random.Generator,
    *,
    share: float,
    instances: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any] | None, list[Suspect]]:
    """Change a share of the objects of a reference: drop, add, move the border, or swap the class.

    The kind of each error is random. Without a background, a dropped object takes the class around it, and an added
    object covers other classes. With fewer than two classes of objects, no class is swapped.

    Parameters
    ----------
    target : (H, W), integer
        The reference; it is not changed itself.
    share
        The share of the objects to change, 0 to 1.
    instances : (H, W), integer
        The objects, which may touch each other; None takes connected pixels of a class.

    Returns
    -------
    The changed reference, the changed instances if there were any, and the planted errors: their region, their kind as
    `find_suspects` names it, and score 1.
    """
    changed = target.copy()
    numbers = None if instances is None else instances.copy()
    planted: list[Suspect] = []
    regions = number_regions(target, spec.valid(target), spec, instances)
    kinds = KINDS if spec.num_classes - int(spec.has_background) > 1 else ("extra", "missing", "border")
    for number in range(1, int(regions.max(initial=0)) + 1):
        if rng.random() >= share:
            continue
        mask = regions == number
        if mask.sum() < _LEAST or mask.mean() > 0.25:
            continue
        error = _change(changed, mask, int(target[mask][0]), kinds[rng.integers(len(kinds))], spec, rng)
        if error is None:
            continue
        planted.append(error)
        if numbers is not None and instances is not None:  # instance maps have a background
            object_id = numbers.max() + 1 if error.kind == "extra" else instances[mask][0]
            numbers[error.box][error.mask] = np.where(changed[error.box][error.mask] == 0, 0, object_id)
    return changed, numbers, planted


def _change(
    changed: NDArray[Any], mask: BoolArray, k: int, kind: Kind, spec: ClassSpec, rng: np.random.Generator
) -> Suspect | None:
    """Plant one error for an object of class k, or return None if there is no room for it."""
    free = spec.valid(changed)
    around = 0  # the class around the object
    if not spec.has_background:
        ring = ndimage.binary_dilation(mask, _EIGHT, iterations=2) & ~mask & free
        around = int(np.bincount(changed[ring], minlength=spec.num_classes)[: spec.num_classes].argmax())
    region = mask & free  # for "missing": the object takes the class around it, and k would be right
    value = around
    suggested = k
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
        placed = _move(mask, changed, around if spec.has_background else None, rng)
        region = np.zeros_like(mask) if placed is None else placed & free
        value = k
        suggested = int(np.bincount(changed[region]).argmax()) if region.any() else around
    if region.sum() < _LEAST:
        return None
    given = k if kind in ("border", "extra") else value
    changed[region] = value
    box = ndimage.find_objects(region.astype(np.uint8))[0]
    return make_suspect(kind, given, suggested, 1.0, box, region[box], size=int(mask.sum()))


def _move(mask: BoolArray, labels: NDArray[Any], background: int | None, rng: np.random.Generator) -> BoolArray | None:
    """Move an object to a random place, where there is only background if the map has one; None if there is no such
    place.
    """
    rows, columns = ndimage.find_objects(mask.astype(np.uint8))[0]
    cropped = mask[rows, columns]
    height, width = cropped.shape
    spare = mask.shape[0] - height, mask.shape[1] - width
    for _ in range(_TRIES if min(spare) > 0 else 0):
        top, left = (int(rng.integers(pixels)) for pixels in spare)
        placed = np.zeros_like(mask)
        placed[top : top + height, left : left + width] = cropped
        if background is None or (labels[ndimage.binary_dilation(placed, _EIGHT)] == background).all():
            return placed
    return None


def match_planted(
    found: Sequence[Suspect], planted: Sequence[Suspect], shape: tuple[int, ...]
) -> tuple[BoolArray, BoolArray]:
    """Tell which suspects lie on a planted error of an image (H, W), and which errors have a suspect.

    A border error is found by a border suspect, and errors of other kinds by suspects of any other kind.
    """
    hits, recovered = np.zeros(len(found), bool), np.zeros(len(planted), bool)
    for border in (False, True):
        numbers = np.zeros(shape, np.int32)
        for number, error in enumerate(planted, start=1):
            if (error.kind == "border") == border:
                numbers[error.box][error.mask] = number
        sizes = np.bincount(numbers.ravel(), minlength=len(planted) + 1)
        for i, suspect in enumerate(found):
            if (suspect.kind == "border") == border:
                common = np.bincount(numbers[suspect.box][suspect.mask], minlength=1)
                is_hit = common >= _HIT * (sizes[: len(common)] + suspect.mask.sum() - common)
                hits[i] = is_hit[1:].any()
                recovered[np.flatnonzero(is_hit[1:])] = True
    return hits, recovered


def find_chances(scores: FloatArray, planted: FloatArray, rounds: int) -> FloatArray:
    """Estimate the chance (N,) that each suspect is an error. It never falls as the score rises.

    The chance at a score is the number of errors expected there, divided by the number of suspects. It is assumed that
    as many objects are wrong as errors were planted. Both numbers are smoothed together, by isotonic regression.

    Parameters
    ----------
    scores : (N,)
        Scores of the suspects in the unchanged references.
    planted : (M,)
        Scores of the suspects that lie on planted errors.
    rounds
        How many copies of each reference had errors planted.

    Examples
    --------
    >>> find_chances(np.array([0.1, 0.2, 0.9]), np.array([0.2, 0.8, 0.9, 0.9]), 2).round(2).tolist()
    [0.0, 0.5, 1.0]
    """
    if not len(scores):
        return np.empty(0)
    errors = np.repeat([0.0, 1.0], [len(scores), len(planted)])
    weights = np.repeat([1.0, 1 / rounds], [len(scores), len(planted)])
    _, index = np.unique(np.concatenate([scores, planted]), return_inverse=True)  # equal scores have the same chance
    total = np.bincount(index, weights)
    from scipy.optimize import isotonic_regression  # takes a sixth of a second to load, and is seldom needed

    fitted = isotonic_regression(np.bincount(index, weights * errors) / total, weights=total).x
    return np.asarray(np.minimum(1, fitted / np.maximum(1 - fitted, 1e-9))[index[: len(scores)]])
