"""Cases larger than memory, against the same cases in memory, to the last bit; labels lie where their images lie."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tifffile
import torch
import zarr
from PIL import Image

from segmeter.data.config import FolderConfig
from segmeter.data.files.opened import read_geometry
from segmeter.data.folder import build_folder, open_images
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.evaluate import predict, prefer_bands
from segmeter.evaluation.manifest import parse_case_facts, read_case_facts
from segmeter.evaluation.predicted import CaseRun, Spool
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.losses.config import DiceConfig, FocalConfig, build_loss
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.postprocess.config import ClosingConfig, PostprocessConfig, WatershedConfig
from tests.data.crafted import write_pyramid, write_zarr
from tests.data.files.test_opened import geotags
from tests.evaluation import jobs
from tests.evaluation.jobs import files, interrupted
from tests.models.parts import make_card, make_spec, make_tiny

SPEC = make_spec()
SIZES = {"a": (200, 140), "b": (97, 130), "c": (340, 64)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("images", "masks"):
        (root / name).mkdir()
    for name, size in SIZES.items():
        image = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        target = rng.integers(0, 3, size).astype(np.uint8)
        target[:9] = 255
        tifffile.imwrite(root / "images" / f"{name}.tif", image, photometric="rgb", tile=(64, 64))
        if name == "b":
            Image.fromarray(target).save(root / "masks" / "b.png")
        else:
            tifffile.imwrite(root / "masks" / f"{name}.tif", target, tile=(32, 32), compression="zlib")
    return root


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 20_000)  # b is smaller, and run in memory


def predictor(spec=SPEC):
    config = InferenceConfig(precision="float32", batch_size=2, tile=64, tile_batch=3)
    return Predictor(make_tiny(card=make_card(spec)), config, torch.device("cpu"))


def cases_of(data):
    config = FolderConfig(root=str(data), classes=SPEC.names, ignore_index=255)
    return replace(build_folder(config, split="all"), streams=True)


def evaluated(data, folder, **changes):
    fields = {
        "predictor": predictor(),
        "dataset": cases_of(data),
        "loss": build_loss(FocalConfig(), spec=SPEC),
        "export": ExportConfig(labels_format="tiff"),
        "identity": {"checkpoint": "0"},
    }
    return jobs.evaluated(folder, **(fields | changes))


def labels_in(folder):
    return {path.stem: tifffile.imread(path) for path in (folder / "predictions" / "labels").iterdir()}


def test_an_evaluation_by_rows_is_that_in_memory(data, tmp_path, monkeypatch):
    whole = evaluated(data, tmp_path / "whole")
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 20_000)
    assert cases_of(data).streamed_cases() == {0, 2}
    assert evaluated(data, tmp_path / "rows") == whole
    np.testing.assert_equal(labels_in(tmp_path / "rows"), labels_in(tmp_path / "whole"))
    assert (tmp_path / "rows/cases.parquet").read_bytes() == (tmp_path / "whole/cases.parquet").read_bytes()


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_evaluation_ends_with_the_same_bytes(data, tmp_path, streamed, after, caplog):
    evaluated(data, tmp_path / "clean")
    with interrupted(after):
        evaluated(data, tmp_path / "run")
    evaluated(data, tmp_path / "run", resume=True)
    kept = f"{after - 1} of 3 cases are kept. A large image that was cut short begins at its first row again."
    assert kept in caplog.text
    assert files(tmp_path / "run") == files(tmp_path / "clean")


NEED_WHOLE_MAPS = [
    ({"postprocess": PostprocessConfig(steps=(ClosingConfig(),))}, "postprocess.closing"),
    ({"export": ExportConfig(probs=True)}, "export.probs"),
    ({"export": ExportConfig(confidence=True)}, "export.confidence"),
    ({"export": ExportConfig(objects=("coco",))}, "export.objects"),
]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        *NEED_WHOLE_MAPS,
        ({"metrics": MetricsConfig(measures=(SurfaceConfig(),))}, "metrics.measures: surface"),
        ({"metrics": MetricsConfig(calibration=True)}, "metrics.calibration"),
        ({"loss": torch.nn.CrossEntropyLoss()}, "loss"),
        ({"loss": build_loss(DiceConfig(over="sample"), spec=SPEC)}, "loss"),
    ],
)
def test_what_needs_a_whole_map_is_refused_by_name_before_any_work(data, tmp_path, streamed, changes, what):
    with pytest.raises(ConfigError, match=rf"`{what}` to work by rows, as case 'a' .* \(200 x 140 pixels\)"):
        evaluated(data, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_file_that_changed_since_it_was_checked_is_refused(data, tmp_path, streamed):
    dataset = cases_of(data).with_contents([("0" * 64, "0" * 64)] * 3)
    with pytest.raises(DataError, match="to have the content that was checked at the start"):
        evaluated(data, tmp_path, dataset=dataset)


@pytest.mark.parametrize("folder", ["images", "masks"])
def test_a_file_that_changes_while_its_rows_are_read_is_refused(data, tmp_path, streamed, monkeypatch, folder):
    """With size and time of modification put back."""
    copied = shutil.copytree(data, tmp_path / "data")
    path, append = copied / folder / "a.tif", Spool.append
    content, times = path.read_bytes(), path.stat()

    def change_and_append(spool, labels):
        with path.open("r+b") as file:  # never cut, as it is being read
            file.write(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        append(spool, labels)

    monkeypatch.setattr(Spool, "append", change_and_append)
    with pytest.raises(DataError, match=f"{folder}/a.tif: expected `file` to stay as it is"):
        evaluated(copied, tmp_path / "run")


def prediction(dataset, folder):
    return jobs.case_run(folder, predictor=predictor(), dataset=dataset)


def test_zarr_and_pyramids_are_predicted_like_the_picture_that_they_hold(data, tmp_path, streamed):
    image = tifffile.imread(data / "images" / "a.tif")
    (tmp_path / "images").mkdir()
    folder = tmp_path / "images" / "b.zarr"
    write_zarr(folder, np.moveaxis(image, -1, 0), "cyx", chunks=(1, 64, 64))
    write_pyramid(tmp_path / "images" / "a.tif", image.repeat(2, 0).repeat(2, 1), image, tile=(64, 64))
    tifffile.imwrite(tmp_path / "plain.tif", image, photometric="rgb", tile=(64, 64))
    predict(prediction(open_images(tmp_path / "plain.tif", spec=SPEC, in_channels=3), tmp_path / "plain"))
    expected = labels_in(tmp_path / "plain")["plain"]
    predict(prediction(open_images(folder, spec=SPEC, in_channels=3), tmp_path / "zarr"))
    assert np.array_equal(labels_in(tmp_path / "zarr")["b"], expected)
    pyramid = open_images(tmp_path / "images" / "a.tif", spec=SPEC, in_channels=3, level=1)
    predict(prediction(pyramid, tmp_path / "level"))
    assert np.array_equal(labels_in(tmp_path / "level")["a"], expected)
    with pytest.raises(DataError, match="to have a level 1"):
        open_images(tmp_path / "plain.tif", spec=SPEC, in_channels=3, level=1)
    assert len(open_images(tmp_path / "images", spec=SPEC, in_channels=3)) == 2


def preferred(dataset, folder, **changes):
    """A prediction that reads what is run in tiles by rows, where it may."""
    job = replace(prediction(dataset, folder), **changes)
    groups = {"inference": job.predictor.config, "export": job.export, "postprocess": job.postprocess}
    return replace(job, dataset=prefer_bands(dataset, **groups))


@pytest.fixture
def tiled_above(monkeypatch):
    monkeypatch.setattr("segmeter.evaluation.evaluate.BANDED_PIXELS", 20_000)


def images_of(data):
    return open_images(data / "images", spec=SPEC, in_channels=3)


@pytest.mark.parametrize("form", ["png", "tiff", "zarr", "mha"])
def test_an_image_that_fits_leaves_the_same_files_by_rows(data, tmp_path, tiled_above, form):
    export = ExportConfig(labels_format=form)
    predict(replace(prediction(images_of(data), tmp_path / "whole"), export=export))
    job = preferred(images_of(data), tmp_path / "rows", export=export)
    assert job.dataset.streamed_cases() == {0, 2}
    predict(job)
    assert files(tmp_path / "rows" / "predictions") == files(tmp_path / "whole" / "predictions")
    (path,) = (tmp_path / "rows/predictions/labels").glob("a.*")
    assert list(parse_case_facts(read_case_facts(tmp_path / "rows"))["a"]["files"]) == [f"labels/{path.name}"]


@pytest.mark.parametrize("changes", [changes for changes, _ in NEED_WHOLE_MAPS], ids=str)
def test_an_image_that_fits_is_read_whole_where_that_is_needed(data, tmp_path, tiled_above, changes):
    job = preferred(images_of(data), tmp_path, **changes)
    assert not job.dataset.streamed_cases()
    assert predict(job) == 3


def test_large_images_whose_probabilities_are_kept_go_one_at_a_time_and_leave_the_same_files(
    data, tmp_path, monkeypatch
):
    def evaluate_keeping(folder):
        dataset = replace(cases_of(data), streams=False)
        evaluated(data, folder, dataset=dataset, export=ExportConfig(labels_format="tiff", probs=True))

    evaluate_keeping(tmp_path / "together")
    parts, predictions = [], CaseRun.predictions
    monkeypatch.setattr(
        CaseRun, "predictions", lambda run, cases, **options: parts.append(cases) or predictions(run, cases, **options)
    )
    monkeypatch.setattr("segmeter.evaluation.evaluate.WHOLE_PIXELS", 20_000)  # a and c have more, b fewer
    evaluate_keeping(tmp_path / "apart")
    assert parts == [range(1), range(1, 2), range(2, 3)]
    assert files(tmp_path / "apart") == files(tmp_path / "together")


IMAGE = np.random.default_rng(0).integers(0, 256, (300, 130, 3), dtype=np.uint8)


@pytest.fixture
def images(tmp_path):
    """A GeoTIFF, and a Zarr whose channels come last."""
    folder = tmp_path / "images"
    folder.mkdir()
    tifffile.imwrite(folder / "a.tif", IMAGE, photometric="rgb", tile=(64, 64), extratags=geotags(), metadata=None)
    array = zarr.create_array(str(folder / "b.zarr"), data=IMAGE, chunks=(64, 64, 3), dimension_names=("y", "x", "c"))
    array.attrs.update({"spacing": [0.5, 0.25], "unit": "um"})
    return folder


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("form", ["png", "zarr", "tiff", "mha"])
def test_labels_lie_where_the_images_lie_or_that_is_said_once(images, tmp_path, monkeypatch, caplog, form, by_rows):
    """By rows, labels are written as TIFF unless Zarr is asked for."""
    if by_rows:
        monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 20_000)
    job = prediction(open_images(images, spec=SPEC, in_channels=3), tmp_path / "run")
    predict(replace(job, export=ExportConfig(labels_format=form)))
    first, second = sorted((tmp_path / "run/predictions/labels").iterdir())
    if first.suffix in (".tif", ".zarr"):
        found, kept = read_geometry(second), read_geometry(images / "a.tif").geotiff if first.suffix == ".tif" else ()
        assert (found.spacing, found.unit, found.geotiff) == ((0.5, 0.25), "um", ())
        assert read_geometry(first).geotiff == kept
    if form == "tiff":
        assert np.array_equal(tifffile.imread(first), tifffile.imread(second))
    said = f"predictions: {form} files can't say where the pixels of case 'a' lie. export.labels_format=tiff keeps it."
    lost = form == "zarr" or (form != "tiff" and not by_rows)
    assert [line for line in caplog.messages if "can't say" in line] == ([said] if lost else [])


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("form", ["tiff", "zarr", "png"])
def test_instances_lie_where_the_images_lie_or_that_is_said(images, tmp_path, caplog, form, labels):
    job = prediction(open_images(images / "a.tif", spec=SPEC, in_channels=3), tmp_path / "run")
    export = ExportConfig(labels=labels, labels_format=form, instances=True)
    predict(replace(job, export=export, postprocess=PostprocessConfig(steps=(WatershedConfig(),))))
    (written,) = (tmp_path / "run/predictions/instances").iterdir()
    kept = read_geometry(images / "a.tif").geotiff if form != "png" else ()
    assert (written.suffix, read_geometry(written).geotiff) == (".png" if form == "png" else ".tif", kept)
    said = any("files can't say where the pixels" in line for line in caplog.messages)
    assert said == (form != "tiff" and labels)
