"""COCO files: run lengths and polygons as pycocotools has them, and every doubt is an error."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from segmeter.data.masks.annotations import annotated_images, hash_annotated, read_annotated
from segmeter.data.masks.coco import expand_runs
from segmeter.errors import DataError
from segmeter.export.objects import compress_runs
from tests.data.crafted import put
from tests.data.formats_written import NAMES, coco_content, draw_mask, library, write_panoptic
from tests.data.masks import exported
from tests.data.masks.exported import CELLS
from tests.differential.peers import quiet

SPEC = exported.SPEC.replace(ignore_index=255)
READING = replace(exported.READING, spec=SPEC)
NUMBERED = replace(READING, instances=True)


def of_shapes(*segmentations, crowd=(), shape=(20, 30)):
    """One image called x, whose objects are of the classes 1, 2, 1, 2, ..."""
    annotations = [
        {"id": i, "image_id": 1, "category_id": 10 * (1 + i % 2), "segmentation": one, "iscrowd": int(i in crowd)}
        for i, one in enumerate(segmentations)
    ]
    image = {"id": 1, "file_name": "folder/x.jpg", "height": shape[0], "width": shape[1]}
    categories = [{"id": 10, "name": "cell"}, {"id": 20, "name": "lymphocyte"}]
    return {"images": [image], "annotations": annotations, "categories": categories}


def test_objects_are_numbered_and_crowds_ignored(tmp_path):
    parts = np.zeros((3, 20, 30), bool)
    for i, part in enumerate(parts):
        part[2:8, 2 + 9 * i : 8 + 9 * i] = True
    runs = [library("pycocotools.mask").encode(np.asfortranarray(part, np.uint8))["counts"].decode() for part in parts]
    content = of_shapes(*({"size": [20, 30], "counts": each} for each in runs), crowd=(1,))
    path = put(tmp_path / "a.json", content)
    spec = CELLS.replace(ignore_index=255)
    with pytest.raises(DataError, match=r"`classes` to be of none, cell, got 1: lymphocyte"):
        read_annotated(path / "x", replace(NUMBERED, spec=spec))
    put(path, content | {"annotations": [each | {"category_id": 10} for each in content["annotations"]]})
    found = read_annotated(path / "x", replace(NUMBERED, spec=spec))
    assert np.array_equal(found, parts[0] * 1 + parts[1] * 255 + parts[2] * 2)
    with pytest.raises(DataError, match=r"a crowd.*to be ignored.*data.ignore_index=255"):
        read_annotated(path / "x", replace(NUMBERED, spec=CELLS))


def test_segments_of_a_panoptic_file_are_objects_if_they_are_things(tmp_path):
    mask = draw_mask()
    write_panoptic(tmp_path / "a.json", {"x": mask})
    path = tmp_path / "a.json" / "x"
    assert np.array_equal(read_annotated(path, READING), mask)
    cells = replace(NUMBERED, spec=CELLS)
    with pytest.raises(DataError, match=r"`classes` to be of none, cell, got 1: lymphocyte"):
        read_annotated(path, cells)
    with pytest.raises(DataError, match=r"`class of the objects` to be cell, got 1: 20\. Keep the others in another"):
        read_annotated(path, replace(cells, label_map={"10": 1, "20": 2}))
    found = read_annotated(path, replace(cells, label_map={"10": 1, "20": 1}))
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
        assert np.array_equal(read_annotated(tmp_path / "a.json" / name / "x", replace(READING, spec=spec)), plane)


def test_ids_go_by_a_label_map(tmp_path):
    path = put(tmp_path / "a.json", coco_content({"x": draw_mask()}))
    found = read_annotated(path / "x", replace(READING, label_map={"10": 2, "20": 255}))
    assert np.array_equal(found, np.array([0, 2, 255])[draw_mask()])
    with pytest.raises(DataError, match=r"`categories` to be in data.label_map, got 1: 20"):
        read_annotated(path / "x", replace(READING, label_map={"10": 2}))


def test_ids_of_categories_may_be_texts(tmp_path):
    content = of_shapes(RUNS)
    annotations = [each | {"category_id": str(each["category_id"])} for each in content["annotations"]]
    found = [
        read_annotated(put(tmp_path / name, each) / "x", READING)
        for name, each in {"a.json": content, "b.json": content | {"annotations": annotations}}.items()
    ]
    assert found[0].any()
    assert np.array_equal(*found)


def test_a_picture_that_is_gone_is_one_line(tmp_path):
    write_panoptic(tmp_path / "a.json", {"x": draw_mask()})
    (tmp_path / "a" / "x.png").unlink()
    for ask in (hash_annotated, lambda path: read_annotated(path, READING)):
        with pytest.raises(DataError, match=r"x\.png|a\.json/x"):
            ask(tmp_path / "a.json" / "x")


RUNS = {"size": [20, 30], "counts": [5, 10, 585]}
PLAIN = of_shapes(RUNS)
WRAPPED = [2**63 - 1, 2**63 - 1, 2306]  # a sum that int64 wraps around


def of_image(number):
    return PLAIN | {"annotations": [PLAIN["annotations"][0] | {"image_id": number}]}


def of_runs(counts, side=48):
    return of_shapes({"size": [side, side], "counts": counts}, shape=(side, side))


WRONG = {
    "no JSON": (b"{", "truncated or damaged"),
    "results": ([{"image_id": 1}], "a list of results"),
    "no images": (PLAIN | {"images": []}, "got none"),
    "two of one name": (PLAIN | {"images": PLAIN["images"] * 2}, "a file name of its own"),
    "two of one id": (PLAIN | {"images": [*PLAIN["images"], PLAIN["images"][0] | {"file_name": "y"}]}, "id of its own"),
    "annotations of no image": (of_image(2), "the id of an image of the file, got 1: 2"),
    "a text id": (of_image("1"), "the id of an image of the file, got 1: '1'"),
    "two on one pixel": (of_shapes(RUNS, RUNS), "10 pixels that two of them cover.*smaller_on_top"),
    "no annotations": ({"images": PLAIN["images"]}, "truncated or damaged"),
    "another class": (PLAIN | {"categories": [{"id": 10, "name": "nerve"}]}, "to be of background, cell"),
    "an unknown category": (PLAIN | {"categories": []}, "truncated or damaged"),
    "the first class": (PLAIN | {"categories": [{"id": 10, "name": "background"}]}, "Name a background first"),
    "another size": (of_shapes({"size": [30, 20], "counts": [5, 10, 585]}), "of another size"),
    "too few pixels": (of_shapes({"size": [20, 30], "counts": [5, 10]}), "of another size"),
    "too many pixels": (of_shapes({"size": [20, 30], "counts": [5, 10, 10**15]}), "of another size"),
    "negative runs": (of_shapes({"size": [20, 30], "counts": [5, -10, 605]}), "of another size"),
    "a sum that wraps around": (of_runs(WRAPPED), "of another size"),
    "the same as text": (of_runs(compress_runs(WRAPPED)), "of another size"),
    "run lengths with a fraction": (of_shapes({"size": [20, 30], "counts": [5.7, 10.2, 585.1]}), "of another size"),
    "a text of one endless number": (of_shapes({"size": [20, 30], "counts": "o" * 500_000}), "text that can't be read"),
    "a polygon of long edges": (of_shapes([[0, 0, 30, 0.5] * 210]), "12400 corners and pixels together, got 12"),
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
    path = put(tmp_path / "a.json", content)
    with pytest.raises(DataError, match=line) as error:
        read_annotated(annotated_images(path)["x"][0], READING)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize("seed", range(20))
def test_run_lengths_are_those_of_pycocotools(seed):
    mask = np.random.default_rng(seed).random((17, 23)) < 0.1 + 0.04 * seed
    text = library("pycocotools.mask").encode(np.asfortranarray(mask, np.uint8))["counts"].decode()
    found = expand_runs(text)
    assert np.array_equal(np.repeat(np.arange(len(found)) % 2 == 1, found).reshape(23, 17).T, mask)
    assert compress_runs(found) == text


COMB = [[x + 0.01 * (y % 2), y] for x in range(0, 30, 2) for y in (range(20), range(20, 0, -1))[x // 2 % 2]]
TRACED = np.array(
    [[*COMB, [30, 20], [30, 0]]], float
)  # corners on every pixel's edge, as tools write that trace pixels
POLYGONS = [*(np.random.default_rng(seed).random((2, 5, 2)) * [30, 20] for seed in range(5)), TRACED]


@pytest.mark.parametrize("polygons", POLYGONS, ids=[*range(5), "traced"])
def test_polygons_are_filled_as_pycocotools_does(polygons, tmp_path):
    tools = library("pycocotools.coco")
    path = put(tmp_path / "a.json", of_shapes(polygons.reshape(len(polygons), -1).tolist()))
    theirs = tools.COCO(str(path))
    with quiet():
        wanted = theirs.annToMask(theirs.anns[0])
    assert np.array_equal(read_annotated(path / "x", READING), wanted)


@pytest.mark.parametrize(
    ("text", "fault"), [("52203~", "can't be read"), ("5220/", "can't be read"), ("5220o", "ends within a number")]
)
def test_a_text_that_is_no_run_lengths_is_refused(text, fault):
    with pytest.raises(ValueError, match=fault):
        expand_runs(text)


def test_run_lengths_of_any_int64_are_read():
    runs = [2**63 - 1, 0, 2**63 - 1, 5]
    assert expand_runs(compress_runs(runs)) == runs
