"""Polygons of GeoJSON and YOLO: filled by the centres of pixels, refused where there is a doubt."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.labels_config import LabelsConfig
from segmeter.data.masks.drawn import read_outlines
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.postprocess.objects import polygonise
from tests.data.crafted import folder, put
from tests.data.masks.exported import CELLS, OBJECTS, READING, SHAPE, blocks, write_yolo
from tests.data.masks.test_drawn import reading_of

SPEC = ClassSpec(task="multiclass", names=("background", "tumour", "stroma"), colours=((0, 0, 0),) * 3)


def feature(coordinates, name="tumour", kind="Polygon"):
    properties = {} if name is None else {"classification": {"name": name}}
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def read(content, shape=(10, 12), numbered=False):
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder, "a.geojson"), content)
        return read_outlines(path, "geojson", reading_of(SPEC, numbered=numbered, overlap="error"), shape=shape)


SQUARE = [[[1, 2], [5, 2], [5, 6], [1, 6], [1, 2]]]


def test_a_pixel_is_in_where_its_centre_is():
    found = read(feature([[[1.4, 2.4], [5.6, 2.4], [5.6, 6.4], [1.4, 6.4]]]))
    wanted = np.zeros((10, 12), int)
    wanted[2:6, 1:6] = 1  # centres at 2.5 .. 5.5 and 1.5 .. 5.5
    assert np.array_equal(found, wanted)


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


@pytest.mark.parametrize(
    ("name", "line"), [("stroma", "to be tumour, got 1: stroma"), ("nerve", "to be of background")]
)
def test_numbered_objects_of_another_class_are_refused(name, line):
    moved = [[[x + 5, y] for x, y in SQUARE[0]]]
    for own in ("tumour", None):
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
    "another class": (feature(SQUARE, "tumor"), "to be of background, tumour, stroma, got 1: tumor.*tumour"),
    "overlap": ([feature(SQUARE), feature(SQUARE, "stroma")], "16 pixels that two of them cover"),
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


def read_yolo(tmp_path, text, reading=READING, shape=SHAPE):
    return read_map(put(tmp_path / "a.txt", text), reading, shape=shape).values


def test_yolo_polygons_give_the_mask_back_and_none_is_an_image_without_objects(tmp_path):
    write_yolo(tmp_path / "a.txt", blocks())
    assert np.array_equal(read_map(tmp_path / "a.txt", READING, shape=SHAPE).values, blocks())
    assert not read_yolo(tmp_path, "").any()


def test_a_yolo_id_is_the_next_class_or_what_the_label_map_says(tmp_path):
    square = "0 0 0 .5 0 .5 .5 0 .5"
    assert read_yolo(tmp_path, square)[0, 0] == 1
    assert read_yolo(tmp_path, square + " 0.93\n")[0, 0] == 1  # a confidence behind the corners
    assert read_yolo(tmp_path, f"\ufeff{square}")[0, 0] == 1  # a mark that editors on Windows write
    assert read_yolo(tmp_path, square, replace(READING, spec=CELLS, label_map={"0": 2}))[0, 0] == 2


def test_corners_in_the_centres_of_pixels_include_the_last_row_and_column(tmp_path):
    """Six digits of a fraction are rounded to whole pixels, and no other corner is moved."""
    traced = replace(READING, corners="centres")
    pixels = [(3, 2), (11, 2), (11, 8), (3, 8)]  # the first of the blocks
    text = "0 " + " ".join(f"{x / SHAPE[1]:.6f} {y / SHAPE[0]:.6f}" for x, y in pixels)
    assert np.array_equal(read_yolo(tmp_path, text, traced) > 0, blocks() * (np.arange(SHAPE[1]) < 15) == 1)
    text = "0 " + " ".join(f"{(x + 0.02) / SHAPE[1]:.6f} {(y + 0.02) / SHAPE[0]:.6f}" for x, y in pixels)
    assert read_yolo(tmp_path, text, traced).sum() == 6 * 8


def test_corners_on_whole_pixels_get_one_line_for_a_folder_unless_they_are_centres(tmp_path, caplog):
    height, width = SHAPE
    drawn, traced = f"0 0 0 {3.5 / width} 0 {3.5 / width} .5 0 .5", f"0 0 0 {3 / width} 0 0 {5 / height}"
    read_yolo(tmp_path, f"{traced}\n{drawn}")
    read_yolo(tmp_path, "")
    read_yolo(tmp_path, traced, replace(READING, corners="centres"))
    assert not caplog.text
    for _ in range(2):
        read_yolo(tmp_path, traced)
    assert caplog.text.count("data.corners=centres") == 1


def test_scoring_and_training_say_where_corners_lie(tmp_path):
    for config in (LabelsConfig(num_classes=2, corners="centres"), folder(tmp_path, corners="centres")):
        assert Reading.of(config, config.spec()).corners == "centres"


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


def test_yolo_needs_the_size_of_a_map(tmp_path):
    with pytest.raises(DataError, match=r"a\.txt: expected `YOLO labels` to be scored against a map"):
        read_yolo(tmp_path, "", shape=None)
