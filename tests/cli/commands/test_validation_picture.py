import numpy as np
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.commands.train import CASE_PANEL, draw_validated
from segmeter.data.sample import Sample
from segmeter.inference.results import Prediction
from segmeter.report.pictures.flatten import draw_overlay

SPEC = ClassSpec(task="multiclass", names=("ground", "cell"), colours=((0, 0, 0), (255, 0, 0)), ignore_index=255)


def test_the_picture_has_image_target_prediction_and_errors_with_the_score_of_the_case(tmp_path):
    target = np.zeros((40, 40), np.uint8)
    target[:20] = 1
    labels = np.zeros((40, 40), np.uint8)
    labels[:10] = 1  # IoU 400 / 800 of cell, 800 / 1200 of ground
    sample = Sample(case_id="a/b", image=np.full((40, 40, 1), 90, np.uint8), target=target)
    path = draw_validated(Prediction(sample=sample, labels=labels), tmp_path, spec=SPEC)
    with Image.open(path) as stored:
        found = np.asarray(stored)
    score = (1 / 2 + 2 / 3) / 2
    wanted = draw_overlay(
        sample.image, target, labels, SPEC, title="a/b", headline="mean_iou", score=score, panel=CASE_PANEL
    )
    np.testing.assert_array_equal(found, wanted)
    assert path.parent == tmp_path
