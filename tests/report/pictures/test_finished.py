"""The pictures of a finished run: which cases and slices they show, and how its maps are read back."""

import json

import numpy as np
import pytest
import tifffile
from PIL import Image
from scipy.ndimage import label

from segmeter.data.config import FolderConfig
from segmeter.data.folder import build_folder
from segmeter.errors import DataError
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import EvaluatedCases, choose_slice, draw_run
from segmeter.report.pictures.flatten import draw_overlay
from segmeter.report.pictures.layers import DrawnCase
from segmeter.report.pictures.objects import Objects
from tests.data.crafted import noise, put
from tests.metrics.build import class_spec

SPEC = class_spec(2, "binary")
CONFIG = ReportConfig(panel=128, overlays=1, worst=1)
RANKING = Ranking(
    case_ids="abcd", worst="ba", headline="iou/road", scores={"a": 0.9, "b": 0.2, "c": float("nan"), "d": float("nan")}
)


def case(**changes):
    target = np.zeros((20, 20), np.uint8)
    target[4:16, 4:16] = 1
    fields = {"image": np.full((20, 20, 1), 90, np.uint8), "target": target, "labels": np.roll(target, 2, axis=1)}
    return DrawnCase(**(fields | changes))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_the_worst_case_is_drawn_and_cropped_nothing_else_is_read_and_earlier_pictures_go(tmp_path):
    draw_run(tmp_path, RANKING, lambda name: case(), CONFIG.replace(overlays=-1, worst=2), SPEC)
    assert names_in(tmp_path / "pictures") == ["a", "b", "c", "d"]
    read = []
    draw_run(tmp_path, RANKING, lambda name: (read.append(name), case())[1], CONFIG, SPEC)
    assert read == ["b"]
    assert names_in(tmp_path / "overlays") == ["b.png"]
    assert names_in(tmp_path / "pictures") == names_in(tmp_path / "worst") == ["b"]


@pytest.mark.parametrize("numbered", [True, False], ids=["with instances", "semantic"])
def test_touching_objects_of_both_sides_are_told_apart(tmp_path, numbered):
    given = case(files={"image": [tmp_path / "b.tif"]})
    halves = (np.arange(20) // 10 + 1).astype(np.int32)[:, None]  # two objects that touch, above and below
    objects = Objects(target=given.target * halves, prediction=given.labels * halves) if numbered else Objects()
    drawn = case(objects=objects, files=given.files)
    draw_run(tmp_path, RANKING, lambda name: drawn, CONFIG, SPEC)
    assert json.loads((tmp_path / "pictures" / "b" / "layers.json").read_text())["files"] == {"image": ["b.tif"]}
    maps = (given.image, given.target, given.labels, SPEC)
    expected = draw_overlay(*maps, title="b", headline="iou/road", score=0.2, panel=128, objects=objects)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "overlays" / "b.png")), expected)


def test_a_run_without_references_has_pictures_and_no_crops(tmp_path):
    draw_run(tmp_path, Ranking(case_ids="abc"), lambda name: case(target=None), CONFIG.replace(overlays=-1), SPEC)
    assert names_in(tmp_path / "overlays") == ["a.png", "b.png", "c.png"]
    assert not (tmp_path / "worst").exists()


def test_every_case_that_cannot_be_read_has_its_line(tmp_path):
    def read(name):
        if name in "ac":
            raise DataError(f"{name}.png: is damaged.")
        return case()

    with pytest.raises(DataError) as error:
        draw_run(tmp_path, RANKING, read, CONFIG.replace(overlays=-1), SPEC)
    assert error.value.problems == ("a.png: is damaged.", "c.png: is damaged.")
    assert names_in(tmp_path / "overlays") == ["b.png", "d.png"]


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_the_slice_with_the_most_wrong_pixels_is_chosen_or_without_errors_with_the_most_objects(task):
    spec, lead = class_spec(2, task), (2,) if task == "multilabel" else ()
    target = np.zeros((*lead, 6, 4, 4), np.uint8)
    labels = target.copy()
    labels[..., 1, 0, :2] = 1
    labels[..., 4, 0, :3] = 1
    assert choose_slice(target, labels, spec) == 4
    target[..., 4, 0, :3] = 255
    assert choose_slice(target, labels, spec) == 1, "ignored pixels are not wrong"
    objects = np.zeros((*lead, 7, 4, 4), np.uint8)
    assert choose_slice(objects, objects, spec) == 3, "the middle"
    objects[..., [0, 5], :2, :] = 1
    assert choose_slice(objects, objects, spec) == 5, "of those with the most objects, the one nearest to the middle"


NAMES = ("ground", "tree", "car")
SIZE = (37, 52)
NUMBERED = MetricsConfig(measures=({"name": "instances"},))


@pytest.fixture
def data(tmp_path):
    """Two cases, the target of the second one without any tree."""
    for seed, name in enumerate("ab"):
        put(tmp_path / "data" / "images" / f"{name}.png", noise(*SIZE, seed=seed))
        put(tmp_path / "data" / "masks" / f"{name}.png", target(seed))
        for k, folder in enumerate(NAMES):
            put(tmp_path / "data" / "planes" / folder / f"{name}.png", (target(seed) == k).astype(np.uint8))
    return tmp_path


def target(seed):
    return noise(*SIZE, None, seed=seed + 50) % 3


def cases_of(root, *, task="multiclass"):
    masks = "planes" if task == "multilabel" else "masks"
    config = FolderConfig(root=str(root / "data"), classes=NAMES, task=task, masks=masks)
    return build_folder(config, split="all")


def written(root, dataset, labels, *, instances=None, **options):
    """The cases of a run that predicted these maps."""
    writer = Writer(root / "predictions", ExportConfig(**options), dataset.spec)
    for case_id in dataset.case_ids:
        writer.write(case_id, labels, instances=instances)
    return EvaluatedCases(predictions=root / "predictions", dataset=dataset, metrics=NUMBERED)


@pytest.mark.parametrize("form", ["png", "tiff", "zarr", "mha"])
def test_label_maps_of_every_format_are_read_back_and_instances_where_they_were_written(data, form):
    labels = noise(*SIZE, None, seed=9) % 3
    numbers = np.arange(labels.size).reshape(SIZE) // 9 * (labels > 0)
    cases = written(data, cases_of(data), labels, labels_format=form, instances=numbers if form == "png" else None)
    case = cases("b")
    np.testing.assert_array_equal(case.labels, labels)
    np.testing.assert_array_equal(case.target, target(1))
    np.testing.assert_array_equal(case.image, noise(*SIZE, seed=1))
    assert [path.name for role in ("image", "target") for path in case.files[role]] == ["b.png", "b.png"]
    np.testing.assert_equal(case.objects.prediction, numbers if form == "png" else None)
    assert case.size is None


def test_planes_of_a_multilabel_task_are_stacked(data):
    planes = np.stack([noise(*SIZE, None, seed=seed) % 2 for seed in range(3)])
    case = written(data, cases_of(data, task="multilabel"), planes)("a")
    np.testing.assert_array_equal(case.labels, planes)
    np.testing.assert_array_equal(case.target, np.stack([target(0) == k for k in range(3)]))


@pytest.mark.parametrize("fault", ["missing", "another size", "no label"])
def test_a_label_map_that_is_not_the_run_s_is_refused(data, fault):
    read = written(data, cases_of(data), np.zeros(SIZE, np.uint8))
    path = data / "predictions" / "labels" / "a.png"
    if fault == "missing":
        path.unlink()
    else:
        put(path, np.full(SIZE if fault == "no label" else (5, 6), 7 * (fault == "no label"), np.uint8))
    with pytest.raises(DataError, match=r"a\.png"):
        read("a")


@pytest.mark.parametrize("form", ["tiff", "png"])
def test_a_case_larger_than_memory_keeps_a_thin_structure_whole_and_its_own_pixels(tmp_path, monkeypatch, form):
    """A label map that fits into memory may have any format."""
    image = noise(300, 200, seed=3)
    mask = np.zeros((300, 200), np.uint8)
    mask[:, 100:] = 1
    for line in range(5, 300, 60):
        mask[np.arange(line, line + 50), np.arange(50) + 75] = 2  # a diagonal of one pixel's width
    labels = np.where(mask == 2, 0, mask).astype(np.uint8)
    (tmp_path / "data" / "images").mkdir(parents=True)
    (tmp_path / "data" / "masks").mkdir()
    tifffile.imwrite(tmp_path / "data" / "images" / "a.tif", image, photometric="rgb", tile=(64, 64))
    tifffile.imwrite(tmp_path / "data" / "masks" / "a.tif", mask, tile=(32, 32), compression="zlib")
    for name, value in (("LONGEST", 100), ("TILE", 64), ("MOST_TILES", 3)):
        monkeypatch.setattr(f"segmeter.report.pictures.layers.{name}", value)
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 20_000)
    dataset = cases_of(tmp_path)
    object.__setattr__(dataset, "streams", True)
    case = written(tmp_path, dataset, labels, labels_format=form)("a")
    blocks = np.pad(mask, ((0, 0), (0, 1))).reshape(100, 3, 67, 3)
    np.testing.assert_array_equal(case.target == 2, (blocks == 2).any(axis=(1, 3)))
    np.testing.assert_array_equal(case.errors > 0, (blocks == 2).any(axis=(1, 3)))
    assert [label(found, np.ones((3, 3)))[1] for found in (mask == 2, case.target == 2)] == [5, 5]
    assert (case.size, case.wrong_pixels) == ((300, 200), (mask == 2).sum())
    np.testing.assert_array_equal(case.image[5, 7], image[15:18, 21:24].mean(axis=(0, 1)).astype(np.uint8))
    (top, left), (_, target, _) = case.worst
    np.testing.assert_array_equal(target, mask[top : top + 63, left : left + 63])
    assert len(case.tiles) == 3
    for tile in case.tiles:
        top, left = tile.facts["at"]
        np.testing.assert_array_equal(tile.image, image[top : top + 63, left : left + 63])
