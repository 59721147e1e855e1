"""MHA and NRRD files as SimpleITK reads them, and as our own reader does."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.masks.reading import read_values
from segmeter.export.config import ExportConfig
from segmeter.export.volumes import ENCODERS
from segmeter.export.writer import Writer
from tests.data.formats_written import library

LABELS = np.random.default_rng(0).integers(0, 3, (30, 17))


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    ("location", "spacing"),
    [
        (Geometry(spacing=(0.5, 0.2521), unit="mm"), (0.5, 0.2521)),
        (Geometry(spacing=(500.0, 250.0), unit="um"), (0.5, 0.25)),
        (Geometry(spacing=(500.0, 250.0)), None),
        (NOWHERE, None),
    ],
    ids=["mm", "um", "no unit", "nothing"],
)
def test_files_are_read_by_itk_and_by_us(form, dtype, location, spacing, tmp_path):
    sitk = library("SimpleITK")
    labels = (LABELS * (300 if dtype == np.uint16 else 1)).astype(dtype)
    path = tmp_path / f"a.{form}"
    path.write_bytes(ENCODERS[form](labels, location))
    image = sitk.ReadImage(str(path))
    assert np.array_equal(sitk.GetArrayFromImage(image), labels)
    assert sitk.GetArrayFromImage(image).dtype == dtype
    assert image.GetSpacing() == (spacing[::-1] if spacing else (1.0, 1.0))
    found = read_values(path, max_pixels=1000)
    assert np.array_equal(found.values, labels)
    assert (found.geometry.spacing, found.geometry.unit) == (spacing, "mm" if spacing else None)
    assert ENCODERS[form](labels, location) == path.read_bytes()


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_label_maps_of_predictions_are_written(form, task, tmp_path):
    library("SimpleITK")
    spec = ClassSpec(task=task, names=("a", "b", "c"), colours=((0, 0, 0), (255, 0, 0), (0, 255, 0)))
    given = np.stack([k == LABELS for k in range(3)]).astype(np.uint8) if spec.is_multilabel else LABELS
    place = Geometry(spacing=(2.0, 3.0), unit="mm")
    Writer(tmp_path, ExportConfig(labels_format=form), spec, locate=lambda case: place).write("x", given)
    planes = zip(spec.names, given, strict=True) if spec.is_multilabel else [(".", LABELS)]
    for folder, plane in planes:
        found = read_values(tmp_path / "labels" / folder / f"x.{form}", max_pixels=1000)
        assert np.array_equal(found.values, plane)
        assert found.geometry.spacing == (2.0, 3.0)
