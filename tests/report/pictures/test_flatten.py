"""One picture of a case: panels in their places, painted layers, text that can't break it."""

import re

import numpy as np
import pytest
from PIL import Image, ImageFont

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.report.pictures.flatten import (
    GAP,
    INK,
    MARGIN,
    NARROWEST,
    compose,
    draw_overlay,
    drawable,
    fit,
    flatten,
    write_overlay,
)
from segmeter.report.pictures.layers import draw_layers
from segmeter.report.pictures.maps import FALSE, MATCHED, MISSED
from segmeter.report.pictures.objects import Objects
from segmeter.report.tables import printable

TOP = MARGIN + 50
FONT = ImageFont.load_default(size=13)


def painted(role, target, labels, spec, *, image=None, panel=1, **options):
    """The picture of one role at the size of its maps."""
    image = np.full((*labels.shape[-2:], 3), 100, np.uint8) if image is None else image
    return flatten(draw_layers(image, target, labels, spec, edge=max(image.shape), **options), role, panel=panel)


def test_four_panels_in_order_at_a_whole_factor_and_two_without_a_target(rng, spec):
    image = rng.integers(0, 255, (20, 30, 3)).astype(np.uint8)
    target, labels = rng.integers(0, 3, (2, 20, 30)).astype(np.uint8)
    picture = draw_overlay(image, target, labels, spec, title="x", score=0.5, panel=130)
    large = [part.repeat(4, 0).repeat(4, 1) for part in (image, target, labels)]  # 130 // 30 = 4
    wanted = [painted(role, *large[1:], spec, image=large[0]) for role in ("target", "prediction", "errors")]
    for place, each in enumerate([large[0], *wanted]):
        left = MARGIN + place * (120 + GAP)
        np.testing.assert_array_equal(picture[TOP : TOP + 80, left : left + 120], each)
    assert picture.shape[1] == 4 * 120 + 3 * GAP + 2 * MARGIN
    alone = draw_overlay(image, None, labels, spec, panel=130)
    assert alone.shape[1] == 2 * 120 + GAP + 2 * MARGIN
    np.testing.assert_array_equal(alone, draw_overlay(image, None, labels, spec, panel=130, score=0.3))


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 7), (129, 128)])
def test_any_shape_is_drawn(spec, shape):
    zero = np.zeros(shape, np.uint8)
    picture = draw_overlay(zero[..., None], zero, zero, spec, title="x", panel=128)
    assert (picture.dtype, picture.ndim) == (np.uint8, 3)


SMALL = np.zeros((2, 3), np.uint8)


@pytest.mark.parametrize("text", ["", "x" * 500, "a\nb\x1b[31m", "<img onerror=x>", "\udcff", "細胞 клетка", "[red]x"])
def test_any_text_is_drawn_within_the_same_frame(text):
    names = (f"{text}0", f"{text}1", f"{text}2")
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0), (0, 9, 0), (9, 0, 0)))
    picture = draw_overlay(SMALL[..., None], SMALL, SMALL + 1, spec, title=text, score=None, panel=129)
    assert picture.shape[1] == 4 * 129 + 3 * GAP + 2 * MARGIN


def test_an_undefined_score_is_not_0_and_the_legend_names_what_occurs(spec):
    undefined, nan, zero = (
        draw_overlay(SMALL[..., None], SMALL, SMALL, spec, headline="iou/car", score=value, panel=129)
        for value in (None, float("nan"), 0.0)
    )
    np.testing.assert_array_equal(undefined, nan)
    assert (undefined != zero).any()
    errors = draw_overlay(SMALL[..., None], SMALL, SMALL + 1, spec, panel=129)
    assert len(errors) > len(zero)  # a second line for the kinds of error


@pytest.mark.parametrize(
    "shapes", [((4, 5), (4, 5), (4, 5)), ((4, 5, 3), (4, 5), (5, 4)), ((4, 5, 3), (5, 5), (4, 5))], ids=str
)
def test_shapes_that_do_not_go_together_are_refused(spec, shapes):
    image, target, labels = (np.zeros(shape, np.uint8) for shape in shapes)
    said = f"`image` (H, W, C), of the size of its maps, got {shapes[0]} and [{shapes[1]}, {shapes[2]}]"
    with pytest.raises(InputError, match=re.escape(said)):
        draw_overlay(image, target, labels, spec)


@pytest.mark.parametrize("case_id", ["x", "../x", "a\nb", "\udcff"])
def test_pictures_are_written_inside_their_folder(tmp_path, case_id):
    path = write_overlay(tmp_path / "overlays", case_id, np.zeros((8, 9, 3), np.uint8))
    assert path.parent == tmp_path / "overlays"
    with Image.open(path, formats=["PNG"]) as image:
        assert image.size == (9, 8)
    assert [entry.name for entry in tmp_path.iterdir()] == ["overlays"]


def test_labels_tint_towards_their_colour_and_black_leaves_grey(spec):
    labels = np.repeat(np.array([[0, 0, 0, 1, 1, 1, 2, 2, 2]], np.uint8), 5, axis=0)
    found = painted("prediction", None, labels, spec)
    ground, tree, car = (found[2, column].astype(int) for column in (1, 4, 7))
    assert ground[0] == ground[1] == ground[2]
    assert tree[1] > tree[0] == tree[2]
    assert car[0] > car[1] == car[2]
    assert found[2, 3].astype(int).sum() > tree.sum()  # the contour is brighter than the inside


def test_class_0_is_untinted_where_it_is_background_and_drawn_as_any_other_where_not():
    """CamVid's sky is grey, but tinted."""
    names, colours = ("sky", "road"), ((128, 128, 128), (128, 64, 128))
    image = np.repeat(np.linspace(0, 250, 9).astype(np.uint8), 9).reshape(9, 9, 1).repeat(3, axis=-1)
    specs = (ClassSpec(task=task, names=names, colours=colours) for task in ("multiclass", "binary"))
    zero = np.zeros((9, 9), np.uint8)
    sky, background = (painted("prediction", None, zero, spec, image=image) for spec in specs)
    assert np.ptp(sky) < np.ptp(background) / 3
    assert (background == background[..., :1]).all()
    planes = ClassSpec(task="multilabel", names=("a", "b"), colours=((255, 0, 0), (0, 0, 255)))
    labels = np.ones((2, 5, 5), np.uint8)
    labels[1, :, :2] = 0
    found = painted("prediction", None, labels, planes).astype(int)
    assert found[2, 0, 0] > found[2, 0, 2]
    assert found[2, 4, 2] > found[2, 4, 0] > found[2, 4, 1], "planes that overlap mix their colours"


def test_right_pixels_are_dim_wrong_ones_strong_and_ignored_ones_striped(spec):
    target = np.zeros((9, 12), np.uint8)
    labels = target.copy()
    target[:, 4:8], target[:, 8:] = 1, 255
    found = painted("errors", target, labels, spec, image=np.full((9, 12, 3), 200, np.uint8)).astype(int)
    assert (found[:, :4] == 90).all()
    np.testing.assert_allclose(found[4, 5], 0.85 * np.array(MISSED) + 0.15 * 90, atol=0.5)
    assert (found[:, 8:] == found[:, 8:, :1]).all()
    assert len(np.unique(found[:, 8:, 0])) == 2


def test_objects_are_coloured_by_how_they_were_found():
    spec = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (200, 0, 0)))
    target, prediction = np.zeros((2, 9, 30), int)
    target[1:8, 1:8] = prediction[1:8, 1:8] = 1
    target[1:8, 11:18] = 2
    prediction[1:8, 21:28] = 3
    maps = ((target > 0).astype(np.uint8), (prediction > 0).astype(np.uint8))
    found = painted("errors", *maps, spec, objects=Objects(target=target, prediction=prediction))
    for place, colour in enumerate((MATCHED, MISSED, FALSE)):
        np.testing.assert_array_equal(found[1, 10 * place + 4], colour)  # the contour
        np.testing.assert_allclose(found[4, 10 * place + 4], 0.45 * np.array(colour) + 0.55 * 45, atol=0.6)
    assert (found[0] == 45).all()


def test_every_drawable_letter_is_in_the_font_and_others_become_question_marks():
    """A letter that it lacks would be drawn as the box that stands for a code point nobody uses."""
    box = bytes(FONT.getmask("\U0010ffff"))
    for letter in drawable("".join(map(chr, range(32, 0x3000)))):
        assert letter == " " or bytes(FONT.getmask(letter)) != box, repr(letter)
    assert bytes(FONT.getmask("…")) != box
    assert drawable("Große Zelle \N{EN DASH} 3 µm²\n細") == "Grosse Zelle - 3 um2??"
    assert printable("Große 細\n") == "Große 細\N{REPLACEMENT CHARACTER}"


def test_fit_cuts_to_the_width_and_not_more():
    text = "a name that is long"
    assert fit(text, FONT.getlength(text), FONT) == text
    cut = fit(text, FONT.getlength(text) - 1, FONT)
    assert cut.endswith("…")
    assert FONT.getlength(cut) < FONT.getlength(text) <= FONT.getlength(text[: len(cut) + 1] + "…")
    assert fit(text, 1, FONT) == ""


def test_the_legend_takes_as_many_lines_as_it_needs():
    panel = np.zeros((20, 10, 3), np.uint8)
    legends = ([[(f"class {k}", INK) for k in range(count)]] for count in (1, 2, 3))
    heights = [len(compose([("", panel)], title="", figure="", legend=legend)) for legend in legends]
    assert NARROWEST < 2 * 70, "two entries must not fit side by side here"
    assert np.diff(heights).tolist() == [22, 22]
