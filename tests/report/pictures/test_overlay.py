"""The whole picture: panels in their places, text that can't break it."""

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.report.pictures import canvas, paint
from segmeter.report.pictures.overlay import draw_overlay, write_overlay

TOP = canvas.MARGIN + 50


def panel(picture, index, shape):
    left = canvas.MARGIN + index * (shape[1] + canvas.GAP)
    return picture[TOP : TOP + shape[0], left : left + shape[1]]


def test_four_panels_in_order_at_a_whole_factor(picture_inputs, spec):
    image, target, labels = picture_inputs
    picture = draw_overlay(image, target, labels, spec, title="x", score=0.5, panel=130)
    shape = (80, 120)  # 130 // 30 = 4
    large = [np.kron(part, np.ones((4, 4), np.uint8)) for part in (target, labels)]
    shown = image.repeat(4, 0).repeat(4, 1)
    np.testing.assert_array_equal(panel(picture, 0, shape), shown)
    np.testing.assert_array_equal(panel(picture, 1, shape), paint.paint_labels(shown, large[0], spec))
    np.testing.assert_array_equal(panel(picture, 2, shape), paint.paint_labels(shown, large[1], spec))
    np.testing.assert_array_equal(panel(picture, 3, shape), paint.paint_errors(shown, *large, spec))
    assert picture.shape[1] == 4 * 120 + 3 * canvas.GAP + 2 * canvas.MARGIN


def test_without_a_target_there_are_two_panels_and_no_figure(picture_inputs, spec):
    image, _, labels = picture_inputs
    picture = draw_overlay(image, None, labels, spec, panel=130)
    assert picture.shape[1] == 2 * 120 + canvas.GAP + 2 * canvas.MARGIN
    scored = draw_overlay(image, None, labels, spec, panel=130, score=0.3)
    np.testing.assert_array_equal(picture, scored)


def test_large_images_are_reduced(rng, spec):
    labels = rng.integers(0, 3, (300, 1000)).astype(np.uint8)
    picture = draw_overlay(np.zeros((300, 1000, 3), np.uint8), labels, labels, spec, panel=200)
    assert picture.shape[1] == 4 * 200 + 3 * canvas.GAP + 2 * canvas.MARGIN


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 7), (129, 128)])
def test_any_shape_is_drawn(spec, shape):
    zero = np.zeros(shape, np.uint8)
    picture = draw_overlay(zero[..., None], zero, zero, spec, title="x", panel=128)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3


@pytest.mark.parametrize("text", ["", "x" * 500, "a\nb\x1b[31m", "<img onerror=x>", "\udcff", "細胞 клетка", "[red]x"])
def test_any_text_is_drawn_within_the_same_frame(picture_inputs, text):
    image, target, labels = picture_inputs
    names = (f"{text}0", f"{text}1", f"{text}2")
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0), (0, 9, 0), (9, 0, 0)))
    picture = draw_overlay(image, target, labels, spec, title=text, score=None)
    assert picture.shape[1] == 4 * 480 + 3 * canvas.GAP + 2 * canvas.MARGIN


def test_mean_iou_of_none_and_nan_look_alike_and_differ_from_zero(picture_inputs, spec):
    image, target, labels = picture_inputs
    pictures = [draw_overlay(image, target, labels, spec, score=value) for value in (None, float("nan"), 0.0)]
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert (pictures[0] != pictures[2]).any()


def test_legend_names_only_what_occurs(spec):
    zero = np.zeros((20, 30), np.uint8)
    ones = np.ones((20, 30), np.uint8)
    image = np.zeros((20, 30, 3), np.uint8)
    alone = draw_overlay(image, zero, zero, spec)
    errors = draw_overlay(image, zero, ones, spec)
    assert errors.shape[0] > alone.shape[0]  # a second line for the kinds of error


def test_planes_are_drawn(rng):
    spec = ClassSpec(task="multilabel", names=("a", "b"), colours=((255, 0, 0), (0, 0, 255)), ignore_index=255)
    target, labels = rng.integers(0, 2, (2, 2, 20, 30)).astype(np.uint8)
    target[:, :4] = 255
    assert draw_overlay(np.zeros((20, 30, 1), np.float32), target, labels, spec).ndim == 3


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (((4, 5), (4, 5), (4, 5)), r"`image` \(H, W, C\), got \(4, 5\)"),
        (((4, 5, 3), (4, 5), (5, 4)), r"image's size \(4, 5\), got \(5, 4\)"),
        (((4, 5, 3), (5, 5), (4, 5)), r"labels' shape \(4, 5\), got \(5, 5\)"),
    ],
)
def test_shapes_that_do_not_go_together_are_refused(spec, shapes, said):
    image, target, labels = (np.zeros(shape, np.uint8) for shape in shapes)
    with pytest.raises(InputError, match=said):
        draw_overlay(image, target, labels, spec)


def test_real_road_scenes_are_drawn(shared_data):
    spec = ClassSpec(
        task="multiclass",
        names=tuple("abcdefghijk"),
        colours=tuple((20 * k, 9, 200) for k in range(11)),
        ignore_index=11,
    )
    with Image.open(next(iter(sorted((shared_data / "camvid" / "masks").iterdir())))) as mask:
        target = np.asarray(mask)
    labels = np.where(target == 11, 0, target)
    picture = draw_overlay(np.zeros((*target.shape, 3), np.uint8), target, labels, spec)
    left = canvas.MARGIN + 3 * (480 + canvas.GAP)
    assert (picture[TOP : TOP + 360, left : left + 480][target != 11] == 0).all()  # all right but the ignored


@pytest.mark.parametrize("case_id", ["x", "../x", "a\nb", "\udcff"])
def test_pictures_are_written_inside_their_folder(tmp_path, rng, case_id):
    path = write_overlay(tmp_path / "overlays", case_id, rng.integers(0, 255, (8, 9, 3)).astype(np.uint8))
    assert path.parent == tmp_path / "overlays"
    with Image.open(path, formats=["PNG"]) as image:
        assert image.size == (9, 8)
    assert [entry.name for entry in tmp_path.iterdir()] == ["overlays"]
