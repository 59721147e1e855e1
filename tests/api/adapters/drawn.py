"""Maps to count with, and what `segmeter.evaluate` says of them."""

import numpy as np
import pytest
import torch

import segmeter
from segmeter.classes import ClassSpec
from segmeter.errors import SegmeterError

SPEC = ClassSpec(
    task="multiclass", names=("rest", "road", "car"), colours=((0, 0, 0), (9, 9, 9), (99, 9, 9)), ignore_index=255
)
BINARY = ClassSpec(task="binary", names=("rest", "cell"), colours=((0, 0, 0), (9, 9, 9)))
CONFIG = segmeter.MetricsConfig(bootstrap=50)


def draw(count=7, *, seed=0, spec=SPEC, shape=(12, 15)):
    """Targets and labels (N, H, W); the last case has no car."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, spec.num_classes, (count, *shape))
    labels = np.where(rng.random(target.shape) < 0.3, rng.integers(0, spec.num_classes, target.shape), target)
    target[-1][target[-1] == 2] = labels[-1][labels[-1] == 2] = 1
    if spec.ignore_index is not None:
        target[rng.random(target.shape) < 0.05] = spec.ignore_index
    return target.astype(np.uint8), labels.astype(np.uint8)


def evaluation(spec=SPEC, **options):
    target, labels = draw(spec=spec)
    pairs = ((f"case{i}", *pair) for i, pair in enumerate(zip(target, labels, strict=True)))
    return segmeter.evaluate(pairs, classes=spec, metrics=CONFIG, **options)


def counted(metric, call, read):
    """The counts of three batches, of which the second one is refused."""
    target, labels = (torch.from_numpy(one) for one in draw())
    call(metric, labels[:3], target[:3])
    for bad in (labels + 77, labels.float() + 0.5, labels[:, 1:]):
        with pytest.raises(SegmeterError):
            call(metric, bad, target)
    call(metric, labels[3:], target[3:])
    whole = read(metric)
    assert int(whole.sum()) == int((target != SPEC.ignore_index).sum())
    return whole
