"""How masks are read: colours in a label map, and what opens a map."""

import numpy as np
import pytest
import zarr

from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, write_zarr


def test_a_label_map_of_colours_is_one_unless_objects_are_numbered():
    colours = {"0,0,0": 0, "255,0,0": 1}
    assert Reading(spec=THREE, label_map=colours, max_pixels=9).has_colours
    assert not Reading(spec=THREE, label_map=colours, max_pixels=9, instances=True).has_colours
    assert not Reading(spec=THREE, label_map={"7": 1}, max_pixels=9).has_colours


def test_the_label_map_of_a_picture_with_several_has_to_be_named(tmp_path):
    path = tmp_path / "a.zarr"
    zarr.create_group(str(path))
    write_zarr(path / "0", np.zeros((4, 4), np.uint8), "yx")
    write_zarr(path / "labels" / "cells", np.zeros((4, 4), np.uint8), "yx")
    with pytest.raises(DataError, match=r"a picture with 1: labels/cells\. Name one: data\.key=labels/cells"):
        Reading(spec=THREE, label_map={}, max_pixels=9).options(path)
    named = Reading(spec=THREE, label_map={}, max_pixels=9, key="labels/cells").options(path)
    assert named == {"key": "labels/cells", "level": 0, "max_pixels": 9, "axes": "map"}
