"""Images beside scored masks: found by name, read at the size of their reference, and seen by measures that look."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.data.files.masks import hash_map
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.manifest import check_same
from segmeter.evaluation.pairing import find_images, put_beside, read_case_image
from segmeter.evaluation.score import score
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.measures import ContentConfig
from tests.data.crafted import THREE, noise, put
from tests.evaluation.masks import FEW, scoring


@pytest.fixture
def job(tmp_path):
    for seed in range(3):
        for folder in ("references", "predictions"):
            put(tmp_path / folder / f"c{seed}.png", noise(20, 30, None, seed=seed) % 3)
        put(tmp_path / "images" / f"c{seed}.png", np.full((20, 30, 3), 51 * seed, np.uint8))
    found = scoring(tmp_path, spec=THREE)
    return replace(found, metrics=FEW.replace(measures=(ContentConfig(),)))


def test_brightness_is_that_of_the_images(job, tmp_path):
    images = find_images(tmp_path / "images", job.pairing)
    score(replace(job, pairing=put_beside(job.pairing, images)))
    assert [row.scores["brightness/image"] for row in read_cases(tmp_path)] == [0.0, 0.2, 0.4]


def test_without_images_nothing_is_seen_of_them_and_a_run_is_another_one(job, tmp_path):
    score(job)
    assert not any("brightness/image" in row.scores for row in read_cases(tmp_path))
    with_images = replace(job, pairing=put_beside(job.pairing, find_images(tmp_path / "images", job.pairing)))
    with pytest.raises(ConfigError, match="`images` was False and is True now"):
        check_same(tmp_path, with_images.identity(), job.case_ids)


def test_a_case_without_an_image_and_an_image_of_another_size_are_named(job, tmp_path):
    put(tmp_path / "images" / "c1.png", np.zeros((20, 31), np.uint8))
    images = find_images(tmp_path / "images", job.pairing)
    with pytest.raises(DataError, match=r"c1\.png: expected `image` to have the size of its reference, 20 x 30, got"):
        score(replace(job, pairing=put_beside(job.pairing, images)))
    (tmp_path / "images" / "c1.png").unlink()
    with pytest.raises(DataError, match="`an image` for every name, got none for 1: c1"):
        find_images(tmp_path / "images", job.pairing)


def test_volumes_are_read_with_a_channel(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    found, digest = read_case_image(tmp_path / "a.npy", (2, 3, 4), max_pixels=100)
    assert (found.shape, found.dtype) == ((2, 3, 4, 1), np.float32)
    assert found.ravel().tolist() == list(range(24))
    assert digest == hash_map(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"2 x 3 x 5, got 2 x 3 x 4 \(depth x height x width\)"):
        read_case_image(tmp_path / "a.npy", (2, 3, 5), max_pixels=100)
