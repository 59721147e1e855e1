import time

import numpy as np
import pytest

from segmeter.data.config import CamvidConfig
from segmeter.data.folder import open_images
from segmeter.data.verification.report import build_dataset, check_dataset, check_splits
from tests.data.crafted import BINARY, folder, make_folder, noise, put


def test_report_adds_up_over_cases(tmp_path):
    make_folder(tmp_path)
    put(tmp_path / "images" / "c.png", noise(5, 4))
    put(tmp_path / "masks" / "c.png", np.full((5, 4), 9, np.uint8))
    dataset = build_dataset(folder(tmp_path, ignore_index=9))
    report = check_dataset(dataset)
    masks = np.concatenate([dataset[i].target.ravel() for i in range(3)])
    assert (report.split, report.n_cases) == ("all", 3)
    np.testing.assert_array_equal(report.class_pixels, [(masks == 0).sum(), (masks == 1).sum()])
    np.testing.assert_array_equal(report.class_cases, [2, 2])
    assert report.ignored_pixels == 20
    assert report.total_pixels == 260 == report.class_pixels.sum() + report.ignored_pixels
    assert report.sizes == {(5, 4): 1, (12, 10): 2}
    assert report.dtypes == {"uint8": 3}


def test_content_hash_follows_every_byte(tmp_path):
    make_folder(tmp_path)
    first = check_dataset(build_dataset(folder(tmp_path))).content_sha256
    assert check_dataset(build_dataset(folder(tmp_path))).content_sha256 == first
    mask = noise(channels=None, seed=100) % 2
    mask[0, 0] ^= 1
    put(tmp_path / "masks" / "a.png", mask)
    assert check_dataset(build_dataset(folder(tmp_path))).content_sha256 != first


def test_equal_images_absent_classes_and_lone_ignore_are_warned_of(tmp_path):
    make_folder(tmp_path)
    put(tmp_path / "images" / "b.png", (tmp_path / "images" / "a.png").read_bytes())
    for name in "abc":
        put(tmp_path / "masks" / f"{name}.png", np.uint8(noise(channels=None) % 2) * 255)
    report = check_dataset(build_dataset(folder(tmp_path, ignore_index=255)))
    text = "\n".join(report.warnings)
    assert "equal to the last byte (1: a.png = b.png)" in text
    assert "no pixel of cell; their scores are undefined" in text
    assert "nothing but background and ignored pixels; if 255 is the object, set data.label_map" in text


def test_good_data_warns_of_nothing(tmp_path):
    assert check_dataset(build_dataset(folder(make_folder(tmp_path)))).warnings == ()


def test_images_without_masks_are_checked_too(tmp_path):
    make_folder(tmp_path)
    report = check_dataset(open_images(tmp_path / "images", spec=BINARY, in_channels=3))
    assert report.n_cases == 3
    np.testing.assert_array_equal(report.class_pixels, [0, 0])
    assert report.warnings == ()


@pytest.mark.slow
def test_camvid_is_checked_in_seconds_and_gives_the_published_shares(shared_data):
    config = CamvidConfig(root=str(shared_data / "camvid"))
    start = time.process_time()
    reports = check_splits([build_dataset(config, split=split) for split in ("train", "val", "test")])
    assert time.process_time() - start < 30  # 6 s of processor time where this was written
    assert [report.n_cases for report in reports] == [367, 101, 233]
    ignored = [report.ignored_pixels / report.total_pixels for report in reports]
    assert [round(share, 3) for share in ignored] == [0.039, 0.017, 0.038]
    counted = reports[2].class_pixels / reports[2].total_pixels
    published = [0.171, 0.246, 0.012, 0.258, 0.093, 0.113, 0.010, 0.012, 0.040, 0.006, 0.002]
    np.testing.assert_allclose(counted, published, atol=6e-4)  # published to three digits
