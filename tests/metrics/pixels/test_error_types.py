"""Wrong pixels by type: by hand, against the definition written with SciPy, and as sums that lose nothing."""

import numpy as np
from scipy import ndimage

from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.error_types import error_types, iou_gain

CORNERS = np.ones((3, 3), bool)


def grow(mask, element):
    return ndimage.binary_dilation(mask, structure=element) if mask.any() else mask


def by_definition(target, labels, num_classes, ignore_index, width):
    """One class at a time, whole masks, nothing shared with the kernels."""
    dy, dx = np.mgrid[-width : width + 1, -width : width + 1]
    disc = np.round(np.hypot(dy, dx)) <= width
    valid = target != ignore_index
    counts = np.zeros((num_classes, 2, 3), int)
    for k in range(num_classes):
        found, truth = (labels == k) & valid, (target == k) & valid
        tp, tn = found & truth, ~found & ~truth & valid
        for side, (wrong, segments) in enumerate([(found & ~truth, labels == k), (truth & ~found, truth)]):
            near = wrong & grow(wrong & grow(tp, disc) & grow(tn, disc), disc)
            parts, last = ndimage.label(near, CORNERS)
            for part in range(1, last + 1):
                around = grow(parts == part, CORNERS)
                if not ((around & tp).any() and (around & tn).any()):
                    near[parts == part] = False
            numbers, last = ndimage.label(segments, CORNERS)
            met = np.isin(numbers, np.unique(numbers[tp]))
            rest = wrong & ~near
            counts[k, side] = near.sum(), (rest & met).sum(), (rest & ~met).sum()
    return counts


def draw(seed):
    """Smooth fields of classes, the prediction in part another field, moved, and often with ignored pixels."""
    rng = np.random.default_rng(seed)
    shape, num_classes, smooth = tuple(rng.integers(1, 40, 2)), int(rng.integers(1, 6)), rng.uniform(0, 4)

    def field():
        values = rng.normal(size=(num_classes, *shape))
        return ndimage.gaussian_filter(values, (0, smooth, smooth)).argmax(0).astype(np.uint8)

    target = field()
    other = ndimage.gaussian_filter(rng.normal(size=shape), 2) > rng.uniform(-0.1, 0.2)
    labels = np.roll(np.where(other, field(), target), rng.integers(-2, 3, 2), (0, 1))
    if seed % 2:
        target = np.where(ndimage.gaussian_filter(rng.normal(size=shape), 1) > 0.2, 255, target).astype(np.uint8)
        labels = np.where((target == 255) & (rng.random(shape) < 0.5), 200, labels).astype(np.uint8)
    return target, labels, num_classes, int(rng.integers(1, 6))


def test_types_are_those_of_the_definition_and_add_up():
    """Mutations seen to fail: 4-connected segments; a distance of `width` that is not rounded; seeds not grown; parts
    kept that touch no true negative; ignored pixels taken for true negatives.
    """
    for seed in range(200):
        target, labels, num_classes, width = draw(seed)
        found = error_types(target, labels, num_classes=num_classes, ignore_index=255, width=width)
        expected = by_definition(target, labels, num_classes, 255, width)
        np.testing.assert_array_equal(found.counts, expected, err_msg=f"seed {seed}")
        valid = target != 255
        matrix = confusion_matrix(target[valid], labels[valid], num_classes=num_classes)
        right = np.diag(matrix)
        np.testing.assert_array_equal(found.right, right)
        wrong = np.stack([matrix.sum(0) - right, matrix.sum(1) - right], axis=1)  # false positives and negatives
        np.testing.assert_array_equal(found.counts.sum(-1), wrong)
        union = np.where(right + wrong.sum(1), right + wrong.sum(1), np.nan)
        np.testing.assert_allclose(found.share.sum(1), wrong.sum(1) / union)  # 1 - IoU
        np.testing.assert_array_equal(found.gain, iou_gain(found.counts, found.right))


def test_ignored_pixels_connect_no_segments_if_the_dtype_cannot_hold_the_number_of_classes():
    """300 as int8 is 44, which would join a made-up segment to a right one."""
    target, labels = np.full((2, 1, 30), 44, np.uint16)
    target[0, 9:], target[0, 10:20] = 0, 65535
    labels[0, 10:20] = 65535
    given = [labels.astype(dtype) for dtype in (np.int8, np.int16)]
    assert given[0].min() == given[1].min() == -1
    counts = [error_types(target, one, num_classes=300, ignore_index=65535, width=1).counts for one in given]
    np.testing.assert_array_equal(*counts)
    assert counts[0][44, 0].tolist() == [0, 1, 10]


def test_a_gain_of_all_there_is():
    """Nothing but made-up pixels: mending them leaves an empty union, which is right."""
    counts = np.array([[0, 0, 7], [0, 0, 0]])
    assert iou_gain(counts, np.array(0)).tolist() == [0, 0, 1]
    assert np.isnan(iou_gain(np.zeros((2, 3)), np.array(0))).all()


def test_the_width_is_a_share_of_the_diagonal():
    for shape, width in (((1024, 1024), 14), ((3, 4), 1), ((300, 400), 5)):
        assert error_types(*np.zeros((2, *shape), np.uint8), num_classes=2).width == width


def test_an_empty_map_has_no_errors():
    empty = np.zeros((0, 5), np.uint8)
    assert error_types(empty, empty, num_classes=2).counts.sum() == 0
