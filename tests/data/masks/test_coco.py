"""COCO files: run lengths and polygons as pycocotools has them, and every doubt is an error."""

import json
import signal

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.masks.annotations import annotated_images, hash_annotated, read_annotated
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.export.objects import compress_runs
from tests.data.formats_written import NAMES, coco_content, draw_mask, library, write_panoptic

SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0),) * 3, ignore_index=255)
CELLS = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (1, 1, 1)))
OPTIONS = {"spec": SPEC, "label_map": {}, "numbered": False, "overlap": "error", "max_pixels": 10_000}


def read_coco(path, *, numbered, **options):
    return read_annotated(path, Reading(instances=numbered, **options))


def put(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    return path


def of_shapes(*segmentations, crowd=(), shape=(20, 30)):
    """One image called x, whose objects are of the classes 1, 2, 1, 2, ..."""
    annotations = [
        {"id": i, "image_id": 1, "category_id": 10 * (1 + i % 2), "segmentation": one, "iscrowd": int(i in crowd)}
        for i, one in enumerate(segmentations)
    ]
    image = {"id": 1, "file_name": "folder/x.jpg", "height": shape[0], "width": shape[1]}
    categories = [{"id": 10, "name": "cell"}, {"id": 20, "name": "lymphocyte"}]
    return {"images": [image], "annotations": annotations, "categories": categories}


def runs(mask):
    return library("pycocotools.mask").encode(np.asfortranarray(mask, np.uint8)) | {}


def test_objects_may_overlap_where_that_is_said(tmp_path):
    """A small lymphocyte on a large cell."""
    large, small = np.zeros((2, 20, 30), bool)
    large[2:15, 2:20] = True
    small[10:16, 10:16] = True
    segments = [{"size": [20, 30], "counts": runs(mask)["counts"].decode()} for mask in (large, small)]
    for order in (1, -1):
        content = of_shapes(*segments)
        content["annotations"] = content["annotations"][::order]
        path = put(tmp_path, content)
        found = read_coco(path / "x", **(OPTIONS | {"overlap": "smaller_on_top"}))
        assert np.array_equal(found, np.where(small, 2, large))
        with pytest.raises(DataError, match=rf"{(large & small).sum()} pixels that two of them cover.*smaller_on_top"):
            read_coco(path / "x", **OPTIONS)


def test_objects_are_numbered_and_crowds_ignored(tmp_path):
    mask = np.zeros((20, 30), bool)
    parts = [mask.copy() for _ in range(3)]
    for i, part in enumerate(parts):
        part[2:8, 2 + 9 * i : 8 + 9 * i] = True
    segments = [{"size": [20, 30], "counts": runs(part)["counts"].decode()} for part in parts]
    content = of_shapes(*segments, crowd=(1,))
    path = put(tmp_path, content)
    with pytest.raises(DataError, match=r"`classes` to be of none, cell, got 1: lymphocyte"):
        read_coco(path / "x", **(OPTIONS | {"spec": CELLS.replace(ignore_index=255), "numbered": True}))
    put(tmp_path, content | {"annotations": [each | {"category_id": 10} for each in content["annotations"]]})
    spec = CELLS.replace(ignore_index=255)
    found = read_coco(path / "x", **(OPTIONS | {"spec": spec, "numbered": True}))
    assert np.array_equal(found, parts[0] * 1 + parts[1] * 255 + parts[2] * 2)
    with pytest.raises(DataError, match=r"a crowd.*to be ignored.*data.ignore_index=255"):
        read_coco(path / "x", **(OPTIONS | {"spec": CELLS, "numbered": True}))


def test_segments_of_a_panoptic_file_are_objects_if_they_are_things(tmp_path):
    mask = draw_mask()
    write_panoptic(tmp_path / "a.json", {"x": mask})
    path = tmp_path / "a.json" / "x"
    assert np.array_equal(read_coco(path, **OPTIONS), mask)
    options = OPTIONS | {"spec": CELLS, "numbered": True}
    with pytest.raises(DataError, match=r"`classes` to be of none, cell, got 1: lymphocyte"):
        read_coco(path, **options)
    found = read_coco(path, **(options | {"label_map": {"10": 1, "20": 1}}))
    assert np.array_equal(found > 0, mask > 0)
    assert len(np.unique(found)) == 3
    before = hash_annotated(path)
    picture = tmp_path / "a" / "x.png"
    picture.write_bytes(picture.read_bytes() + b" ")
    assert hash_annotated(path) != before


def test_a_panoptic_file_has_a_plane_per_class_for_multilabel(tmp_path):
    mask = draw_mask()
    write_panoptic(tmp_path / "a.json", {"x": mask})
    picture = tmp_path / "a" / "x.png"
    pixels = np.array(Image.open(picture))
    pixels[0, 0] = 0  # void
    Image.fromarray(pixels).save(picture)
    spec = SPEC.replace(task="multilabel")
    for label, name in enumerate(NAMES):
        plane = (mask == label).astype(int)
        plane[0, 0] = 255
        assert np.array_equal(read_coco(tmp_path / "a.json" / name / "x", **(OPTIONS | {"spec": spec})), plane)


def test_ids_go_by_a_label_map(tmp_path):
    path = put(tmp_path, coco_content({"x": draw_mask()}))
    found = read_coco(path / "x", **(OPTIONS | {"label_map": {"10": 2, "20": 255}}))
    assert np.array_equal(found, np.array([0, 2, 255])[draw_mask()])
    with pytest.raises(DataError, match=r"`categories` to be in data.label_map, got 1: 20"):
        read_coco(path / "x", **(OPTIONS | {"label_map": {"10": 2}}))


def test_a_picture_that_is_gone_is_one_line(tmp_path):
    write_panoptic(tmp_path / "a.json", {"x": draw_mask()})
    (tmp_path / "a" / "x.png").unlink()
    for ask in (hash_annotated, lambda path: read_coco(path, **OPTIONS)):
        with pytest.raises(DataError, match=r"x\.png|a\.json/x"):
            ask(tmp_path / "a.json" / "x")


def _without(content, key):
    return {name: value for name, value in content.items() if name != key}


PLAIN = of_shapes({"size": [20, 30], "counts": [5, 10, 585]})
WRONG = {
    "no JSON": ("{", "truncated or damaged"),
    "results": ([{"image_id": 1}], "a list of results"),
    "no images": (PLAIN | {"images": []}, "got none"),
    "two of one name": (PLAIN | {"images": PLAIN["images"] * 2}, "a file name of its own"),
    "two of one id": (PLAIN | {"images": [*PLAIN["images"], PLAIN["images"][0] | {"file_name": "y"}]}, "id of its own"),
    "annotations of no image": (
        PLAIN | {"annotations": [PLAIN["annotations"][0] | {"image_id": 2}]},
        "the id of an image of the file, got 1: 2",
    ),
    "a text id": (
        PLAIN | {"annotations": [PLAIN["annotations"][0] | {"image_id": "1"}]},
        "the id of an image of the file, got 1: '1'",
    ),
    "no annotations": (_without(PLAIN, "annotations"), "truncated or damaged"),
    "another class": (PLAIN | {"categories": [{"id": 10, "name": "nerve"}]}, "to be of background, cell"),
    "an unknown category": (PLAIN | {"categories": []}, "truncated or damaged"),
    "the first class": (PLAIN | {"categories": [{"id": 10, "name": "background"}]}, "Name a background first"),
    "another size": (of_shapes({"size": [30, 20], "counts": [5, 10, 585]}), "of another size"),
    "too few pixels": (of_shapes({"size": [20, 30], "counts": [5, 10]}), "of another size"),
    "too many pixels": (of_shapes({"size": [20, 30], "counts": [5, 10, 10**15]}), "of another size"),
    "negative runs": (of_shapes({"size": [20, 30], "counts": [5, -10, 605]}), "of another size"),
    "a sum that int64 wraps around": (
        of_shapes({"size": [48, 48], "counts": [2**63 - 1, 2**63 - 1, 2306]}, shape=(48, 48)),
        "of another size",
    ),
    "the same as text": (
        of_shapes({"size": [48, 48], "counts": compress_runs([2**63 - 1, 2**63 - 1, 2306])}, shape=(48, 48)),
        "of another size",
    ),
    "run lengths with a fraction": (of_shapes({"size": [20, 30], "counts": [5.7, 10.2, 585.1]}), "of another size"),
    "a text of one endless number": (of_shapes({"size": [20, 30], "counts": "o" * 500_000}), "text that can't be read"),
    "a text that ends within a number": (of_shapes({"size": [20, 30], "counts": "hb0o"}), "ends within a number"),
    "a polygon of many corners": (
        of_shapes([[1, 2, 3, 4, 5, 6] * 4000]),
        "`outline` of at most 12400 corners and pixels",
    ),
    "a polygon of long edges": (
        of_shapes([[0, 0, 30, 0.5] * 210]),
        "at most 12400 corners and pixels together, got 12",
    ),
    "a bad text": (of_shapes({"size": [20, 30], "counts": "~~~"}), "truncated or damaged"),
    "an infinite id": (PLAIN | {"categories": [{"id": float("inf"), "name": "cell"}]}, "truncated or damaged"),
    "two corners": (of_shapes([[1, 2, 3, 4]]), "three finite corners"),
    "no polygon": (of_shapes([]), "three finite corners"),
    "no number": (of_shapes([[1, 2, 3, 4, 5, float("nan")]]), "three finite corners"),
    "a corner outside": (of_shapes([[1, 2, 31.5, 4, 5, 6]]), "on the image of 20 x 30 pixels, got x=31.5, y=4"),
    "too large": (of_shapes({"size": [2000, 3000], "counts": [6_000_000]}, shape=(2000, 3000)), "data.max_pixels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_can_not_be_drawn_is_one_error(name, tmp_path):
    library("pycocotools")
    content, line = WRONG[name]
    path = tmp_path / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=line) as error:
        read_coco(annotated_images(path)["x"][0], **OPTIONS)
    assert len(error.value.problems) == 1


def too_late(*_):
    raise TimeoutError


def test_many_segments_of_a_picture_take_one_look_at_it(tmp_path):
    """A look for each of them takes hours where a file names a hundred thousand."""
    mask = draw_mask(shape=(1000, 1000))
    write_panoptic(tmp_path / "a.json", {"x": mask})
    content = json.loads((tmp_path / "a.json").read_text())
    spare = [{"id": 10**6 + number, "category_id": 10, "iscrowd": 0} for number in range(100_000)]
    content["annotations"][0]["segments_info"] += spare
    (tmp_path / "a.json").write_text(json.dumps(content))
    before = signal.signal(signal.SIGPROF, too_late)
    signal.setitimer(signal.ITIMER_PROF, 40)  # a deadline: the pass for each took minutes
    try:
        found = read_coco(tmp_path / "a.json" / "x", **(OPTIONS | {"max_pixels": 10**6}))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert np.array_equal(found, mask)
