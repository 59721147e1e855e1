"""Paths that lead into annotation files; each format has tests of its own."""

import pytest

from segmeter.data.masks.annotations import annotated_images, annotations_of
from segmeter.errors import DataError
from tests.data.formats_written import coco_content, draw_mask
from tests.data.masks.test_coco import put


def test_a_path_leads_into_a_file_only_where_there_is_one(tmp_path):
    path = put(tmp_path, coco_content({"x": draw_mask()}))
    assert annotations_of(path / "x") == annotations_of(path / "cell" / "x") == path
    assert annotations_of(tmp_path / "x.png") is None
    (tmp_path / "b.json").mkdir()
    assert annotations_of(tmp_path / "b.json" / "x.png") is None
    assert annotated_images(path) == {"x": [path / "x"]}


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(1 << 42)  # no room is taken
    with pytest.raises(DataError, match=r"`file` of at most [0-9]+ bytes of JSON"):
        annotated_images(path)
