"""Files of probabilities: measured with their references, and refused by name where they do not fit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.images import read_image
from segmeter.errors import DataError
from segmeter.evaluation.pairing import find_probs, hash_pair
from segmeter.evaluation.score import Scoring, measure_probs, score
from segmeter.metrics.calibration import Calibration
from segmeter.metrics.calibration_file import summarise_calibration
from tests.data.crafted import THREE, put
from tests.evaluation.masks import changed, scoring


@pytest.fixture
def job(tmp_path: Path) -> Scoring:
    """Three cases of other sizes, a strip of each ignored, and their probabilities."""
    rng = np.random.default_rng(0)
    (tmp_path / "probs").mkdir()
    for i, name in enumerate("abc"):
        shape = (20, 30 + i)
        probs = np.moveaxis(rng.dirichlet((1, 1, 1), shape), -1, 0).astype(np.float32)
        target = rng.integers(0, 3, shape, dtype=np.uint8)
        target[:, :3] = 255
        put(tmp_path / "references" / f"{name}.png", target)
        put(tmp_path / "predictions" / f"{name}.png", probs.argmax(axis=0).astype(np.uint8))
        np.save(tmp_path / "probs" / f"{name}.npy", probs)
    found = scoring(tmp_path)
    return replace(found, probs=find_probs(tmp_path / "probs", found.pairing.pairs))


def test_the_summary_has_what_the_arrays_give(job: Scoring, tmp_path: Path) -> None:
    summary = score(job)
    sums = Calibration(num_classes=3, ignore_index=255)
    for name in "abc":
        target = read_image(tmp_path / "references" / f"{name}.png", max_pixels=10_000)[..., 0]
        sums.update(target, np.load(tmp_path / "probs" / f"{name}.npy"))
    assert summary["calibration"] == summarise_calibration(sums.compute(), THREE)
    assert summary["calibration"]["n"] == 20 * (27 + 28 + 29)
    assert all(50 < len(one["curve"]["recall"]) <= 101 for one in summary["calibration"]["per_class"].values())
    assert json.loads((tmp_path / "metrics.json").read_text()) == summary


def test_the_bound_is_of_a_case_and_not_of_all_its_planes(job: Scoring) -> None:
    assert score(changed(job, max_pixels=20 * 32))["calibration"]["n"] == 20 * (27 + 28 + 29)


def test_everything_that_is_wrong_with_the_files_is_said_at_once(job: Scoring, tmp_path: Path) -> None:
    np.save(tmp_path / "probs" / "a.npy", np.ones((3, 20, 30), np.float32))
    np.save(tmp_path / "probs" / "b.npy", np.ones((2, 20, 31), np.float32))
    (tmp_path / "probs" / "c.npy").write_bytes(b"no array")
    hashes = {pair.case_id: hash_pair(pair) for pair in job.pairing.pairs}
    with pytest.raises(DataError) as caught:
        measure_probs(job.scorer(), job.pairing.pairs, job.probs, measured=hashes)
    first, second, third = caught.value.problems
    assert "a.npy" in first
    assert "to sum to 1 in every pixel" in first
    assert "`probs` to be (3, 20, 31) for a multiclass target (20, 31)" in second
    assert "c.npy" in third


def test_every_case_needs_its_file(job: Scoring, tmp_path: Path) -> None:
    (tmp_path / "probs" / "b.npy").unlink()
    with pytest.raises(DataError, match="none for 1: b"):
        find_probs(tmp_path / "probs", job.pairing.pairs)
    put(tmp_path / "probs" / "b.png", np.zeros((20, 31), np.uint8))
    with pytest.raises(DataError, match=r"to be an NPY or NPZ file, got \.png"):
        find_probs(tmp_path / "probs", job.pairing.pairs)
