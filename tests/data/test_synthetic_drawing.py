import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt, label

from segmeter.data.synthetic import MITOTIC, ROUND, SPINDLE, draw_scene


@pytest.fixture(scope="module")
def scenes():
    return [draw_scene(np.random.default_rng([7, index]), 192) for index in range(12)]


def test_scene_is_the_same_for_the_same_seed():
    first, second = (draw_scene(np.random.default_rng(3), 96) for _ in range(2))
    assert first.image.dtype == first.labels.dtype == np.uint8
    assert first.instances.dtype == np.uint16
    for name in ("image", "labels", "instances"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_classes_have_the_shares_that_the_set_promises(scenes):
    labels = np.stack([scene.labels for scene in scenes])
    shares = np.bincount(labels.ravel(), minlength=4) / labels.size
    assert len(shares) == 4
    assert 0.6 < shares[0] < 0.9
    assert 0.05 < shares[ROUND] < 0.25
    assert 0.04 < shares[SPINDLE] < 0.20
    assert 0.002 < shares[MITOTIC] < 0.02


def test_each_instance_is_of_one_class_and_background_of_none(scenes):
    for scene in scenes:
        assert ((scene.instances > 0) == (scene.labels > 0)).all()
        for number in np.unique(scene.instances[scene.instances > 0]):
            assert len(np.unique(scene.labels[scene.instances == number])) == 1


def test_spindles_are_long_and_round_cells_are_not(scenes):
    """Of an inner spindle, no disc covers half; of an inner round cell, the inscribed disc covers most."""
    fill = {ROUND: [], SPINDLE: []}
    for scene in scenes:
        for number in np.unique(scene.instances[scene.instances > 0]):
            mask = scene.instances == number
            kind = int(scene.labels[mask][0])
            edges = mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any()
            if kind in fill and not edges and label(mask)[1] == 1:
                fill[kind].append(np.pi * distance_transform_edt(mask).max() ** 2 / mask.sum())
    assert len(fill[ROUND]) > 30
    assert len(fill[SPINDLE]) > 15
    assert np.median(fill[ROUND]) > 0.75
    assert np.median(fill[SPINDLE]) < 0.55


def test_labels_lie_where_the_light_is(scenes):
    """Cells are brighter than the ring of background around them, by their median, in nearly every case."""
    brighter = []
    for scene in scenes[:4]:
        far = distance_transform_edt(scene.labels == 0)
        for number in np.unique(scene.instances[scene.instances > 0]):
            mask = scene.instances == number
            near = (distance_transform_edt(~mask) < 8) & (far >= 2)
            if near.sum() > 50:
                brighter.append(np.median(scene.image[mask]) > np.median(scene.image[near]))
    assert np.mean(brighter) > 0.97
