"""Lesions: counts beside picai_eval's."""

import numpy as np
import pytest

from segmeter.metrics.objects.lesions import picai_lesions
from tests.differential.peers import load, quiet


@pytest.mark.parametrize("seed", range(40))
def test_picai_eval_counts_the_same_lesions(seed):
    peer = load("picai_eval.eval", "picai_eval")
    rng = np.random.default_rng(seed)
    target, labels = np.zeros((2, 10, 14, 14), bool)
    for _ in range(rng.integers(0, 5)):
        corner = [rng.integers(0, side - 3) for side in target.shape]
        target[tuple(slice(c, c + rng.integers(2, 5)) for c in corner)] = True
    labels[...] = np.roll(target, rng.integers(-1, 2), 1) & (rng.random(target.shape) < 0.75)
    labels |= rng.random(target.shape) < 0.005
    with quiet():
        found, *_ = peer.evaluate_case(labels.astype(np.float32), target.astype(np.int32))
    lesions, hits = (sum(1 for is_lesion, sure, _ in found if is_lesion and sure >= least) for least in (0, 0.5))
    false = sum(1 for is_lesion, _, _ in found if not is_lesion)
    assert picai_lesions(target, labels) == (hits, false, lesions - hits)
