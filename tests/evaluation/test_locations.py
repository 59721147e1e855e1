"""Label files lie where their images lie, whether these are in memory or read by rows; Zarr cases are evaluated."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.cli.main import main
from segmeter.data.files.opened import read_geometry
from segmeter.data.folder import open_images
from segmeter.evaluation.evaluate import predict
from segmeter.export.config import ExportConfig
from segmeter.postprocess.config import PostprocessConfig, WatershedConfig
from tests.data.crafted import put, write_zarr
from tests.data.files.test_opened_geometry import geotags
from tests.evaluation.test_large import SPEC, prediction
from tests.faults.world import write_model
from tests.models.parts import make_card

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


def predict_images(images, folder, form, monkeypatch, *, by_rows):
    if by_rows:
        monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 20_000)
    job = prediction(open_images(images, spec=SPEC, in_channels=3), folder)
    predict(replace(job, export=ExportConfig(labels_format=form)))


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("form", ["tiff", "zarr"])
def test_labels_lie_where_the_images_lie(images, tmp_path, monkeypatch, form, by_rows):
    predict_images(images, tmp_path / "run", form, monkeypatch, by_rows=by_rows)
    suffix = ".tif" if form == "tiff" else ".zarr"
    first, second = (read_geometry(tmp_path / "run/predictions/labels" / f"{name}{suffix}") for name in "ab")
    assert (second.spacing, second.unit, second.geotiff) == ((0.5, 0.25), "um", ())
    assert first.geotiff == (read_geometry(images / "a.tif").geotiff if form == "tiff" else ())
    if form == "tiff":
        labels = {name: tifffile.imread(tmp_path / f"run/predictions/labels/{name}.tif") for name in "ab"}
        assert np.array_equal(labels["a"], labels["b"])


@pytest.mark.parametrize(
    ("form", "by_rows", "said"),
    [
        ("png", False, True),
        ("zarr", False, True),
        ("tiff", False, False),
        ("mha", False, True),
        ("nrrd", True, False),
        ("png", True, False),  # these are written as TIFF, whatever was asked for
    ],
)
def test_what_a_format_can_not_say_is_said_once(images, tmp_path, monkeypatch, caplog, form, by_rows, said):
    predict_images(images, tmp_path / "run", form, monkeypatch, by_rows=by_rows)
    lines = [line for line in caplog.messages if "can't say" in line]
    expected = (
        f"predictions: {form} files can't say where the pixels of case 'a' lie. export.labels_format=tiff keeps it."
    )
    assert lines == ([expected] if said else [])


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


def test_zarr_cases_of_a_data_set_are_evaluated_like_the_same_png_files(tmp_path, monkeypatch):
    """By the command line: images and masks as Zarr folders, against the same pixels as PNG."""
    monkeypatch.chdir(tmp_path)
    write_model("model", make_card())
    rng = np.random.default_rng(1)
    for name in ("x", "y"):
        image, mask = rng.integers(0, 256, (70, 50, 3), np.uint8), rng.integers(0, 3, (70, 50)).astype(np.uint8)
        for kind, array, axes in (("images", image, "yxc"), ("masks", mask, "yx")):
            put(tmp_path / "png" / kind / f"{name}.png", array)
            write_zarr(tmp_path / "zarr" / kind / f"{name}.zarr", array, axes, chunks=(32, 32, 3)[: array.ndim])
    found = {}
    for form in ("png", "zarr"):
        line = f"run.name={form} data=folder data.root={form} data.split=all inference.precision=float32"
        more = "inference.tile=32 export.labels_format=tiff report.html=false device=cpu metrics.bootstrap=10"
        main(["eval", "checkpoint=model", *line.split(), *more.split()])
        (run,) = (tmp_path / "runs/eval").glob(f"*_{form}")
        labels = [tifffile.imread(run / f"predictions/labels/{name}.tif").tolist() for name in "xy"]
        found[form] = json.loads((run / "metrics.json").read_bytes()), labels
    assert found["png"] == found["zarr"]
