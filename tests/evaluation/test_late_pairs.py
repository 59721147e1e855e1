"""Pairs of masks whose files are not read in time: each way of reading them names the case, and only reading counts."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.commands.score import draw_cases
from segmeter.errors import LateError
from segmeter.evaluation.pairing import hash_pair
from segmeter.evaluation.score import measure_probs, score
from segmeter.report.config import ReportConfig
from tests.data.crafted import noise, put
from tests.evaluation.masks import changed, put_sides, scoring, two_cases

LATE = r"^data: case 'b' was not read within 0\.3 seconds: .*references/b\.png, .*predictions/b\.png"


class Hanging:
    """Files of case b below a folder, and all that waits for them until the test ends."""

    def __init__(self):
        self.folder, self.released = "", threading.Event()

    def waiting(self, then):
        def wait_then(path, *more, **options):
            if isinstance(path, Path) and path.stem == "b" and path.parent.name == self.folder:
                self.released.wait(9)
            return then(path, *more, **options)

        return wait_then


@pytest.fixture
def hanging(monkeypatch):
    held = Hanging()
    monkeypatch.setattr(os, "open", held.waiting(os.open))
    monkeypatch.setattr(Path, "read_bytes", held.waiting(Path.read_bytes))
    yield held
    held.released.set()


@pytest.fixture
def job(tmp_path):
    return changed(scoring(two_cases(tmp_path)), timeout_s=0.3)


def test_a_pair_is_named(job, hanging):
    hanging.folder = "predictions"
    with pytest.raises(LateError, match=LATE):
        score(job)


def test_rows_of_a_large_pair_are_limited(job, hanging, monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 10)
    large, mask = job.folder / "large", noise(12, 10, None) % 3
    for name in "ab":
        put_sides(large, mask, mask, f"{name}.tif")
    job = changed(scoring(large), timeout_s=0.3)
    score(job)
    hanging.folder = "predictions"
    with pytest.raises(LateError, match=r"case 'b' was not read"):
        score(job)


@pytest.fixture
def probs(tmp_path):
    (tmp_path / "probs").mkdir()
    files = {name: tmp_path / "probs" / f"{name}.npy" for name in "ab"}
    for path in files.values():
        np.save(path, np.full((3, 2, 3), 1 / 3, np.float32))
    return files


@pytest.mark.parametrize("folder", ["references", "probs"])
def test_probabilities_are_limited(folder, job, hanging, probs):
    measured = {pair.case_id: hash_pair(pair) for pair in job.pairs}
    measure_probs(job.scorer(), job.pairs, probs, measured=measured)
    hanging.folder = folder
    with pytest.raises(LateError, match="case 'b' was not read within"):
        measure_probs(job.scorer(), job.pairs, probs, measured=measured)


@pytest.mark.parametrize("folder", ["references", "images"])
def test_pictures_are_limited(folder, job, hanging, tmp_path):
    images = {name: put(tmp_path / "images" / f"{name}.png", noise(2, 3)) for name in "ab"}
    score(job)
    draw_cases(job, images, ReportConfig(panel=128, overlays=2))
    hanging.folder = folder
    with pytest.raises(LateError, match="case 'b' was not read within"):
        draw_cases(job, images, ReportConfig(panel=128, overlays=2))
