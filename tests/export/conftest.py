"""Fixtures of the export tests."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from tests.data.formats_written import library, make_series

SHAPE = (3, 32, 40)  # of a DICOM series


@pytest.fixture
def rng():
    return np.random.default_rng(20240917)


@pytest.fixture
def spec():
    names, colours = ("sky", "road", "car"), ((0, 0, 0), (90, 90, 90), (0, 0, 255))
    return ClassSpec(task="multiclass", names=names, colours=colours, ignore_index=255)


@pytest.fixture
def planes_spec():
    return ClassSpec(task="multilabel", names=("liver", "left lung"), colours=((255, 0, 0), (0, 255, 0)))


def save_series(folder, prefix="", uid=None, *, suffix=".dcm"):
    """The slices of a series as files."""
    paths = []
    for number, image in enumerate(make_series(SHAPE)):
        if uid:
            image.SeriesInstanceUID, image.SOPInstanceUID = uid, f"{uid}.{number + 1}"
        image.PixelData, image.SamplesPerPixel, image.PhotometricInterpretation = bytes(2 * 1280), 1, "MONOCHROME2"
        image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 16, 15, 0
        image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
        image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
        paths.append(folder / f"{prefix}{number}{suffix}")
        image.save_as(paths[-1], enforce_file_format=True)
    return paths


@pytest.fixture
def source(tmp_path):
    library("highdicom")
    return save_series(tmp_path)
