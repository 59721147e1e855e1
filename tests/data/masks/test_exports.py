"""Masks as annotation tools export them: YOLO labels, Label Studio's JSON, CVAT's XML."""

import json
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.build import open_splits
from segmeter.data.masks.annotations import annotated_images, hash_annotated, read_annotated
from segmeter.data.masks.label_studio import expand_brush
from segmeter.data.masks.options import Reading
from segmeter.data.masks.reading import read_map
from segmeter.errors import DataError
from segmeter.postprocess.polygons import polygonise
from tests.data.crafted import folder, noise, put
from tests.data.formats_written import NAMES, draw_mask

SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0),) * 3)
CELLS = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (1, 1, 1)))
READING = Reading(spec=SPEC, label_map={}, max_pixels=10_000)
OBJECTS = Reading(spec=CELLS, label_map={}, max_pixels=10_000, instances=True)
SHAPE = (24, 30)


def parts_of(mask):
    """The outline of every part of every class without holes; those of one class may not touch."""
    for label in range(1, len(NAMES)):
        for outline, *holes in polygonise(mask == label):
            assert not holes
            yield label, np.array(outline, float)


def blocks():
    mask = np.zeros(SHAPE, np.uint8)
    mask[2:9, 3:12], mask[12:20, 5:9], mask[9:14, 20:30] = 1, 2, 1
    return mask


# --- YOLO


def write_yolo(path, mask):
    """As Ultralytics stores polygons: class id, then x and y as fractions of the image."""
    lines = [
        f"{label - 1} {' '.join(f'{value:.6f}' for value in (corners / mask.shape[::-1]).ravel())}"
        for label, corners in parts_of(mask)
    ]
    put(path, "\n".join(lines).encode())


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
    assert read_yolo(tmp_path, square + " 0.93")[0, 0] == 1  # a confidence behind the corners
    mapped = Reading(spec=SPEC, label_map={"0": 2}, max_pixels=10_000)
    assert read_yolo(tmp_path, square, mapped)[0, 0] == 2


def test_yolo_objects_are_numbered(tmp_path):
    found = read_yolo(tmp_path, "0 0 0 .5 0 .5 .5 0 .5\n0 .5 .5 1 .5 1 1 .5 1", OBJECTS)
    assert (found[0, 0], found[-1, -1], len(np.unique(found))) == (1, 2, 3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0 .5 .5 .2 .2", "to be a polygon, got a box of four numbers"),
        ("7 0 0 1 0 1 1", r"`class ids` to be of 0, 1, got 7\. Class id 0 is the second class"),
        ("0 0 0 2 0 1 1", "to lie on the image of 30 x 24 pixels"),
        ("0 0 0 nan 0 1 1", "to be finite"),
        ("0 0 0 x 0 1 1", "truncated or damaged"),
        ("0 0 0", "fewer than three corners"),
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


# --- Label Studio


def pack_brush(values, *, width=8, sizes=(3, 4, 8, 16), repeat=True):
    """Label Studio's brush code, written from its description; runs of one value, or single values."""
    bits = f"{len(values):032b}{width - 1:05b}" + "".join(f"{size - 1:04b}" for size in sizes)
    edges = np.flatnonzero(np.diff(values)) + 1
    for run in np.split(values, edges):
        at = 0
        while at < len(run):
            length = min(len(run) - at, 2 ** sizes[-1]) if repeat else min(len(run) - at, 2 ** sizes[0])
            index = next(i for i, size in enumerate(sizes) if length <= 2**size)
            bits += f"{int(repeat)}{index:02b}{length - 1:0{sizes[index]}b}"
            bits += "".join(f"{value:0{width}b}" for value in run[at : at + (1 if repeat else length)])
            at += length
    bits += "0" * (-len(bits) % 8)
    return [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]


@pytest.mark.parametrize("repeat", [True, False])
def test_brush_strokes_are_unpacked(repeat):
    values = np.repeat(np.array([0, 255, 3, 0, 255]), [5, 300, 1, 70_000, 2])
    packed = bytes(pack_brush(values, repeat=repeat))
    assert np.array_equal(expand_brush(packed, len(values)), values)
    with pytest.raises(ValueError, match="where the image has 7"):
        expand_brush(packed, 7)
    with pytest.raises(ValueError, match="ends early"):
        expand_brush(packed[:20], len(values))


def region(kind, value, label="cell", **more):
    size = {"original_height": SHAPE[0], "original_width": SHAPE[1]}
    return {"type": kind, "value": {**value, kind: [label]}, **size, **more}


def polygon(corners, label="cell"):
    points = (np.array(corners) / SHAPE[::-1] * 100).tolist()
    return region("polygonlabels", {"points": points, "closed": True}, label)


def brush(mask, label="cell"):
    pixels = np.zeros((*mask.shape, 4), np.uint8)
    pixels[mask] = (10, 20, 30, 255)
    return region("brushlabels", {"format": "rle", "rle": pack_brush(pixels.ravel())}, label)


def task(*results, image="/data/upload/3/0a1b2c3d-x.png", annotations=None):
    return {"id": 1, "data": {"image": image}, "annotations": annotations or [{"result": list(results)}]}


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
    "two corners": (task(polygon([[1, 1], [9, 1]])), "fewer than three corners"),
}


@pytest.mark.parametrize("name", STUDIO_WRONG)
def test_what_label_studio_leaves_open_is_one_error(name, tmp_path):
    content, line = STUDIO_WRONG[name]
    path = put_json(tmp_path, content)
    with pytest.raises(DataError, match=line) as error:
        read_annotated(annotated_images(path)["x"][0], READING)
    assert len(error.value.problems) == 1


# --- CVAT


def write_cvat(path, shapes, *, name="frames/x.png", size=SHAPE):
    text = "".join(
        f"<{kind} {' '.join(f'{key}={quoteattr(str(value))}' for key, value in given.items())}></{kind}>"
        for kind, given in shapes
    )
    image = f'<image id="0" name="{name}" width="{size[1]}" height="{size[0]}">{text}</image>'
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version><meta></meta>'
    return put(path, f"{head}{image}</annotations>".encode())


def cvat_polygon(corners, label="cell", order=0):
    points = ";".join(f"{x:.2f},{y:.2f}" for x, y in corners)
    return "polygon", {"label": label, "source": "manual", "occluded": 0, "points": points, "z_order": order}


def cvat_mask(mask, label="cell", order=0):
    rows, columns = np.nonzero(mask)
    top, left = rows.min(), columns.min()
    box = mask[top : rows.max() + 1, left : columns.max() + 1]
    edges = np.flatnonzero(np.diff(box.ravel())) + 1
    runs = np.diff([0, *edges, box.size]).tolist()
    runs = [0, *runs] if box.ravel()[0] else runs
    place = {"left": left, "top": top, "width": box.shape[1], "height": box.shape[0]}
    return "mask", {"label": label, "rle": ", ".join(map(str, runs)), "z_order": order, **place}


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
    "a corner outside": ([cvat_polygon([[1, 1], [90, 1], [9, 9]])], "to lie on the image of 30 x 24"),
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


def test_a_cvat_file_too_large_for_the_limit_is_refused(tmp_path):
    path = write_cvat(tmp_path / "a.xml", [], size=(200, 300))
    with pytest.raises(DataError, match=r"data\.max_pixels"):
        read_annotated(path / "x", READING)
