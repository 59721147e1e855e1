"""CVAT's XML: polygons and masks by their z-order, and whatever can't be drawn."""

import numpy as np
import pytest

from segmeter.data.masks.annotations import annotated_images, read_annotated
from segmeter.data.verification.report import open_splits
from segmeter.errors import DataError
from tests.data.crafted import folder, noise, put
from tests.data.formats_written import NAMES, draw_mask
from tests.data.masks.exported import READING, SHAPE, blocks, cvat_mask, cvat_polygon, parts_of, write_cvat


def test_polygons_and_masks_of_cvat_give_the_mask_back(tmp_path):
    mask = draw_mask()
    shapes = [cvat_mask(mask == label, NAMES[label]) for label in (1, 2)]
    path = write_cvat(tmp_path / "a.xml", [*shapes, ("tag", {"label": "cell"})])
    assert annotated_images(path) == {"x": [path / "x"]}
    assert np.array_equal(read_annotated(path / "x", READING), mask)
    shapes = [cvat_polygon(corners, NAMES[label]) for label, corners in parts_of(blocks())]
    assert np.array_equal(read_annotated(write_cvat(path, shapes) / "x", READING), blocks())


@pytest.mark.parametrize("order", [1, -1])
def test_a_shape_of_a_higher_z_order_covers_those_below(order, tmp_path):
    lower, upper = np.zeros((2, *SHAPE), bool)
    lower[2:10, 2:10], upper[5:15, 5:15] = True, True
    shapes = [cvat_mask(lower, "cell", 0), cvat_mask(upper, "lymphocyte", 3)][::order]
    path = write_cvat(tmp_path / "a.xml", shapes)
    assert np.array_equal(read_annotated(path / "x", READING), np.where(upper, 2, lower))
    same = [cvat_mask(lower, "cell"), cvat_mask(upper, "lymphocyte")]
    with pytest.raises(DataError, match="25 pixels that two of them cover"):
        read_annotated(write_cvat(path, same) / "x", READING)


def test_training_reads_a_cvat_file(tmp_path):
    put(tmp_path / "images" / "x.png", noise(*SHAPE))
    write_cvat(tmp_path / "a.xml", [cvat_polygon(corners, NAMES[label]) for label, corners in parts_of(blocks())])
    (dataset,), _ = open_splits(folder(tmp_path, classes=NAMES, task="multiclass", masks="a.xml"), ["all"])
    assert np.array_equal(dataset[0].target, blocks())


BOX = cvat_mask(blocks() == 2, "cell")
CVAT_WRONG = {
    "a box": ([("box", {"label": "cell", "xtl": 1})], "a box on image"),
    "an unknown class": ([cvat_polygon([[1, 1], [9, 1], [9, 9]], "nerve")], "to be of background, cell"),
    "off the image": ([("mask", BOX[1] | {"left": 28})], "does not lie on its image"),
    "too few runs": ([("mask", BOX[1] | {"rle": "0, 5"})], "run lengths of 5 pixels for a box"),
    "endless runs": ([("mask", BOX[1] | {"rle": "9" * 30})], "run lengths of 9"),
    "a corner outside": ([cvat_polygon([[1, 1], [90, 1], [9, 9]])], "to lie on the image of 24 x 30"),
    "no numbers": ([("polygon", {"label": "cell", "points": "a,b;c,d"})], "truncated or damaged"),
}


@pytest.mark.parametrize("name", CVAT_WRONG)
def test_what_cvat_leaves_open_is_one_error(name, tmp_path):
    shapes, line = CVAT_WRONG[name]
    path = write_cvat(tmp_path / "a.xml", shapes)
    with pytest.raises(DataError, match=line) as error:
        read_annotated(annotated_images(path)["x"][0], READING)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<annotations>",
        "<other/>",
        '<!DOCTYPE a [<!ENTITY b "bb">]><annotations/>',
        "<annotations><track/></annotations>",
        "<annotations/>",
    ],
)
def test_other_xml_is_refused(text, tmp_path):
    with pytest.raises(DataError, match=r"a\.xml"):
        annotated_images(put(tmp_path / "a.xml", text.encode()))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_declarations_do_not_hide_in_another_encoding(encoding, tmp_path):
    size = 'name="x.png" width="&#49;" height="1"'
    text = f'<!DOCTYPE a [<!ENTITY b "bb">]><annotations><image {size}/></annotations>'
    with pytest.raises(DataError, match=r"a\.xml"):
        annotated_images(put(tmp_path / "a.xml", text.encode(encoding)))


def test_an_encoding_that_the_xml_names_is_not_taken(tmp_path):
    """Of cp037 the letters of a declaration are other bytes, which the guard would not see."""
    text = '<?xml version="1.0" encoding="cp037"?><annotations><image name="x.png" width="1" height="1"/></annotations>'
    assert list(annotated_images(put(tmp_path / "a.xml", text.encode()))) == ["x"]


def test_a_cvat_file_too_large_for_the_limit_is_refused(tmp_path):
    path = write_cvat(tmp_path / "a.xml", [], size=(200, 300))
    with pytest.raises(DataError, match=r"data\.max_pixels"):
        read_annotated(path / "x", READING)
