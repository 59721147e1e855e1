"""Random cases for the laws, of any task, size and spacing, with ignored pixels and objects; most are small."""

from dataclasses import replace

import numpy as np
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.measures.protocol import CaseMaps

VOID = 255
NAMES = ("ground", "car", "bus", "person")  # objects that Cityscapes' average sizes know


def class_spec(task, num_classes, *, ignore=True):
    names = NAMES[1 : 1 + num_classes] if task == "multilabel" else NAMES[:num_classes]
    colours = tuple((k, k, k) for k in range(num_classes))
    return ClassSpec(task=task, names=names, colours=colours, ignore_index=VOID if ignore else None)


def draw(rng, *, ignore=None, margin=0, case_id="drawn"):
    """One case; `margin` pixels of background all around, and void where `ignore` says, or at random."""
    task = str(rng.choice(["binary", "multiclass", "multilabel"]))
    num_classes = 2 if task == "binary" else int(rng.integers(2, 4)) + (task == "multiclass")
    ignore = bool(rng.random() < 0.6) if ignore is None else ignore
    shape = _draw_shape(rng)
    planes = num_classes if task == "multilabel" else 1
    values = 2 if task == "multilabel" else num_classes
    pairs = [_draw_pair(rng, shape, values) for _ in range(planes)]
    if ignore:
        for target, _ in pairs:
            target[_draw_patches(rng, shape)] = VOID
    edge = [(margin, margin)] * len(shape)
    pairs = [tuple(np.pad(one, edge) for one in pair) for pair in pairs]
    target, labels = (np.stack(sides) if task == "multilabel" else sides[0] for sides in zip(*pairs, strict=True))
    spacing = (1.0,) * len(shape) if rng.random() < 0.3 else tuple(rng.uniform(0.3, 3, len(shape)).round(2).tolist())
    objects = {}
    if task != "multilabel" and rng.random() < 0.6:
        sides = {"target_instances": target * (target != VOID), "instances": labels}
        objects = {name: _number(rng, one) for name, one in sides.items() if rng.random() < 0.8}
    spec = class_spec(task, num_classes, ignore=ignore)
    return CaseMaps(case_id=case_id, target=target, labels=labels, spacing=spacing, spec=spec, **objects)


def _draw_shape(rng):
    if rng.random() < 0.2:
        return tuple(rng.integers(1, 9, 3).tolist())
    most = int(rng.choice([2, 6, 14, 40], p=[0.15, 0.35, 0.4, 0.1]))
    return tuple(rng.integers(1, most + 1, 2).tolist())


def _draw_pair(rng, shape, num_classes):
    """A target of blobs or of noise, and a prediction near it, far from it, or of nothing."""
    target = _draw_map(rng, shape, num_classes)
    kind = rng.choice(["near", "other", "nothing", "equal"], p=[0.65, 0.2, 0.1, 0.05])
    if kind == "near":
        labels = np.roll(target, rng.integers(-1, 2, len(shape)), axis=tuple(range(len(shape))))
        specks = rng.random(shape) < rng.choice([0.0, 0.05, 0.2])
        labels[specks] = rng.integers(0, num_classes, int(specks.sum()))
    else:
        labels = {"other": _draw_map(rng, shape, num_classes), "nothing": 0 * target, "equal": target.copy()}[str(kind)]
    return target, labels


def _draw_map(rng, shape, num_classes):
    fields = rng.standard_normal((num_classes, *shape))
    if rng.random() < 0.75:
        fields = ndimage.gaussian_filter(fields, (0, *(rng.uniform(0.5, 2),) * len(shape)))
    fields[0] += rng.uniform(-0.5, 1.5) * fields.std()
    return fields.argmax(axis=0).astype(np.uint8)


def _draw_patches(rng, shape):
    void = rng.random(shape) < rng.choice([0.0, 0.1])
    for _ in range(rng.integers(0, 4)):
        corner = [int(rng.integers(0, length)) for length in shape]
        void[tuple(slice(start, start + int(rng.integers(1, 7))) for start in corner)] = True
    return void


def _number(rng, labels):
    """Objects of all classes, some of which lie in two parts, under numbers in any order."""
    parts = ndimage.label(labels > 0)[0]
    few = rng.permutation(parts.max() + 1)[parts] % max(1, int(parts.max())) + 1 if rng.random() < 0.2 else parts
    return np.where(parts > 0, renumbered(rng, few), 0)


def renumbered(rng, numbers):
    """The same objects under other numbers; 0 stays."""
    known, places = np.unique(numbers, return_inverse=True)
    others = np.setdiff1d(rng.integers(1, 10 * len(known) + 2**40 * int(rng.random() < 0.1) + 2, 4 * len(known)), [0])
    others = rng.permutation(np.union1d(others, np.arange(1, len(known) + 1)))[: len(known)]
    others[known == 0] = 0
    return others[places].reshape(numbers.shape).astype(np.int64)


def changed(maps, **fields):
    """The same case with other maps, without what measures have kept of it."""
    return replace(maps, kept={}, **fields)


def mapped(maps, change, **fields):
    """Every map changed alike: `change` takes an array and the axis at which its plane begins."""
    first = 1 if maps.spec.is_multilabel else 0
    numbers = {name: getattr(maps, name) for name in ("target_instances", "instances")}
    fields |= {name: None if one is None else change(one, 0) for name, one in numbers.items()}
    return changed(maps, target=change(maps.target, first), labels=change(maps.labels, first), **fields)


def shown(maps):
    """What builds the case again."""
    fields = ("target", "labels", "target_instances", "instances")
    arrays = [f"{name}=np.array({one.tolist()})" for name in fields if (one := getattr(maps, name)) is not None]
    return f"{maps.spec.task} {maps.spec.names}, spacing={maps.spacing}, {', '.join(arrays)}"
