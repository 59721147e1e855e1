"""Training, evaluation and `check` read the formats that `score` reads, where a file holds one plane."""

import numpy as np
import pytest

from segmeter.data.dataset import Dataset
from segmeter.data.verification.report import build_dataset, open_splits
from segmeter.errors import DataError
from tests.data.crafted import folder, noise, put
from tests.data.formats_written import coco_content
from tests.data.volumes import save_nifti, save_volume

NAMES = ("a", "b", "c")
SHAPE = (12, 10)


def labels(number):
    return noise(*SHAPE, None, seed=number) % 2


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("form", [".nii.gz", ".npz", ".zarr", ".mha", ".nrrd"])
def test_images_and_masks_of_one_plane_are_read_from_the_formats_of_score(form, tmp_path):
    pixels = [np.float32(noise(*SHAPE, None, seed=number)) / 7 for number in range(3)]
    for number, name in enumerate(NAMES):
        mask = labels(number).astype(np.float32 if form == ".nii.gz" else np.uint8)
        for kind, plane in (("images", pixels[number]), ("masks", mask)):
            flat = form in (".npz", ".mha", ".nrrd")
            save_volume(tmp_path / kind / f"{name}{form}", plane if flat else plane[None])
    (dataset,), (report,) = open_splits(folder(tmp_path, in_channels=1), ["all"])
    for number in range(3):
        np.testing.assert_array_equal(dataset[number].image[..., 0], pixels[number])
        np.testing.assert_array_equal(dataset[number].target, labels(number), strict=True)
    assert sum(report.class_pixels) == 3 * 12 * 10


def coco(root) -> None:
    """Run lengths in a COCO file of three images, one object on each."""
    for number, name in enumerate(NAMES):
        put(root / "images" / f"{name}.png", noise(*SHAPE, seed=number))
    masks = {name: labels(number) for number, name in enumerate(NAMES)}
    put(root / "annotations.json", coco_content(masks))


@pytest.mark.parametrize("by_lines", [False, True])
def test_a_coco_file_holds_the_masks_of_all_images(by_lines, tmp_path):
    coco(tmp_path)
    (dataset,), _ = open_splits(folder(tmp_path, masks="annotations.json"), ["all"])
    for number in range(3):
        if by_lines:
            with dataset.open_rows(number) as (_, target):
                found = target.read(0, 12)
        else:
            found = dataset[number].target
        np.testing.assert_array_equal(found, labels(number))


def test_a_coco_file_that_changed_is_verified_again(tmp_path):
    coco(tmp_path)
    config = folder(tmp_path, masks="annotations.json")
    (dataset,), _ = open_splits(config, ["all"])
    path = tmp_path / "annotations.json"
    path.write_text(path.read_text().replace('"image_id": 1', '"image_id": 2'))
    with pytest.raises(DataError, match="to have the content that was checked"):
        dataset[0]
    (again,), _ = open_splits(config, ["all"])
    assert isinstance(again, Dataset)
    assert not again[0].target.any()


def test_a_volume_is_refused_before_it_is_read(tmp_path):
    put(tmp_path / "images" / "a.png", noise(*SHAPE))
    save_nifti(tmp_path / "masks" / "a.nii.gz", np.zeros((3, *SHAPE), np.uint8))
    with pytest.raises(DataError, match=r"a\.nii\.gz: .*`mask` to hold one plane, got 3 x 12 x 10\. For volumes, set"):
        build_dataset(folder(tmp_path))
