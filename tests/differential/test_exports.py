"""Masks that the tools' own packages write, read by ours: every pixel is equal."""

import ast
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from segmeter.data.labels_config import LabelsConfig
from segmeter.data.masks.annotations import expand_brush, read_annotated
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from tests.data.crafted import put
from tests.data.formats_written import NAMES
from tests.data.masks.exported import SPEC, blocks, cvat_mask, parts_of, polygon, task, write_cvat
from tests.differential.cases import disk
from tests.differential.peers import find_peer, load, quiet

READING = Reading(spec=SPEC)
SHAPE = (170, 260)  # a stroke of Label Studio has runs of more than 65,536 values then


def round_masks(shape=SHAPE):
    """Discs of two classes that don't touch, one of them cut off by the edge of the image."""
    mask, (height, width) = np.zeros(shape, np.uint8), shape
    for k, (y, x, radius) in enumerate([(0.2, 0.2, 0.1), (0.5, 0.55, 0.15), (0.8, 0.1, 0.05), (0.95, 0.9, 0.2)]):
        mask[disk(shape, (y * height, x * width), radius * width) > 0] = 1 + k % 2
    return mask


def preset(name):
    config = LabelsConfig(preset=name)
    return Reading.of(config, config.spec())


def test_brush_strokes_of_label_studio(tmp_path):
    peer, mask, results = load("label_studio_sdk.converter.brush", "label-studio-sdk"), round_masks(), []
    for label in (1, 2):
        Image.fromarray((mask == label).astype(np.uint8) * 255).save(tmp_path / "x.png")
        results += peer.image2annotation(tmp_path / "x.png", NAMES[label], "tag", "image")["result"]
        rle = results[-1]["value"]["rle"]
        assert np.array_equal(expand_brush(bytes(rle), mask.size * 4), peer.decode_rle(rle))
    path = put(tmp_path / "a.json", json.dumps([task(*results)]).encode())
    assert np.array_equal(read_annotated(path / "x", READING), mask)


def test_label_studio_writes_its_polygons_as_yolo_labels(tmp_path):
    peer = load("label_studio_sdk.converter.exports.yolo", "label-studio-sdk")
    results = [polygon(corners, NAMES[label]) for label, corners in parts_of(blocks())]
    ids = {NAMES[label]: label - 1 for label in (1, 2)}
    classes = [{"id": number, "name": name} for name, number in ids.items()]
    flat = [{"type": each["type"], **each["value"]} for each in results]
    peer.process_and_save_yolo_annotations(flat, str(tmp_path / "x.txt"), ids, classes, False, False, None)
    path = put(tmp_path / "a.json", json.dumps([task(*results)]).encode())
    drawn = read_map(tmp_path / "x.txt", READING, shape=blocks().shape).values
    assert np.array_equal(drawn, read_annotated(path / "x", READING))
    assert np.array_equal(drawn, blocks())


def test_masks_of_cvat(tmp_path):
    """Its SDK gives run lengths, then the first and last column and row of the box, from which its export is made."""
    peer, mask, shapes = load("cvat_sdk.masks", "cvat-sdk"), round_masks(), []
    for label in (1, 2):
        *runs, left, top, right, bottom = peer.encode_mask(mask == label)
        place = {"left": left, "top": top, "width": right - left + 1, "height": bottom - top + 1}
        shapes.append(("mask", {"label": NAMES[label], "rle": ", ".join(map(str, runs)), "z_order": 0, **place}))
        assert shapes[-1] == cvat_mask(mask == label, NAMES[label])
    path = write_cvat(tmp_path / "a.xml", shapes, size=mask.shape)
    assert np.array_equal(read_annotated(path / "x", READING), mask)


def write_by_datumaro(form, folder, annotations, shape, names=NAMES[1:], **options):
    """Write one image with an exporter of Datumaro, which reads and writes the formats of CVAT."""
    datumaro = load("datumaro", "datumaro")
    plugin = load(f"datumaro.plugins.data_formats.{form}.exporter", "datumaro")
    exporter = plugin.CvatExporter if form == "cvat" else plugin.VocSegmentationExporter
    picture = datumaro.Image.from_numpy(np.zeros((*shape, 3), np.uint8))
    item = datumaro.DatasetItem(id="x", subset="a", media=picture, annotations=annotations, attributes={"frame": 0})
    with quiet():
        dataset = datumaro.Dataset.from_iterable([item], categories=list(names))
        exporter.convert(dataset, save_dir=str(folder), save_media=True, **options)


@pytest.mark.parametrize("drawn", ["masks", "polygons"])
def test_cvat_files_of_datumaro(drawn, tmp_path):
    datumaro, mask = load("datumaro", "datumaro"), round_masks() if drawn == "masks" else blocks()
    if drawn == "masks":
        shapes = [datumaro.Mask(mask == label, label=label - 1) for label in (1, 2)]
    else:
        shapes = [datumaro.Polygon(corners.ravel().tolist(), label=label - 1) for label, corners in parts_of(mask)]
    write_by_datumaro("cvat", tmp_path, shapes, mask.shape)
    assert np.array_equal(read_annotated(tmp_path / "a.xml" / "x", READING), mask)


def test_a_higher_z_order_covers_as_in_datumaro(tmp_path):
    datumaro, areas = load("datumaro", "datumaro"), np.zeros((3, *SHAPE), bool)
    areas[0, 10:90, 10:90], areas[1, 40:120, 40:120], areas[2, 80:140, 60:200] = True, True, True
    given = zip(areas, (0, 1, 0), (2, 7, -3), strict=True)
    shapes = [datumaro.Mask(area, label=label, z_order=order) for area, label, order in given]
    merged = datumaro.CompiledMask.from_instance_masks(shapes, instance_labels=[1 + each.label for each in shapes])
    write_by_datumaro("cvat", tmp_path, shapes, SHAPE)
    assert np.array_equal(read_annotated(tmp_path / "a.xml" / "x", READING), merged.class_mask)


@pytest.mark.parametrize("name", ["voc", "voc-colours"])
def test_voc_files_of_datumaro(name, tmp_path):
    """CVAT's "Segmentation mask" is the same export, in colours."""
    mask = np.arange(21, dtype=np.uint8).repeat(6).reshape(9, 14)
    shapes = [load("datumaro", "datumaro").Mask(mask == label, label=label) for label in range(1, 21)]
    options = {"label_map": "voc", "apply_colormap": name == "voc-colours"}
    write_by_datumaro("voc", tmp_path, shapes, mask.shape, LabelsConfig(preset="voc").classes, **options)
    assert np.array_equal(read_map(tmp_path / "SegmentationClass" / "x.png", preset(name)).values, mask)


def test_cityscapes_files_of_its_scripts(tmp_path):
    """One drawing with an object of every label, in ids, in colours, and as the ids that networks are trained with."""
    peer = load("cityscapesscripts.preparation.json2labelImg", "cityscapesscripts")
    names = [one.name for one in load("cityscapesscripts.helpers.labels", "cityscapesscripts").labels if one.id >= 0]
    corners = [[[4 * i, 0], [4 * i + 2, 0], [4 * i + 2, 9], [4 * i, 9]] for i in range(len(names))]
    objects = [{"label": name, "polygon": each} for name, each in zip(names, corners, strict=True)]
    drawing = {"imgHeight": 12, "imgWidth": 4 * len(names), "objects": objects}
    put(tmp_path / "a.json", json.dumps(drawing).encode())
    for kind in ("ids", "color", "trainIds"):
        peer.json2labelImg(str(tmp_path / "a.json"), str(tmp_path / f"{kind}.png"), kind)
    expected = np.asarray(Image.open(tmp_path / "trainIds.png"))
    assert set(np.unique(expected)) == {*range(19), 255}
    assert np.array_equal(read_map(tmp_path / "ids.png", preset("cityscapes")).values, expected)


TRACED = replace(READING, corners="centres")


def ragged_masks():
    """Blobs of two classes without holes; no part is so small that its outline has less than three corners."""
    smooth = ndimage.gaussian_filter(np.random.default_rng(5).normal(size=(97, 131)), 4)
    one = ndimage.binary_opening(ndimage.binary_fill_holes(smooth > 0.04), np.ones((2, 2)))
    two = ndimage.binary_opening(ndimage.binary_fill_holes(smooth < -0.04) & ~one, np.ones((2, 2)))
    return one + 2 * two.astype(np.uint8)


@pytest.mark.parametrize("mask", [blocks(), round_masks(), ragged_masks()], ids=["blocks", "round", "ragged"])
def test_labels_that_ultralytics_converts_from_masks(mask, tmp_path, caplog):
    """Its contours run through the centres of the outermost pixels."""
    peer = load("ultralytics.data.converter", "ultralytics")
    (tmp_path / "masks").mkdir()
    Image.fromarray(mask).save(tmp_path / "masks" / "x.png")
    peer.convert_segment_masks_to_yolo_seg(str(tmp_path / "masks"), str(tmp_path / "labels"), 2)
    path = tmp_path / "labels" / "x.txt"
    assert np.array_equal(read_map(path, TRACED, shape=mask.shape).values, mask)
    assert "data.corners" not in caplog.text
    smaller = read_map(path, READING, shape=mask.shape).values
    assert "set data.corners=centres" in caplog.text
    assert (smaller > 0).sum() < (mask > 0).sum()


def test_predictions_that_ultralytics_saves(tmp_path):
    """With their confidences. A full map of the image, as with ``retina_masks=True``."""
    torch, peer = load("torch"), load("ultralytics.engine.results", "ultralytics")
    mask = blocks()
    planes = np.stack([(ndimage.label(mask == k)[0] == one) * 1 for k, one in ((1, 1), (1, 2), (2, 1))])
    boxes = torch.tensor([[0.0, 0.0, 9.0, 9.0, 0.875, label] for label in (0, 0, 1)])
    given = {"boxes": boxes, "masks": torch.from_numpy(planes.astype(np.uint8))}
    found = peer.Results(np.zeros((*mask.shape, 3), np.uint8), "x.png", dict(enumerate(NAMES[1:])), **given)
    for kind, with_confidence in (("plain", False), ("scored", True)):
        found.save_txt(tmp_path / f"{kind}.txt", save_conf=with_confidence)
        assert np.array_equal(read_map(tmp_path / f"{kind}.txt", TRACED, shape=mask.shape).values, mask)


@pytest.mark.parametrize(("name", "module"), [("ade20k", "ade"), ("voc", "voc"), ("cityscapes", "cityscapes")])
def test_classes_and_colours_of_mmsegmentation(name, module):
    """As its files list them, which can't be imported without mmcv; its ADE20K colours are of its own making."""
    (listed,) = [each for each in find_peer("mmsegmentation").files if each.match(f"mmseg/datasets/{module}.py")]
    (meta,) = [
        {each.arg: ast.literal_eval(each.value) for each in node.value.keywords}
        for node in ast.walk(ast.parse(listed.locate().read_text("utf-8")))
        if isinstance(node, ast.Assign) and node.targets[0].id == "METAINFO"
    ]
    config = LabelsConfig(preset=name)
    assert config.classes == tuple(each.strip() for each in meta["classes"])
    if config.colours:
        assert config.colours == tuple(map(tuple, meta["palette"]))
