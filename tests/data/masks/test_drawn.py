"""Objects laid onto one map, and the polygons of GeoJSON and YOLO, filled by the centres of pixels.

What leaves a doubt is refused: overlaps, crowds, and names and corners that fit no map.
"""

import tempfile
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.masks.drawn import Drawn, check_corners, draw_objects, fill_outline, read_outlines
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.postprocess.objects import polygonise
from tests.data.crafted import put
from tests.data.masks.exported import CELLS, OBJECTS, READING, blocks
from tests.data.masks.exported import SHAPE as DRAWN_ON

PATH = Path("a.json")
SPEC = ClassSpec(task="multiclass", names=("ground", "cell", "nerve"), colours=((0, 0, 0), (9, 9, 9), (1, 2, 3)))
IGNORING = SPEC.replace(ignore_index=255)
SHAPE = (2, 5)


def reading_of(spec, *, numbered, overlap):
    return Reading(spec=spec, label_map={}, max_pixels=10**6, instances=numbered, overlap=overlap)


def strip(first, last, label=1, *, crowd=False):
    """An object in the columns from `first` to before `last`."""
    mask = np.zeros(SHAPE, bool)
    mask[:, first:last] = True
    return Drawn(mask=mask, label=label, crowd=crowd)


def draw(*objects, spec=IGNORING, numbered=False, overlap="error"):
    found = draw_objects(PATH, objects, SHAPE, reading_of(spec, numbered=numbered, overlap=overlap))
    assert (found[0] == found[1]).all()
    return found[0].tolist(), found.dtype


def test_labels_and_numbers():
    objects = strip(0, 2), strip(3, 5, 2)
    assert draw(*objects) == ([1, 1, 0, 2, 2], np.uint16)
    assert draw(*objects, numbered=True) == ([1, 1, 0, 2, 2], np.int64)
    assert draw() == ([0] * 5, np.uint16)


def test_objects_of_one_class_may_overlap_but_not_objects_with_numbers():
    objects = strip(0, 3), strip(2, 5)
    assert draw(*objects)[0] == [1] * 5
    with pytest.raises(DataError, match=r"not to overlap, got 2 pixels that two of them cover. data.overlap=smaller"):
        draw(*objects, numbered=True)


@pytest.mark.parametrize("order", [1, -1])
def test_the_smaller_object_is_on_top_whatever_the_order(order):
    objects = strip(0, 5, 1), strip(1, 3, 2)
    assert draw(*objects[::order], overlap="smaller_on_top")[0] == [1, 2, 2, 1, 1]
    assert draw(*objects[::order], overlap="smaller_on_top", numbered=True)[0] == [1, 2, 2, 1, 1]


def test_a_crowd_is_a_label_like_others_but_no_object():
    objects = strip(0, 1), strip(1, 3, crowd=True), strip(3, 5)
    assert draw(*objects)[0] == [1, 1, 1, 1, 1]
    assert draw(*objects, numbered=True)[0] == [1, 255, 255, 2, 2]
    with pytest.raises(DataError, match=r"`a crowd` to be ignored, .* got no ignored value. Set data.ignore_index"):
        draw(*objects, numbered=True, spec=SPEC)


def test_no_object_has_the_ignored_number():
    objects = strip(0, 1), strip(1, 2), strip(2, 3)
    two = SPEC.replace(names=SPEC.names[:2], colours=SPEC.colours[:2])
    assert draw(*objects, numbered=True, spec=two.replace(ignore_index=2))[0] == [1, 3, 4, 0, 0]
    assert draw(*objects, numbered=True, spec=two)[0] == [1, 2, 3, 0, 0]


@pytest.mark.parametrize("corner", [(-1, 0), (6, 3), (0, -1), (2.5, 1)])
def test_corners_may_lie_a_pixel_outside(corner):
    check_corners(PATH, np.array([corner, (0.0, 0.0)]), SHAPE)


@pytest.mark.parametrize(
    ("corner", "found"),
    [
        ((6.1, 0), "to lie on the image of 2 x 5 pixels, got x=6.1, y=0. Export the polygons in pixels"),
        ((0, 3.5), "to lie on the image of 2 x 5 pixels, got x=0, y=3.5"),
        ((-1.01, 0), "got x=-1.01, y=0"),
        ((np.nan, 0), "to be finite numbers, got one that is not"),
        ((0, np.inf), "to be finite numbers"),
    ],
)
def test_corners_far_outside_are_refused(corner, found):
    with pytest.raises(DataError, match=found):
        check_corners(PATH, np.array([(1.0, 1.0), corner]), SHAPE)


def exactly_filled(corners, shape):
    """Pixel by pixel and edge by edge, in fractions."""
    filled = np.zeros(shape, bool)
    ends = np.hstack([corners, np.roll(corners, -1, 0)]).tolist()
    edges = [[Fraction(each) for each in edge] for edge in ends]
    for row, column in np.ndindex(shape):
        inside = on = False
        for x0, y0, x1, y1 in edges:
            cross = (column - x0) * (y1 - y0) - (row - y0) * (x1 - x0)
            on |= cross == 0 and min(x0, x1) <= column <= max(x0, x1) and min(y0, y1) <= row <= max(y0, y1)
            if (row < y0) != (row < y1):
                inside ^= x0 + (row - y0) * (x1 - x0) / (y1 - y0) <= column
        filled[row, column] = on or inside
    return filled


@pytest.mark.parametrize("seed", range(60))
def test_an_outline_covers_the_centres_within_it_and_on_it(seed):
    """Corners on and between centres, outlines that cross themselves, and edges along rows and columns."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, 2).tolist())
    corners = rng.random((int(rng.integers(3, 10)), 2)) * (np.array(shape[::-1]) + 2) - 1
    steps = (None, 1, 2, 4)[seed % 4]
    corners = corners if steps is None else np.round(corners * steps) / steps
    assert np.array_equal(fill_outline(corners, shape), exactly_filled(corners, shape))


def test_an_endless_outline_is_refused():
    check_corners(PATH, np.tile([[0.0, 0], [20, 20]], (200, 1)), (20, 20))
    with pytest.raises(DataError, match=r"`outline` of at most 11600 corners and pixels together, got 12"):
        check_corners(PATH, np.tile([[0.0, 0], [20, 20]], (300, 1)), (20, 20))


def test_many_objects_of_a_large_image_take_no_mask_of_it_each():
    """Ten thousand of them filled the memory: each kept a mask of the whole image."""

    def objects():
        for number in range(300):
            mask = np.zeros((1000, 1000), bool)
            mask[3 * number : 3 * number + 2, 5:9] = True
            yield Drawn(mask=mask, label=1)

    tracemalloc.start()
    found = draw_objects(PATH, objects(), (1000, 1000), reading_of(SPEC, numbered=True, overlap="smaller_on_top"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.max(), np.count_nonzero(found)) == (300, 300 * 8)
    assert peak < 40e6  # the map takes 9 MB, and a mask 1 MB


def feature(coordinates, name="cell", kind="Polygon"):
    properties = {} if name is None else {"classification": {"name": name}}
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def read(content, shape=(10, 12), numbered=False):
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder, "a.geojson"), content)
        return read_outlines(path, "geojson", reading_of(SPEC, numbered=numbered, overlap="error"), shape=shape)


SQUARE = [[[1, 2], [5, 2], [5, 6], [1, 6], [1, 2]]]


@pytest.mark.parametrize("seed", range(10))
def test_outlines_with_holes_give_the_mask_back(seed):
    mask = np.random.default_rng(seed).random((14, 17)) < 0.6
    features = [feature(rings) for rings in polygonise(mask, connectivity=4)]
    assert np.array_equal(read({"type": "FeatureCollection", "features": features}, mask.shape), mask)
    parts = polygonise(mask, connectivity=4)
    assert np.array_equal(read([feature(parts, kind="MultiPolygon")], mask.shape), mask)


@pytest.mark.parametrize("order", [1, -1])
def test_an_island_in_a_hole_stays(order):
    ring = [[[0, 0], [9, 0], [9, 9], [0, 9]], [[2, 2], [7, 2], [7, 7], [2, 7]]]
    island = [[[4, 4], [5, 4], [5, 5], [4, 5]]]
    found = read(feature([ring, island][::order], kind="MultiPolygon"))
    assert found[4, 4] == 1
    assert found[3, 3] == 0
    assert np.count_nonzero(found) == 81 - 25 + 1


@pytest.mark.parametrize(("name", "line"), [("nerve", "to be cell, got 1: nerve"), ("bone", "to be of ground")])
def test_numbered_objects_of_another_class_are_refused(name, line):
    moved = [[[x + 5, y] for x, y in SQUARE[0]]]
    for own in ("cell", None):
        found = read([feature(SQUARE, own), feature(moved, None)], numbered=True)
        assert (found[3, 2], found[3, 7], np.count_nonzero(found)) == (1, 2, 32)
    with pytest.raises(DataError, match=line):
        read([feature(SQUARE), feature(moved, name)], numbered=True)


WRONG = {
    "no JSON": (b"{", "truncated or damaged"),
    "a number": (b"5", "truncated or damaged"),
    "no features": ({"type": "FeatureCollection"}, "truncated or damaged"),
    "a point": (feature([1, 2], kind="Point"), "to be a polygon, got Point"),
    "no class": (feature(SQUARE, None), "to have a class, got 1 without"),
    "other classes": (
        [feature(SQUARE, name) for name in ("bone", "nerves")],
        "cell, nerve, got 2: bone, nerves",
    ),
    "a near class": (feature(SQUARE, "cel"), "to be of ground, cell, nerve, got 1: cel.*'cell'"),
    "overlap": ([feature(SQUARE), feature(SQUARE, "nerve")], "16 pixels that two of them cover"),
    "no number": (feature([[[1, 2], [5, float("nan")], [5, 6]]]), "to be finite numbers"),
    "partly outside": (feature([[[1, 2], [5, -2], [5, 6]]]), "on the image of 10 x 12 pixels, got x=5, y=-2"),
    "no rings": (feature([]), "a shape without rings"),
    "no parts": (feature([], kind="MultiPolygon"), "a shape without rings"),
    "a number beyond floats": (feature([[[1, 2], [5, 10**400], [5, 6]]]), "truncated or damaged"),
    "two corners": (feature([[[1, 2], [5, 2]]]), "fewer than three corners"),
    "a corner of one number": (feature([[[1], [5], [5]]]), "truncated or damaged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_can_not_be_drawn_is_one_error(name):
    content, line = WRONG[name]
    with pytest.raises(DataError, match=line) as error:
        read(content)
    assert len(error.value.problems) == 1


def read_yolo(tmp_path, text, reading=READING):
    return read_map(put(tmp_path / "a.txt", text), reading, shape=DRAWN_ON).values


def test_a_yolo_id_is_the_next_class_or_what_the_label_map_says(tmp_path):
    square = "0 0 0 .5 0 .5 .5 0 .5"
    assert not read_yolo(tmp_path, "").any()  # an image without objects
    assert read_yolo(tmp_path, square)[0, 0] == 1
    assert read_yolo(tmp_path, square + " 0.93\n")[0, 0] == 1  # a confidence behind the corners
    assert read_yolo(tmp_path, f"\ufeff{square}")[0, 0] == 1  # a mark that editors on Windows write
    assert read_yolo(tmp_path, square, replace(READING, spec=CELLS, label_map={"0": 2}))[0, 0] == 2


def test_corners_in_the_centres_of_pixels_include_the_last_row_and_column(tmp_path):
    """Six digits of a fraction are rounded to whole pixels, and no other corner is moved."""
    traced = replace(READING, corners="centres")
    pixels = [(3, 2), (11, 2), (11, 8), (3, 8)]  # the first of the blocks
    text = "0 " + " ".join(f"{x / DRAWN_ON[1]:.6f} {y / DRAWN_ON[0]:.6f}" for x, y in pixels)
    assert np.array_equal(read_yolo(tmp_path, text, traced) > 0, blocks() * (np.arange(DRAWN_ON[1]) < 15) == 1)
    text = "0 " + " ".join(f"{(x + 0.02) / DRAWN_ON[1]:.6f} {(y + 0.02) / DRAWN_ON[0]:.6f}" for x, y in pixels)
    assert read_yolo(tmp_path, text, traced).sum() == 6 * 8


def test_corners_on_whole_pixels_get_one_line_for_a_folder_unless_they_are_centres(tmp_path, caplog):
    height, width = DRAWN_ON
    drawn, traced = f"0 0 0 {3.5 / width} 0 {3.5 / width} .5 0 .5", f"0 0 0 {3 / width} 0 0 {5 / height}"
    read_yolo(tmp_path, f"{traced}\n{drawn}")
    read_yolo(tmp_path, "")
    read_yolo(tmp_path, traced, replace(READING, corners="centres"))
    assert not caplog.text
    for _ in range(2):
        read_yolo(tmp_path, traced)
    assert caplog.text.count("data.corners=centres") == 1


def test_yolo_objects_are_numbered(tmp_path):
    found = read_yolo(tmp_path, "0 0 0 .5 0 .5 .5 0 .5\n0 .5 .5 1 .5 1 1 .5 1", OBJECTS)
    assert (found[0, 0], found[-1, -1], len(np.unique(found))) == (1, 2, 3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0 .5 .5 .2 .2", "to be a polygon, got a box of four numbers"),
        ("7 0 0 1 0 1 1", r"`class ids` to be of 0, 1, got 7\. Class id 0 is the second class"),
        ("0 0 0 2 0 1 1", "to lie on the image of 24 x 30 pixels"),
        ("0 0 0 nan 0 1 1", "to be finite"),
        ("0 0 0 x 0 1 1", "truncated or damaged"),
        ("0 0 0", "fewer than three corners"),
        ("0 0 0 1 0 1 1 0", "to end with a line break after a confidence, got 15 bytes without one. It may be cut off"),
        ("0 0 0 1 0 1 1\n1 0 0 1 0 1 1 0", "confidence, or none, got an odd last number in 1 of 2"),
        ("0 0 0 1 0 1 1\n1 0 0 1 0 1 1", "that two of them cover"),
    ],
)
def test_yolo_lines_that_can_not_be_drawn_are_one_error(text, line, tmp_path):
    with pytest.raises(DataError, match=line) as error:
        read_yolo(tmp_path, text)
    assert len(error.value.problems) == 1
