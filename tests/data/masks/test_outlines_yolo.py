"""YOLO segmentation labels: polygons as fractions of the image, whose size comes from elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.data.labels_config import LabelsConfig
from segmeter.data.masks.options import Reading
from segmeter.data.masks.reading import read_map
from segmeter.data.verification.report import open_splits
from segmeter.errors import DataError
from tests.data.crafted import folder, noise, put
from tests.data.formats_written import NAMES
from tests.data.masks.exported import OBJECTS, READING, SHAPE, SPEC, blocks, write_yolo


def read_yolo(tmp_path, text, reading=READING, shape=SHAPE):
    return read_map(put(tmp_path / "a.txt", text.encode()), reading, shape=shape).values


def test_yolo_polygons_give_the_mask_back(tmp_path):
    write_yolo(tmp_path / "a.txt", blocks())
    assert np.array_equal(read_map(tmp_path / "a.txt", READING, shape=SHAPE).values, blocks())


def test_an_empty_yolo_file_is_an_image_without_objects(tmp_path):
    assert not read_yolo(tmp_path, "").any()


def test_a_yolo_id_is_the_next_class_or_what_the_label_map_says(tmp_path):
    square = "0 0 0 .5 0 .5 .5 0 .5"
    assert read_yolo(tmp_path, square)[0, 0] == 1
    assert read_yolo(tmp_path, square + " 0.93\n")[0, 0] == 1  # a confidence behind the corners
    mapped = Reading(spec=SPEC, label_map={"0": 2}, max_pixels=10_000)
    assert read_yolo(tmp_path, square, mapped)[0, 0] == 2


def test_a_mark_of_utf_8_is_no_part_of_the_first_id(tmp_path):
    """Editors on Windows write one. Mutation seen to fail: decoded as plain UTF-8."""
    assert read_yolo(tmp_path, "\ufeff0 0 0 .5 0 .5 .5 0 .5")[0, 0] == 1


def test_corners_in_the_centres_of_pixels_include_the_last_row_and_column(tmp_path):
    """Six digits of a fraction are rounded to whole pixels, and no other corner is moved."""
    traced = replace(READING, corners="centres")
    pixels = [(3, 2), (11, 2), (11, 8), (3, 8)]  # the first of the blocks
    text = "0 " + " ".join(f"{x / SHAPE[1]:.6f} {y / SHAPE[0]:.6f}" for x, y in pixels)
    assert np.array_equal(read_yolo(tmp_path, text, traced) > 0, blocks() * (np.arange(SHAPE[1]) < 15) == 1)
    text = "0 " + " ".join(f"{(x + 0.02) / SHAPE[1]:.6f} {(y + 0.02) / SHAPE[0]:.6f}" for x, y in pixels)
    assert read_yolo(tmp_path, text, traced).sum() == 6 * 8


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


def test_training_reads_a_folder_of_yolo_labels(tmp_path):
    put(tmp_path / "images" / "a.png", noise(*SHAPE))
    write_yolo(tmp_path / "masks" / "a.txt", blocks())
    config = folder(tmp_path, classes=NAMES, task="multiclass")
    (dataset,), _ = open_splits(config, ["all"])
    assert np.array_equal(dataset[0].target, blocks())
