"""Laws that every measure keeps, and the exceptions with their reasons.

A law draws a case and yields a line for each figure that breaks it. Measures come from the registry, so that a new one
is held against every law by being registered. An exception names a measure, or one of its metrics.
"""

import math

import numpy as np
from scipy import ndimage

from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import is_number
from segmeter.metrics.measures.objects import overlaps_of
from segmeter.metrics.measures.protocol import find_regions
from tests.metrics.laws.drawn import NAMES, VOID, changed, draw, mapped, renumbered, shown
from tests.metrics.laws.figures import (
    better,
    built,
    configs,
    direction_of,
    figures,
    figures_of,
    figures_under,
    groups_of,
    metric_of,
    region_of,
    same,
)

_RUNS_ON = "predicted objects run on into void, which joins their parts and may excuse them"
_FEW = "the target's objects of class 0 have no number, no pair of pixels, or not this size"
_NEAREST = "distances are to the nearest point of the other surface, and the added pixel may be the nearest"
_MISS = "worst without any predicted object, and the added pixel is one"
_TARGETS = "only the target's objects are looked at, or weigh, or have a size"
_INVENTED = "classes that only the prediction contains are left out"
_NOWHERE = "a class that neither side contains scores 0"
_SHARES = "classes are weighted by the target's pixels"
_VOI = ("voi", "voi_split", "voi_merge")
_GAINS = ("boundary_gain", "extent_gain", "segment_gain")
_OBJECTS = ("instances", "average_precision", "aji", "sizes", "events", "partition")

EXCEPTIONS = {
    "void": dict.fromkeys(_OBJECTS, _RUNS_ON) | {"error_types": "predicted segments run on through void"},
    "undefined": dict.fromkeys((*_OBJECTS, "iiou"), _FEW) | {"brats_f1": "lesions up to `least` do not count"},
    "perfect": dict.fromkeys(
        (f"convention {name}" for name, one in CONVENTIONS.items() if 0 in (one.iou_both_empty, one.dice_both_empty)),
        _NOWHERE,
    ),
    "wrong": {
        "surface": _NEAREST,
        "topology": "numbers are compared, not places: a spurious object makes up for a missed one",
        "error_types": "shares of the union fall where it grows; with the IoU they add up to 1",
        **dict.fromkeys((*_VOI, "are"), _MISS),
    },
    "mirrored": {
        "cldice": "scikit-image's skeleton is not that of the mirrored mask",
        "cc_dice": "a pixel as near to two lesions belongs to the first of them",
    },
    "swapped": {
        **dict.fromkeys(("iiou", "object_recall", "object_f1", "aji", "are", "content", *_VOI), _TARGETS),
        "lesions": "the rules of challenges treat predictions otherwise than lesions",
        "events": "what becomes of targets and of predictions are different questions",
        "balanced_accuracy": "the mean recall",
        **dict.fromkeys(_GAINS, "a mended false positive leaves the union, a false negative joins the intersection"),
        **dict.fromkeys(("frequency_weighted_iou", "convention smp-weighted"), _SHARES),
        "convention smp-weighted-imagewise": _SHARES,
        **dict.fromkeys(("convention monai", "convention ultralytics", "convention detectron2"), _INVENTED),
    },
}
_PARTNERS = {"precision": "recall", "fp": "fn", "object_fp": "object_fn", "autopet_fp_volume": "autopet_fn_volume"}
TRANSPOSED = _PARTNERS | {second: first for first, second in _PARTNERS.items()}
FALLS = ("mean_iou", "mean_dice", "pixel_accuracy", "balanced_accuracy", "iou", "dice", "recall")
APART = 4  # pixels between a pixel that is added and all others: more than lesions are dilated by


def exempt(law, measure, key):
    return any(name in EXCEPTIONS.get(law, {}) for name in (measure, metric_of(key)))


def everything(maps, chosen):
    return figures(maps, chosen) | figures_under(maps)


def broken(law, measure, key, before, after, *cases):
    return f"law {law!r}: {key} of {measure!r} was {before}, is {after}\n  " + "\n  ".join(map(shown, cases))


def differences(law, before, after, *cases, but=()):
    """A line for each figure that is not the same, but for exceptions, and for some measures or regions."""
    for measure, key in sorted(before.keys() | after.keys()):
        if region_of(key) in but or measure in but or exempt(law, measure, key):
            continue
        one, other = (found.get((measure, key), "missing") for found in (before, after))
        if "missing" in (one, other) or not same(one, other):
            yield broken(law, measure, key, one, other, *cases)


def void(rng):
    """What the prediction holds in void changes nothing; of objects that run on, what lies apart from them in void."""
    maps, chosen = draw(rng, ignore=True), configs(rng)
    ignored, noise = maps.target == VOID, rng.integers(0, _values(maps), maps.target.shape).astype(np.uint8)
    other = changed(maps, labels=np.where(ignored, noise, maps.labels))
    yield from differences("void", everything(maps, chosen), everything(other, chosen), maps, other)
    clear = _cleared(maps, maps.labels, maps.instances)
    apart = _surrounded(ignored, maps)
    other = changed(clear, labels=np.where(apart, noise, clear.labels))
    if clear.instances is not None:
        other = changed(other, instances=np.where(apart, clear.instances.max() + 1 + noise % 2, clear.instances))
    for name in sorted(EXCEPTIONS["void"].keys() & chosen.keys()):
        measures = built(chosen[name], maps.spec)
        before, after = (figures_of(changed(one), measures) for one in (clear, other))
        for key, value in before.items():
            if not same(value, after[key]):
                yield broken("void", name, key, value, after[key], clear, other)


def perfect(rng):
    """The target itself has the best figures, also where it runs on into void beside one object."""
    maps, chosen = draw(rng), configs(rng)
    exact = _cleared(maps, maps.target, maps.target_instances)
    for prediction in (exact, _grown(exact)):
        for (measure, key), value in everything(prediction, chosen).items():
            lower = direction_of(key) == "lower"
            counted = direction_of(key) is None or (is_number(metric_of(key)) and not lower)
            undefined = math.isnan(value) and (exempt("undefined", measure, key) or not _holds(maps, region_of(key)))
            if not (counted or undefined or exempt("perfect", measure, key) or same(value, 0.0 if lower else 1.0)):
                yield broken("perfect", measure, key, "the best", value, prediction)


def wrong(rng):
    """A pixel far from all others, of a class that is not there, improves no figure of that class."""
    maps, chosen = draw(rng, margin=2 * APART), configs(rng)
    k = int(rng.integers(0 if maps.spec.is_multilabel else 1, maps.spec.num_classes))
    name = maps.spec.names[k]
    place = (slice(None),) * maps.spec.is_multilabel + (APART - 1,) * len(maps.spacing)
    labels, numbers = maps.labels.copy(), maps.instances
    labels[(k, *place[1:]) if maps.spec.is_multilabel else place] = 1 if maps.spec.is_multilabel else k
    if numbers is not None:
        numbers = numbers.copy()
        numbers[place] = numbers.max() + 1
    other = changed(maps, labels=labels, instances=numbers)
    before, after = figures(maps, chosen), figures(other, chosen)
    for (measure, key), value in before.items():
        named = region_of(key) == name or (region_of(key) == "both" and name in maps.spec.names[1:3])
        held = named and direction_of(key) and not exempt("wrong", measure, key)
        if held and better(key, value, after[measure, key]):
            yield broken("wrong", measure, key, value, after[measure, key], maps, other)


def wrong_counts(rng):
    """Correct pixels that become wrong improve no overlap, neither ours nor any convention's."""
    maps = draw(rng)
    right = np.argwhere(maps.labels == maps.target)
    labels = maps.labels.copy()
    for place in map(tuple, right[rng.permutation(len(right))[: rng.integers(1, 4)]]):
        labels[place] = rng.choice(np.setdiff1d(np.arange(_values(maps)), labels[place]))
    other = changed(maps, labels=labels)
    before, after = everything(maps, {}), everything(other, {})
    for (measure, key), value in before.items():
        if metric_of(key) in FALLS and better(key, value, after[measure, key]):
            yield broken("wrong_counts", measure, key, value, after[measure, key], maps, other)


def renumbered_objects(rng):
    """The numbers of objects mean nothing."""
    maps, chosen = draw(rng), configs(rng)
    sides = {name: getattr(maps, name) for name in ("target_instances", "instances")}
    other = changed(maps, **{name: renumbered(rng, one) for name, one in sides.items() if one is not None})
    but = ("aji",) if _ties(maps, chosen.get("aji")) else ()
    yield from differences("renumbered_objects", figures(maps, chosen), figures(other, chosen), maps, other, but=but)


def mirrored(rng):
    """Mirrored maps have the same figures, and those whose axes are in another order, as are those of the spacing."""
    maps, chosen = draw(rng), configs(rng)
    flipped = [axis for axis in range(len(maps.spacing)) if rng.random() < 0.6]
    order = rng.permutation(len(maps.spacing)).tolist()

    def turn(array, first):
        turned = np.flip(array, [first + axis for axis in flipped])
        return np.ascontiguousarray(turned.transpose([*range(first), *(first + axis for axis in order)]))

    other = mapped(maps, turn, spacing=tuple(maps.spacing[axis] for axis in order))
    but = ("aji",) if _ties(maps, chosen.get("aji")) else ()
    yield from differences("mirrored", everything(maps, chosen), everything(other, chosen), maps, other, but=but)


def shifted(rng):
    """Maps that are moved within their background, which reaches the image's edge, have the same figures."""
    maps, chosen = draw(rng, margin=5), configs(rng)
    steps = rng.integers(-1, 2, len(maps.spacing)).tolist()
    other = mapped(maps, lambda array, first: np.roll(array, steps, tuple(range(first, array.ndim))))
    yield from differences("shifted", everything(maps, chosen), everything(other, chosen), maps, other, but=(NAMES[0],))


def swapped(rng):
    """Sides that change places: precision is recall, what is missed is spurious, and the rest is as it was."""
    maps, chosen = draw(rng, ignore=False), configs(rng)
    numbers = {"target_instances": maps.instances, "instances": maps.target_instances}
    other = changed(maps, target=maps.labels, labels=maps.target, **numbers)
    before, after = everything(maps, chosen), everything(other, chosen)
    for (measure, key), value in before.items():
        metric = metric_of(key)
        partner = key.replace(metric, TRANSPOSED.get(metric, metric), 1)
        one_way = exempt("swapped", measure, key) and metric not in TRANSPOSED
        if not one_way and not same(value, after[measure, partner]):
            yield broken("swapped", measure, f"{key}, then {partner},", value, after[measure, partner], maps, other)


def together(rng):
    """A measure gives the same alone and beside others, and of one class the same as of all."""
    maps, chosen = draw(rng), configs(rng)
    alone, beside, name = figures(maps, chosen), changed(maps), str(rng.choice(maps.spec.names))
    for measure in map(str, rng.permutation(sorted(chosen))):
        every = getattr(chosen[measure], "average_sizes", "data") == "data"  # Cityscapes' are not those of each class
        one = built(chosen[measure].replace(classes=(name,)), maps.spec) if every else ()
        for found in (figures_of(beside, built(chosen[measure], maps.spec)), figures_of(changed(maps), one)):
            for key, value in found.items():
                if (measure, key) in alone and not same(alone[measure, key], value):
                    yield broken("together", measure, key, alone[measure, key], value, maps)


LAWS = (void, perfect, wrong, wrong_counts, renumbered_objects, mirrored, shifted, swapped, together)


def _values(maps):
    return 2 if maps.spec.is_multilabel else maps.spec.num_classes


def _holds(maps, region):
    """Whether the target holds a region, or for all of them one that every convention counts."""
    spec = maps.spec
    if spec.is_multilabel:
        return bool((maps.target[spec.names.index(region)] if region in spec.names else maps.target == 1).max() == 1)
    members = (1, 2) if region in ("all", "both") else (spec.names.index(region),)  # some conventions score groups
    return bool(np.isin(maps.target, members).any())


def _cleared(maps, labels, numbers):
    """The case with this prediction, which holds nothing in void."""
    ignored = maps.target == VOID
    numbers = None if numbers is None else np.where(ignored, 0, numbers)
    return changed(maps, labels=np.where(ignored, VOID, labels).astype(np.uint8), instances=numbers)


def _surrounded(ignored, maps):
    """Void pixels all of whose neighbours are void."""
    cube = np.ones((3,) * len(maps.spacing), bool)
    return ndimage.binary_erosion(ignored, cube[None] if maps.spec.is_multilabel else cube, border_value=1)


def _grown(exact):
    """Void that adjoins one object only is predicted to be of that object."""
    planes = exact.target if exact.spec.is_multilabel else exact.target[None]
    labels, numbers = exact.labels.reshape(planes.shape).copy(), exact.instances
    numbers = None if numbers is None else numbers.copy()
    for plane, filled in zip(planes, labels, strict=True):
        cube = np.ones((3,) * plane.ndim, bool)
        apart = _objects(plane, exact.target_instances)
        parts, count = ndimage.label(plane == VOID, cube)
        for part in (parts == number for number in range(1, count + 1)):
            beside = ndimage.binary_dilation(part, cube) & ~part & (plane != 0)
            if len(np.unique(apart[beside])) == 1:
                filled[part] = plane[beside][0]
                if numbers is not None:
                    numbers[part] = exact.target_instances[beside][0]
    return changed(exact, labels=labels.reshape(exact.target.shape), instances=numbers)


def _objects(plane, numbers):
    """Numbers of what is one object by every rule: of one class, one number, and connected by sides."""
    codes = plane.astype(np.int64)
    if numbers is not None:
        codes += 256 * np.unique(numbers, return_inverse=True)[1].reshape(plane.shape)
    found, top = np.zeros(plane.shape, np.int64), 0
    for code in np.unique(codes):
        parts, count = ndimage.label(codes == code)
        found[parts > 0] = parts[parts > 0] + top
        top += count
    return found


def _ties(maps, config):
    """Whether an object shares as much with two predicted ones of the same size: Algorithm 1 takes the first."""
    regions = find_regions(config, MetricsConfig(groups=groups_of(maps.spec)), maps.spec) if config else ()
    for region in regions:
        pairs = overlaps_of(changed(maps), region, config)
        alike = list(zip(pairs.first.tolist(), pairs.common.tolist(), pairs.instance_sizes[pairs.second], strict=True))
        if len(set(alike)) < len(alike):
            return True
    return False
