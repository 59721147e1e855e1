"""The maps of a finished run are read back as they were predicted, whatever their format."""

import numpy as np
import pytest
import tifffile
from scipy.ndimage import label

from segmeter.data.config import FolderConfig
from segmeter.data.folder import build_folder
from segmeter.errors import DataError
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.pictures.finished import EvaluatedCases
from tests.data.crafted import noise, put

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


@pytest.mark.parametrize("form", ["png", "tiff", "zarr", "mha", "nrrd"])
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
    assert case.large is None


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
    np.testing.assert_array_equal(case.large.errors > 0, (blocks == 2).any(axis=(1, 3)))
    assert [label(found, np.ones((3, 3)))[1] for found in (mask == 2, case.target == 2)] == [5, 5]
    assert (case.large.size, case.large.wrong) == ((300, 200), (mask == 2).sum())
    np.testing.assert_array_equal(case.image[5, 7], image[15:18, 21:24].mean(axis=(0, 1)).astype(np.uint8))
    (_, target, _), (top, left) = case.large.worst
    np.testing.assert_array_equal(target, mask[top : top + 63, left : left + 63])
    assert len(case.large.tiles) == 3
    for tile in case.large.tiles:
        top, left = tile.facts["at"]
        np.testing.assert_array_equal(tile.image, image[top : top + 63, left : left + 63])
