"""Objects as files, each read back by its own reader: pycocotools, json with scikit-image, csv."""

import csv
import json

import numpy as np
import pytest
from pycocotools import mask as coco
from scipy import ndimage

from segmeter.export.config import ExportConfig
from segmeter.export.objects import OBJECT_FILES, compress_runs, encode_coco, encode_geojson
from segmeter.export.writer import Writer
from segmeter.postprocess.config import DistanceSplitConfig, WatershedConfig
from segmeter.postprocess.pipeline import run_steps
from tests.postprocess.conftest import filled

# of pycocotools, which was built before NumPy 2
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture
def labels(rng):
    """Objects of every size, of three classes, with holes and corners that touch; (40, 30)."""
    return np.kron(rng.integers(0, 3, (20, 10)), np.ones((2, 3), int)).astype(np.uint8)


def objects_of(labels):
    """Label and mask of each object, class by class."""
    for label in (1, 2):
        parts, count = ndimage.label(labels == label, np.ones((3, 3)))
        yield from ((label, parts == number) for number in range(1, count + 1))


def drawn(geometry, shape):
    polygons = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
    return filled([ring for rings in polygons for ring in rings], shape)


def test_coco_run_lengths_are_read_by_pycocotools(labels, spec):
    entries = json.loads(encode_coco("case", labels, None, spec))
    for entry, (label, wanted) in zip(entries, objects_of(labels), strict=True):
        mask = coco.decode(entry["segmentation"])
        np.testing.assert_array_equal(mask, wanted)
        assert entry["area"] == coco.area(entry["segmentation"]) == np.count_nonzero(mask)
        assert entry["bbox"] == coco.toBbox(entry["segmentation"]).tolist()
        assert (entry["category_id"], entry["image_id"]) == (label, "case")


@pytest.mark.parametrize("step", [WatershedConfig, DistanceSplitConfig])
@pytest.mark.parametrize("form", OBJECT_FILES)
def test_a_split_of_one_class_loses_no_object_of_another(labels, spec, step, form):
    cleaned = run_steps(labels, (step(classes=(spec.names[1],)),), spec)
    content = OBJECT_FILES[form][1]("case", labels, cleaned.instances, spec).decode()
    if form == "table":
        found = [(row["class"], row["object"]) for row in csv.DictReader(content.splitlines())]
    elif form == "coco":
        found = [(spec.names[entry["category_id"]], entry["id"]) for entry in json.loads(content)]
    else:
        found = [(entry["properties"]["class"], entry["id"]) for entry in json.loads(content)["features"]]
    assert [name for name, _ in found].count(spec.names[2]) == [label for label, _ in objects_of(labels)].count(2)
    assert len({number for _, number in found}) == len(found)


@pytest.mark.parametrize("density", [0, 0.02, 0.5, 1])
def test_run_lengths_are_the_text_that_pycocotools_writes(rng, density):
    mask = rng.random((300, 210)) < density
    flat = mask.ravel(order="F")
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.r_[0, edges, flat.size]).tolist()
    runs = [0, *runs] if flat[0] else runs
    theirs = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    assert compress_runs(runs) == theirs


def test_geojson_outlines_fill_to_the_objects(labels, spec):
    found = json.loads(encode_geojson("case", labels, None, spec))
    assert (found["type"], found["name"]) == ("FeatureCollection", "case")
    for feature, (label, wanted) in zip(found["features"], objects_of(labels), strict=True):
        np.testing.assert_array_equal(drawn(feature["geometry"], labels.shape), wanted)
        properties, name = feature["properties"], spec.names[label]
        assert (properties["label"], properties["class"]) == (label, name)
        assert properties["classification"] == {"name": name, "color": list(spec.colours[label])}, "as QuPath has it"
        assert properties["pixels"] == np.count_nonzero(wanted)


def test_an_instance_in_two_parts_is_one_object(tmp_path, spec):
    labels = np.zeros((6, 9), np.uint8)
    labels[1:3, 1:3] = labels[4:5, 5:8] = 2
    instances = np.where(labels > 0, 7, 0)
    config = ExportConfig(objects=("geojson", "coco", "table"))
    Writer(tmp_path, config, spec).write("a b", labels, instances=instances)
    stem = next((tmp_path / "objects").glob("*.geojson")).name.removesuffix(".geojson")
    (feature,) = json.loads((tmp_path / f"objects/{stem}.geojson").read_text())["features"]
    assert (feature["id"], feature["geometry"]["type"]) == (7, "MultiPolygon")
    np.testing.assert_array_equal(drawn(feature["geometry"], labels.shape), labels > 0)
    (entry,) = json.loads((tmp_path / f"objects/{stem}.coco.json").read_text())
    np.testing.assert_array_equal(coco.decode(entry["segmentation"]), labels > 0)
    with (tmp_path / f"objects/{stem}.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["case_id"], row["class"], row["object"], row["pixels"]) == ("a b", "car", "7", "7")
    assert sorted(path.name for path in (tmp_path / "objects").iterdir()) == sorted(
        f"{stem}{suffix}" for suffix in (".geojson", ".coco.json", ".csv")
    )


def test_planes_of_multilabel_and_a_case_without_objects(planes_spec):
    planes = np.zeros((2, 5, 5), np.uint8)
    planes[0, :3, :3] = planes[1, 1:4, 1:4] = 1
    entries = json.loads(encode_coco("case", planes, None, planes_spec))
    assert [entry["category_id"] for entry in entries] == [0, 1]
    for entry, plane in zip(entries, planes, strict=True):
        np.testing.assert_array_equal(coco.decode(entry["segmentation"]), plane)
    assert json.loads(encode_coco("case", np.zeros_like(planes), None, planes_spec)) == []
