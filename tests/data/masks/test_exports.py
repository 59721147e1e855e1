"""Label Studio's JSON: polygons and brush strokes, and whatever leaves a mask open."""

import json

import numpy as np
import pytest

from segmeter.data.masks.annotations import annotated_images, expand_brush, hash_annotated, read_annotated
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import put
from tests.data.formats_written import NAMES
from tests.data.masks.exported import OBJECTS, READING, SPEC, blocks, brush, pack_brush, parts_of, polygon, region, task


@pytest.mark.parametrize("repeat", [True, False])
def test_brush_strokes_are_unpacked(repeat):
    values = np.repeat(np.array([0, 255, 3, 0, 255]), [5, 300, 1, 70_000, 2])
    packed = bytes(pack_brush(values, repeat=repeat))
    assert np.array_equal(expand_brush(packed, len(values)), values)
    with pytest.raises(ValueError, match="where the image has 7"):
        expand_brush(packed, 7)
    with pytest.raises(ValueError, match="ends early"):
        expand_brush(packed[:20], len(values))


def put_json(tmp_path, *tasks):
    return put(tmp_path / "a.json", json.dumps(tasks).encode())


def test_polygons_and_brush_strokes_of_label_studio_give_the_mask_back(tmp_path):
    mask = blocks()
    results = [polygon(corners, NAMES[label]) for label, corners in parts_of(mask) if label == 1]
    path = put_json(tmp_path, task(*results, brush(mask == 2, "lymphocyte"), {"type": "choices"}))
    assert annotated_images(path) == {"x": [path / "x"]}
    assert np.array_equal(read_annotated(path / "x", READING), mask)
    plane = Reading(spec=SPEC.replace(task="multilabel"), label_map={}, max_pixels=10_000)
    assert np.array_equal(read_annotated(path / "cell" / "x", plane), mask == 1)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("/data/upload/3/0a1b2c3d-x.y.png", "x.y"),
        ("s3://bucket/folder/0a1b2c3d-x.png", "0a1b2c3d-x"),
        ("/data/local-files/?d=images%2Fmy%20x.tif", "my x"),
        ("https://host/x.jpg?token=1", "x"),
    ],
)
def test_an_image_of_label_studio_is_called_as_its_file(image, name, tmp_path):
    path = put_json(tmp_path, task(polygon([[1, 1], [9, 1], [9, 9]]), image=image))
    assert list(annotated_images(path)) == [name]


def test_objects_of_label_studio_are_numbered_and_hashed(tmp_path):
    squares = [polygon([[x, 1], [x + 4, 1], [x + 4, 5], [x, 5]]) for x in (1, 10)]
    path = put_json(tmp_path, task(*squares))
    found, before = read_annotated(path / "x", OBJECTS), hash_annotated(path / "x")
    assert (found[2, 2], found[2, 11], len(np.unique(found))) == (1, 2, 3)
    put_json(tmp_path, task(*squares[:1]), task(*squares, image="y.png"))
    assert hash_annotated(path / "x") != before
    assert hash_annotated(path / "y") == before


STUDIO_WRONG = {
    "two annotators": (task(annotations=[{"result": [polygon([[1, 1], [9, 1], [9, 9]])]}] * 2), "one annotation"),
    "no annotation": (task(annotations=[{"result": [], "was_cancelled": True}]), "one annotation"),
    "a box": (task(region("rectanglelabels", {})), "to be polygonlabels or brushlabels, got 1: rectanglelabels"),
    "an unknown class": (task(polygon([[1, 1], [9, 1], [9, 9]], "nerve")), "to be of background, cell"),
    "the first class": (task(polygon([[1, 1], [9, 1], [9, 9]], "background")), "Name a background first"),
    "another size": (task(region("brushlabels", {"format": "rle", "rle": [0] * 9})), "a brush stroke of 0 values"),
    "a number for bytes": (task(region("brushlabels", {"format": "rle", "rle": 10**12})), "truncated or damaged"),
    "a turned image": (task(polygon([[1, 1], [9, 1], [9, 9]]) | {"image_rotation": 90}), "a rotated image"),
    "two classes": (
        task(region("a", {}) | {"type": "polygonlabels", "value": {"polygonlabels": NAMES[1:]}}),
        "2 labels",
    ),
    "two corners": (task(polygon([[1, 1], [9, 1]])), "fewer than three corners"),
}


@pytest.mark.parametrize("name", STUDIO_WRONG)
def test_what_label_studio_leaves_open_is_one_error(name, tmp_path):
    content, line = STUDIO_WRONG[name]
    path = put_json(tmp_path, content)
    with pytest.raises(DataError, match=line) as error:
        read_annotated(annotated_images(path)["x"][0], READING)
    assert len(error.value.problems) == 1
