"""Polygons of GeoJSON: filled by the centres of pixels, refused where there is a doubt."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.masks.drawn import read_outlines
from segmeter.errors import DataError
from segmeter.postprocess.objects import polygonise
from tests.data.masks.test_drawn import reading_of

SPEC = ClassSpec(task="multiclass", names=("background", "tumour", "stroma"), colours=((0, 0, 0),) * 3)


def feature(coordinates, name="tumour", kind="Polygon"):
    properties = {} if name is None else {"classification": {"name": name}}
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def read(content, shape=(10, 12), spec=SPEC, numbered=False, overlap="error"):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.geojson")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_outlines(path, "geojson", reading_of(spec, numbered=numbered, overlap=overlap), shape=shape)


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


def test_objects_are_numbered_without_classes():
    moved = [[[x + 5, y] for x, y in SQUARE[0]]]
    found = read([feature(SQUARE, None), feature(moved, None)], numbered=True)
    assert found[3, 2] == 1
    assert found[3, 7] == 2
    assert np.count_nonzero(found) == 32


@pytest.mark.parametrize(
    ("name", "line"), [("stroma", "to be tumour, got 1: stroma"), ("nerve", "to be of background")]
)
def test_numbered_objects_of_another_class_are_refused(name, line):
    moved = [[[x + 5, y] for x, y in SQUARE[0]]]
    assert len(np.unique(read([feature(SQUARE), feature(moved, None)], numbered=True))) == 3
    with pytest.raises(DataError, match=line):
        read([feature(SQUARE), feature(moved, name)], numbered=True)


def test_nothing_is_background():
    assert not read({"type": "FeatureCollection", "features": []}).any()


WRONG = {
    "no JSON": ("{", "truncated or damaged"),
    "a number": ("5", "truncated or damaged"),
    "no features": ({"type": "FeatureCollection"}, "truncated or damaged"),
    "a point": (feature([1, 2], kind="Point"), "to be a polygon, got Point"),
    "no class": (feature(SQUARE, None), "to have a class, got 1 without"),
    "another class": (feature(SQUARE, "tumor"), "to be of background, tumour, stroma, got 1: tumor.*tumour"),
    "overlap": ([feature(SQUARE), feature(SQUARE, "stroma")], "16 pixels that two of them cover"),
    "no number": (feature([[[1, 2], [5, float("nan")], [5, 6]]]), "to be finite numbers"),
    "outside": (feature([[[101, 2], [105, 2], [105, 6]]]), "on the image of 10 x 12 pixels, got x=101, y=2"),
    "partly outside": (feature([[[1, 2], [5, -2], [5, 6]]]), "on the image of 10 x 12 pixels, got x=5, y=-2"),
    "no rings": (feature([]), "a shape without rings"),
    "no parts": (feature([], kind="MultiPolygon"), "a shape without rings"),
    "an endless outline": (feature([[[1, 2], [5, 2], [5, 6]] * 4000]), "`outline` of at most 10480 corners"),
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


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path):
    path = tmp_path / "a.geojson"
    with path.open("wb") as file:
        file.truncate(1 << 42)  # no room is taken
    with pytest.raises(DataError, match=r"`file` of at most [0-9]+ bytes of JSON"):
        read_outlines(path, "geojson", reading_of(SPEC, numbered=False, overlap="error"), shape=(10, 12))
