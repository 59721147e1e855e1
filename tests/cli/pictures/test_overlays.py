"""The cases of an evaluation are drawn with what is known of them: target, prediction, and the objects of both."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.pictures.overlays import Drawer
from segmeter.data.sample import Sample
from segmeter.files import describe_file
from segmeter.inference.async_results import Prediction
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.postprocess.pipeline import Cleaned
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.objects import Objects
from segmeter.report.pictures.overlay import draw_overlay
from tests.metrics.build import case_row, class_spec

SPEC = class_spec(2, "binary")
CONFIG = ReportConfig(panel=128, overlays=1, worst=1)


@pytest.mark.parametrize("numbered", [True, False], ids=["with instances", "semantic"])
def test_touching_objects_of_both_sides_are_told_apart(tmp_path, numbered):
    image = np.full((20, 20, 1), 90, np.uint8)
    target = np.zeros((20, 20), np.uint8)
    target[4:16, 4:16] = 1
    labels = np.roll(target, 2, axis=1)
    halves = (np.arange(20) // 10 + 1).astype(np.int32)[:, None]  # two objects that touch, above and below
    objects = Objects(target=target * halves, prediction=labels * halves) if numbered else Objects()
    sample = Sample(case_id="a", image=image, target=target, instances=objects.target)
    row = case_row("a", confusion_matrix(target, labels, num_classes=2))
    drawer = Drawer(CONFIG, tmp_path, SPEC, MetricsConfig(), files=lambda name: [Path("images", f"{name}.tif")])
    noted = drawer.draw(
        Prediction(sample=sample, labels=labels),
        Cleaned(labels=labels, instances=objects.prediction, changed={}),
        row,
    )
    assert noted == {name: describe_file(tmp_path / name) for name in drawer.names("a")}
    assert set(drawer.kept()) == set(noted) == {"overlays/a.png", "pictures/a", "worst/a"}
    notes = json.loads((tmp_path / "pictures" / "a" / "layers.json").read_text())
    assert notes["files"] == {"image": ["a.tif"]}
    drawn = np.asarray(Image.open(tmp_path / "overlays" / "a.png"))
    expected = draw_overlay(image, target, labels, SPEC, title="a", score=10 / 14, panel=128, objects=objects)
    np.testing.assert_array_equal(drawn, expected)


def test_the_worst_case_is_kept_and_an_interrupted_run_s_cases_take_part(tmp_path):
    image, target = np.zeros((8, 8, 1), np.uint8), np.eye(8, dtype=np.uint8)
    row = case_row("good", confusion_matrix(target, target, num_classes=2))
    drawer = Drawer(CONFIG, tmp_path, SPEC, MetricsConfig(), files=lambda name: [Path("images", f"{name}.tif")])
    drawer.remember("bad", case_row("bad", confusion_matrix(target, 1 - target, num_classes=2)))
    sample = Sample(case_id="good", image=image, target=target)
    cleaned = Cleaned(labels=target, instances=None, changed={})
    assert drawer.draw(Prediction(sample=sample, labels=target), cleaned, row) == {}
    assert set(drawer.kept()) == set(drawer.names("bad"))
    assert not (tmp_path / "overlays").exists()
