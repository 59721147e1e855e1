"""Paths that lead into annotation files; Label Studio's and CVAT's: the masks, and whatever leaves one open."""

import numpy as np
import pytest

from segmeter.data.masks.annotations import (
    annotated_images,
    annotations_of,
    expand_brush,
    hash_annotated,
    read_annotated,
)
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.data.verification.splits import open_splits
from segmeter.errors import DataError
from tests.data.crafted import folder, noise, put
from tests.data.formats_written import NAMES, coco_content, draw_mask
from tests.data.masks.exported import (
    OBJECTS,
    READING,
    SHAPE,
    SPEC,
    blocks,
    brush,
    cvat_mask,
    cvat_polygon,
    pack_brush,
    parts_of,
    polygon,
    region,
    task,
    write_cvat,
    write_yolo,
)


def test_a_path_leads_into_a_file_only_where_there_is_one(tmp_path):
    path = put(tmp_path / "a.json", coco_content({"x": draw_mask()}))
    assert annotations_of(path / "x") == annotations_of(path / "cell" / "x") == path
    assert annotations_of(tmp_path / "x.png") is None
    (tmp_path / "b.json").mkdir()
    assert annotations_of(tmp_path / "b.json" / "x.png") is None
    assert annotated_images(path) == {"x": [path / "x"]}


@pytest.mark.parametrize("read", [annotated_images, lambda path: read_map(path, READING, shape=SHAPE)])
def test_a_file_that_would_fill_the_memory_is_not_read(read, tmp_path):
    path = tmp_path / ("a.json" if read is annotated_images else "a.geojson")
    with path.open("wb") as file:
        file.truncate(1 << 42)  # no room is taken
    with pytest.raises(DataError, match=r"`file` of at most [0-9]+ bytes of JSON"):
        read(path)


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
    return put(tmp_path / "a.json", list(tasks))


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
    "two classes": (task(region("polygonlabels", {}) | {"value": {"polygonlabels": NAMES[1:]}}), "2 labels"),
    "two corners": (task(polygon([[1, 1], [9, 1]])), "fewer than three corners"),
}


@pytest.mark.parametrize("order", [1, -1])
def test_a_shape_of_a_higher_z_order_covers_those_below(order, tmp_path):
    lower, upper = np.zeros((2, *SHAPE), bool)
    lower[2:10, 2:10], upper[5:15, 5:15] = True, True
    shapes = [cvat_mask(lower, "cell", 0), cvat_mask(upper, "lymphocyte", 3)][::order]
    path = write_cvat(tmp_path / "a.xml", [*shapes, ("tag", {"label": "cell"})])  # which is about the whole image
    assert np.array_equal(read_annotated(path / "x", READING), np.where(upper, 2, lower))
    same = [cvat_mask(lower, "cell"), cvat_mask(upper, "lymphocyte")]
    with pytest.raises(DataError, match="25 pixels that two of them cover"):
        read_annotated(write_cvat(path, same) / "x", READING)


@pytest.mark.parametrize("masks", ["a.xml", "masks"], ids=["CVAT", "YOLO"])
def test_training_reads_drawn_masks(masks, tmp_path):
    put(tmp_path / "images" / "x.png", noise(*SHAPE))
    write_cvat(tmp_path / "a.xml", [cvat_polygon(corners, NAMES[label]) for label, corners in parts_of(blocks())])
    write_yolo(tmp_path / "masks" / "x.txt", blocks())
    (dataset,), _ = open_splits(folder(tmp_path, classes=NAMES, task="multiclass", masks=masks), ["all"])
    assert np.array_equal(dataset[0].target, blocks())


BOX = cvat_mask(blocks() == 2, "cell")
CVAT_WRONG = {
    "a box of cvat": ([("box", {"label": "cell", "xtl": 1})], "a box on image"),
    "off the image": ([("mask", BOX[1] | {"left": 28})], "does not lie on its image"),
    "too few runs": ([("mask", BOX[1] | {"rle": "0, 5"})], "run lengths of 5 pixels for a box"),
    "endless runs": ([("mask", BOX[1] | {"rle": "9" * 30})], "run lengths of 9"),
    "no numbers": ([("polygon", {"label": "cell", "points": "a,b;c,d"})], "truncated or damaged"),
}


@pytest.mark.parametrize("name", [*STUDIO_WRONG, *CVAT_WRONG])
def test_what_leaves_a_mask_open_is_one_error(name, tmp_path):
    content, line = STUDIO_WRONG.get(name) or CVAT_WRONG[name]
    path = put_json(tmp_path, content) if name in STUDIO_WRONG else write_cvat(tmp_path / "a.xml", content)
    with pytest.raises(DataError, match=line) as error:
        read_annotated(annotated_images(path)["x"][0], READING)
    assert len(error.value.problems) == 1


DECLARED = '<!DOCTYPE a [<!ENTITY b "bb">]><annotations><image name="x.png" width="&#49;" height="1"/></annotations>'


@pytest.mark.parametrize(
    "content",
    [
        *(b"<annotations>", b"<other/>", b"<annotations><track/></annotations>", b"<annotations/>"),
        *(DECLARED.encode(encoding) for encoding in ("utf-8", "utf-16", "utf-16-le")),  # in which they don't hide
    ],
)
def test_other_xml_and_declarations_are_refused(content, tmp_path):
    with pytest.raises(DataError, match=r"a\.xml"):
        annotated_images(put(tmp_path / "a.xml", content))


def test_an_encoding_that_the_xml_names_is_not_taken(tmp_path):
    """Of cp037 the letters of a declaration are other bytes, which the guard would not see."""
    text = '<?xml version="1.0" encoding="cp037"?><annotations><image name="x.png" width="1" height="1"/></annotations>'
    assert list(annotated_images(put(tmp_path / "a.xml", text.encode()))) == ["x"]


def test_a_cvat_file_too_large_for_the_limit_is_refused(tmp_path):
    path = write_cvat(tmp_path / "a.xml", [], size=(200, 300))
    with pytest.raises(DataError, match=r"data\.max_pixels"):
        read_annotated(path / "x", READING)
