"""Scored cases are drawn with their images: which cases, what is in the pictures, and images that do not fit."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.commands.score import draw_cases
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.score import Scoring, score
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.pictures import finished
from tests.cli.sharded import make_pairs
from tests.data.crafted import THREE as SPEC
from tests.data.crafted import noise, put
from tests.data.volumes import save_nifti, save_volume
from tests.evaluation.masks import pair_masks

VOLUME = noise(4 * 20, 30, None).reshape(4, 20, 30)
DRAWN = ReportConfig(panel=128, overlays=1, worst=1)


def scored(root: Path) -> Scoring:
    """The finished run of the folders `references` and `predictions`."""
    pairing, reading = (
        pair_masks(root / "predictions", root / "references", spec=SPEC),
        Reading(spec=SPEC, label_map={}),
    )
    job = Scoring(pairing=pairing, reading=reading, metrics=MetricsConfig(bootstrap=0), folder=root / "run")
    job.folder.mkdir()
    score(job)
    return job


def images_of(root: Path) -> dict[str, Path]:
    return {path.name.partition(".")[0]: path for path in (root / "images").iterdir()}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Three images with masks, of which "c" is the worst."""
    make_pairs(tmp_path, "abc", wrong=lambda seed: 40 * (seed + 1))
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize(
    ("overlays", "worst", "drawn", "cropped"),
    [(1, 1, ["c.png"], ["c"]), (-1, 0, ["a.png", "b.png", "c.png"], []), (0, 2, [], ["b", "c"])],
    ids=["the worst", "all", "crops alone"],
)
def test_the_chosen_cases_are_drawn_and_the_worst_cropped(cases, overlays, worst, drawn, cropped):
    job = scored(cases)
    config = DRAWN.replace(overlays=overlays, worst=worst)
    draw_cases(job, images_of(cases), config)
    chosen = set(names_in(job.folder / "overlays"))
    assert chosen >= set(drawn)
    assert len(chosen) <= 3
    assert names_in(job.folder / "worst") == cropped
    if cropped:
        with Image.open(job.folder / "worst" / "c" / "image.png") as crop:
            np.testing.assert_array_equal(np.asarray(crop), noise(20, 30, seed=2))


def test_of_a_volume_the_slice_with_the_most_errors_is_drawn(tmp_path, monkeypatch):
    """Its errors are in the second of four slices; the image is in Hounsfield units, in another format."""
    target = VOLUME % 3
    labels = target.copy()
    labels[1, :10] = 0
    image = noise(4 * 20, 30, None, seed=9).reshape(4, 20, 30).astype(np.int16) * 20 - 1000
    save_nifti(tmp_path / "references/a.nii.gz", target)
    save_volume(tmp_path / "predictions/a.npz", labels)
    save_nifti(tmp_path / "images/a.nii.gz", image)
    job, given, draw = scored(tmp_path), {}, finished.draw_layers

    def note(*arrays, **named):
        given[tuple(named["notes"]["slice"])] = arrays
        return draw(*arrays, **named)

    monkeypatch.setattr(finished, "draw_layers", note)
    draw_cases(job, images_of(tmp_path), DRAWN)
    assert sorted(given) == [(1, 4), (2, 4), (3, 4), (4, 4)], "a page scrolls through the others"
    for array, wanted in zip(given[2, 4], (image[1][..., None], target[1], labels[1]), strict=False):
        np.testing.assert_array_equal(array, wanted)
    assert json.loads((job.folder / "pictures/a/layers.json").read_text())["slice"] == [2, 4]
    assert json.loads((job.folder / "worst/a/crop.json").read_text())["slice"] == 2


@pytest.mark.parametrize(("name", "content", "line"), [
    ("images/c.png", noise(5, 6), "of its reference, 20 x 30, got 5 x 6 (height x width)."),
    ("volumes/images/a.npy", VOLUME[:3], "4 x 20 x 30, got 3 x 20 x 30 (depth x height x width)."),
    ("predictions/c.png", noise(20, 30, None) // 255, "c: its files changed while they were scored"),
], ids=["size", "depth", "prediction"])  # fmt: skip
def test_what_can_not_be_drawn_is_said(cases, name, content, line):
    if name.startswith("volumes"):
        cases = cases / "volumes"
        for side in ("references", "predictions", "images"):
            save_volume(cases / side / "a.npy", VOLUME % 3)
    job = scored(cases)
    put(cases / name.removeprefix("volumes/"), content)
    with pytest.raises(DataError) as error:
        draw_cases(job, images_of(cases), DRAWN)
    assert any(line in problem for problem in error.value.problems), error.value.problems
