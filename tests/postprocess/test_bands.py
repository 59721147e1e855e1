"""Steps by bands against the same steps on the whole map."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.postprocess.config import (
    ClosingConfig,
    FillHolesConfig,
    OpeningConfig,
    RemoveSmallObjectsConfig,
    WatershedConfig,
)
from segmeter.postprocess.pipeline import Bands, run_steps, unbounded_steps

SPEC = ClassSpec(task="multiclass", names=("ground", "cell", "edge"), colours=((0, 0, 0), (1, 1, 1), (2, 2, 2)))
PLANES = ClassSpec(task="multilabel", names=("a", "b"), colours=((0, 0, 0), (1, 1, 1)))
STEPS = {
    "nothing": (),
    "closing": (ClosingConfig(radius=2),),
    "opening": (OpeningConfig(radius=3, fill="ground"),),
    "both": (OpeningConfig(radius=1, fill="ground", classes=("edge",)), ClosingConfig(radius=4)),
}


def blobs(spec, seed=0):
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(3, 97, 60)), (0, 2, 2))
    if spec.is_multilabel:
        return (noise[:2] > 0).astype(np.uint8)
    return noise.argmax(0).astype(np.uint8)


def by_bands(labels, steps, spec, heights):
    banded, parts, top = Bands(steps, spec, height=labels.shape[-2]), [], 0
    for height in heights:
        parts.append(banded.push(labels[..., top : top + height, :]))
        top += height
    return np.concatenate(parts, -2), banded.changed


@pytest.mark.parametrize("heights", [[97], [1] * 97, [30, 30, 37], [90, 7], [13, 50, 34]], ids=len)
@pytest.mark.parametrize("spec", [SPEC, PLANES], ids=["multiclass", "multilabel"])
@pytest.mark.parametrize("kind", STEPS)
def test_bands_give_the_map_and_the_counts_of_the_whole(kind, spec, heights):
    steps = STEPS[kind]
    if spec is PLANES:
        steps = tuple(step.replace(classes=None, **({"fill": None} if hasattr(step, "fill") else {})) for step in steps)
    labels = blobs(spec)
    whole = run_steps(labels, steps, spec)
    found, changed = by_bands(labels, steps, spec, heights)
    assert np.array_equal(found, whole.labels)
    assert changed == whole.changed
    assert kind == "nothing" or any(changed.values())


def test_steps_that_need_the_whole_map_are_named():
    steps = [RemoveSmallObjectsConfig(), FillHolesConfig(), OpeningConfig(), ClosingConfig(), WatershedConfig()]
    assert unbounded_steps(steps, SPEC) == ["remove_small_objects", "fill_holes", "opening", "watershed"]
