"""The pictures of a finished run: which cases and slices they show, and what happens to older ones."""

import json

import numpy as np
import pytest
from PIL import Image

from segmeter.errors import DataError
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import choose_slice, draw_run
from segmeter.report.pictures.flatten import draw_overlay
from segmeter.report.pictures.layers import DrawnCase
from segmeter.report.pictures.objects import Objects
from tests.metrics.build import class_spec

SPEC = class_spec(2, "binary")
CONFIG = ReportConfig(panel=128, overlays=1, worst=1)
RANKING = Ranking(
    case_ids="abcd", worst="ba", headline="iou/road", scores={"a": 0.9, "b": 0.2, "c": float("nan"), "d": float("nan")}
)


def case(**changes):
    target = np.zeros((20, 20), np.uint8)
    target[4:16, 4:16] = 1
    fields = {"image": np.full((20, 20, 1), 90, np.uint8), "target": target, "labels": np.roll(target, 2, axis=1)}
    return DrawnCase(**(fields | changes))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_the_worst_case_is_drawn_and_cropped_nothing_else_is_read_and_earlier_pictures_go(tmp_path):
    draw_run(tmp_path, RANKING, lambda name: case(), CONFIG.replace(overlays=-1, worst=2), SPEC)
    assert names_in(tmp_path / "pictures") == ["a", "b", "c", "d"]
    read = []
    draw_run(tmp_path, RANKING, lambda name: (read.append(name), case())[1], CONFIG, SPEC)
    assert read == ["b"]
    assert names_in(tmp_path / "overlays") == ["b.png"]
    assert names_in(tmp_path / "pictures") == names_in(tmp_path / "worst") == ["b"]


@pytest.mark.parametrize("numbered", [True, False], ids=["with instances", "semantic"])
def test_touching_objects_of_both_sides_are_told_apart(tmp_path, numbered):
    given = case(files={"image": [tmp_path / "b.tif"]})
    halves = (np.arange(20) // 10 + 1).astype(np.int32)[:, None]  # two objects that touch, above and below
    objects = Objects(target=given.target * halves, prediction=given.labels * halves) if numbered else Objects()
    drawn = case(objects=objects, files=given.files)
    draw_run(tmp_path, RANKING, lambda name: drawn, CONFIG, SPEC)
    assert json.loads((tmp_path / "pictures" / "b" / "layers.json").read_text())["files"] == {"image": ["b.tif"]}
    maps = (given.image, given.target, given.labels, SPEC)
    expected = draw_overlay(*maps, title="b", headline="iou/road", score=0.2, panel=128, objects=objects)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "overlays" / "b.png")), expected)


def test_a_run_without_references_has_pictures_and_no_crops(tmp_path):
    draw_run(tmp_path, Ranking(case_ids="abc"), lambda name: case(target=None), CONFIG.replace(overlays=-1), SPEC)
    assert names_in(tmp_path / "overlays") == ["a.png", "b.png", "c.png"]
    assert not (tmp_path / "worst").exists()


def test_every_case_that_cannot_be_read_has_its_line(tmp_path):
    def read(name):
        if name in "ac":
            raise DataError(f"{name}.png: is damaged.")
        return case()

    with pytest.raises(DataError) as error:
        draw_run(tmp_path, RANKING, read, CONFIG.replace(overlays=-1), SPEC)
    assert error.value.problems == ("a.png: is damaged.", "c.png: is damaged.")
    assert names_in(tmp_path / "overlays") == ["b.png", "d.png"]


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_the_slice_with_the_most_wrong_pixels_is_chosen(task):
    spec, lead = class_spec(2, task), (2,) if task == "multilabel" else ()
    target = np.zeros((*lead, 6, 4, 4), np.uint8)
    labels = target.copy()
    labels[..., 1, 0, :2] = 1
    labels[..., 4, 0, :3] = 1
    assert choose_slice(target, labels, spec) == 4
    target[..., 4, 0, :3] = 255
    assert choose_slice(target, labels, spec) == 1, "ignored pixels are not wrong"


def test_without_errors_it_is_the_slice_with_the_most_objects_nearest_to_the_middle():
    target = np.zeros((7, 4, 4), np.uint8)
    target[[0, 5], :2] = 1
    assert choose_slice(target, target, SPEC) == 5
    target[:] = 0
    assert choose_slice(target, target, SPEC) == 3
