"""Label files lie where their images lie, whether these are in memory or read by rows; Zarr cases are evaluated."""

from dataclasses import replace

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.data.files.opened import read_geometry
from segmeter.data.folder import open_images
from segmeter.evaluation.evaluate import predict
from segmeter.export.config import ExportConfig
from segmeter.postprocess.config import PostprocessConfig, WatershedConfig
from tests.data.files.test_opened_geometry import geotags
from tests.evaluation.test_large import SPEC, prediction

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
        ("mha", True, False),
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
