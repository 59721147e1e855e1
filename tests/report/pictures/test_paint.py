"""Colours, contours and kinds of error, by hand."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.report.pictures import paint


def test_uint8_is_shown_as_it_is(rng):
    image = rng.integers(0, 255, (4, 5, 3)).astype(np.uint8)
    np.testing.assert_array_equal(paint.display_image(image), image)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_any_number_of_channels_and_dtype_gives_rgb(rng, channels, dtype):
    shown = paint.display_image((rng.random((6, 7, channels)) * 200).astype(dtype))
    assert shown.shape == (6, 7, 3)
    assert shown.dtype == np.uint8
    if channels == 1:
        assert (shown == shown[..., :1]).all()
    if channels == 2:
        assert (shown[..., 2] == 0).all()


def test_wide_values_are_stretched_between_percentiles_and_the_infinite_is_black():
    ramp = np.linspace(1000, 3000, 1001, dtype=np.float32).reshape(7, 143, 1)
    shown = paint.display_image(ramp)[..., 0]
    assert shown.min() == 0
    assert shown.max() == 255
    assert shown.ravel()[500] in (127, 128)
    ramp[0, :3, 0] = np.nan, np.inf, -np.inf
    assert (paint.display_image(ramp)[0, :3] == 0).all()


@pytest.mark.parametrize("value", [0.0, 5.0, np.nan])
def test_constant_and_undefined_images_are_black(value):
    assert (paint.display_image(np.full((3, 3, 1), value, np.float32)) == 0).all()


@pytest.mark.parametrize("factor", [1, 2, 5])
def test_enlarging_repeats_whole_pixels(rng, factor):
    labels = rng.integers(0, 9, (4, 6)).astype(np.uint8)
    reference = np.kron(labels, np.ones((factor, factor), np.uint8))
    np.testing.assert_array_equal(paint.resize(labels, (4 * factor, 6 * factor), smooth=False), reference)
    np.testing.assert_array_equal(paint.resize(labels, (4 * factor, 6 * factor), smooth=True), reference)


def test_reducing_averages_images_and_picks_labels():
    image = np.array([[[0] * 3, [100] * 3], [[200] * 3, [100] * 3]], np.uint8)
    np.testing.assert_array_equal(paint.resize(image, (1, 1), smooth=True), [[[100] * 3]])
    labels = np.arange(36, dtype=np.uint8).reshape(6, 6)
    np.testing.assert_array_equal(paint.resize(labels, (2, 2), smooth=False), [[7, 10], [25, 28]])


def test_contours_lie_on_both_sides_of_a_border():
    labels = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]])
    np.testing.assert_array_equal(paint.contours(labels), [[0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert not paint.contours(np.zeros((3, 3))).any()


def test_labels_tint_towards_their_colour_and_black_leaves_grey(spec):
    image = np.full((5, 9, 3), 100, np.uint8)
    labels = np.repeat(np.array([[0, 0, 0, 1, 1, 1, 2, 2, 2]], np.uint8), 5, axis=0)
    painted = paint.paint_labels(image, labels, spec)
    ground, tree, car = (painted[2, column].astype(int) for column in (1, 4, 7))
    assert ground[0] == ground[1] == ground[2]
    assert tree[1] > tree[0] == tree[2]
    assert car[0] > car[1] == car[2]
    assert painted[2, 3].astype(int).sum() > tree.sum()  # the contour is brighter than the inside


def test_binary_background_is_never_tinted():
    spec = ClassSpec(task="binary", names=("no", "yes"), colours=((255, 255, 0), (0, 0, 255)))
    painted = paint.paint_labels(np.full((4, 4, 3), 80, np.uint8), np.zeros((4, 4), np.uint8), spec)
    assert (painted == painted[..., :1]).all()


def test_overlapping_planes_mix_their_colours():
    spec = ClassSpec(task="multilabel", names=("a", "b"), colours=((255, 0, 0), (0, 0, 255)))
    planes = np.ones((2, 5, 5), np.uint8)
    planes[1, :, :2] = 0
    painted = paint.paint_labels(np.zeros((5, 5, 3), np.uint8), planes, spec).astype(int)
    assert painted[2, 0, 0] > painted[2, 0, 2]
    assert painted[2, 4, 0] == painted[2, 4, 2] > painted[2, 4, 1]


def test_error_kinds_by_hand(spec):
    target = np.array([[0, 1, 1, 0, 1, 255]])
    labels = np.array([[0, 1, 0, 2, 2, 1]])
    missed, false, wrong = paint.error_kinds(target, labels, spec)
    np.testing.assert_array_equal(missed, [[0, 0, 1, 0, 0, 0]])
    np.testing.assert_array_equal(false, [[0, 0, 0, 1, 0, 0]])
    np.testing.assert_array_equal(wrong, [[0, 0, 0, 0, 1, 0]])


def test_error_kinds_of_planes_by_hand():
    spec = ClassSpec(task="multilabel", names=("a", "b"), colours=((1, 1, 1),) * 2, ignore_index=9)
    target = np.array([[[1, 1, 0, 1, 9]], [[0, 1, 0, 0, 0]]])
    labels = np.array([[[1, 0, 1, 0, 1]], [[0, 1, 0, 1, 0]]])
    missed, false, wrong = paint.error_kinds(target, labels, spec)
    np.testing.assert_array_equal(missed, [[0, 1, 0, 0, 0]])
    np.testing.assert_array_equal(false, [[0, 0, 1, 0, 0]])
    np.testing.assert_array_equal(wrong, [[0, 0, 0, 1, 0]])


def test_every_wrong_pixel_is_of_one_kind_and_no_right_one(picture_inputs, spec):
    _, target, labels = picture_inputs
    kinds = np.sum(paint.error_kinds(target, labels, spec), axis=0)
    np.testing.assert_array_equal(kinds, (target != labels).astype(int))


def test_right_pixels_are_dim_wrong_ones_strong_and_ignored_ones_grey(spec):
    target = np.zeros((9, 12), np.uint8)
    labels = target.copy()
    target[:, 4:8], target[:, 8:] = 1, 255
    painted = paint.paint_errors(np.full((9, 12, 3), 200, np.uint8), target, labels, spec).astype(int)
    assert (painted[:, :4] == 90).all()
    np.testing.assert_allclose(painted[4, 5], 0.85 * np.array(paint.MISSED) + 0.15 * 90, atol=0.5)
    assert (painted[:, 8:] == painted[:, 8:, :1]).all()
    assert len(np.unique(painted[:, 8:, 0])) == 2  # stripes


def test_where_class_0_is_no_background_it_is_drawn_and_mistaken_as_any_other():
    """CamVid's sky: grey, but tinted; taking it for a building is no miss."""
    spec = ClassSpec(task="multiclass", names=("sky", "road"), colours=((128, 128, 128), (128, 64, 128)))
    assert not spec.has_background
    image = np.repeat(np.linspace(0, 250, 9).astype(np.uint8), 9).reshape(9, 9, 1).repeat(3, axis=-1)
    sky, grey = (
        paint.paint_labels(image, np.zeros((9, 9), np.uint8), each)
        for each in (spec, ClassSpec(task="binary", names=spec.names, colours=spec.colours))
    )
    assert np.ptp(sky) < np.ptp(grey) / 3
    target, labels = np.array([[0, 1, 0]]), np.array([[1, 0, 0]])
    missed, false, wrong = paint.error_kinds(target, labels, spec)
    assert not missed.any()
    assert not false.any()
    np.testing.assert_array_equal(wrong, [[1, 1, 0]])


def test_touching_objects_have_a_contour_between_them(spec):
    labels = np.full((5, 8), 2, np.uint8)
    objects = np.repeat([[7] * 4 + [9] * 4], 5, axis=0)
    blob = paint.paint_labels(np.full((5, 8, 3), 90, np.uint8), labels, spec)
    parted = paint.paint_labels(np.full((5, 8, 3), 90, np.uint8), labels, spec, objects)
    assert (blob == blob[0, 0]).all()
    differ = (parted != blob).any(axis=-1)
    np.testing.assert_array_equal(differ, np.repeat([[0, 0, 0, 1, 1, 0, 0, 0]], 5, axis=0))


def test_objects_are_coloured_by_how_they_were_found(spec):
    maps = [np.zeros((9, 30), int) for _ in range(3)]
    for place, each in enumerate(maps):
        each[1:8, 10 * place + 1 : 10 * place + 8] = place + 5
    painted = paint.paint_objects(np.full((9, 30, 3), 100, np.uint8), maps, np.zeros((9, 30), np.uint8), spec)
    for place, colour in enumerate(paint.OBJECT_COLOURS):
        np.testing.assert_array_equal(painted[1, 10 * place + 4], colour)  # the contour
        np.testing.assert_allclose(painted[4, 10 * place + 4], 0.45 * np.array(colour) + 0.55 * 45, atol=0.6)
    assert (painted[0] == 45).all()
