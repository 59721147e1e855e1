"""What `segmeter train` says of a run at its end; how it is run is tested in the other files of this command."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.commands.train import BATCH_PANEL, CASE_PANEL, _scores, _show, draw_batch, draw_validated
from segmeter.data.sample import Sample
from segmeter.inference.results import Prediction
from segmeter.report.pictures.flatten import GAP, MARGIN, draw_overlay, flatten
from segmeter.report.pictures.layers import draw_layers
from segmeter.training.config import TrainingConfig
from segmeter.training.job import TrainResult

RESULT = TrainResult(
    steps=20,
    epochs=2.5,
    reason="steps=20",
    monitor="iou/car",
    score=0.25,
    best=Path("best"),
    values={"iou/car": 0.25, "mean_iou": None},
    unlearned=(),
    last=Path("last"),
    seconds=61.26,
    images_per_second=3.14,
)


def changed(**values: Any) -> TrainResult:
    return TrainResult(**(vars(RESULT) | values))


def test_a_run_is_summed_up_in_three_lines(tmp_path, capsys):
    _show(tmp_path, TrainingConfig(), RESULT, 0)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "20 steps, 2.5 epochs in 61 s (3.1 images/s), ended by: steps=20",
        f"best      iou/car 0.2500, mean_iou n/a   {tmp_path / 'checkpoints' / 'best'}",
        f"report    {tmp_path / 'report.html'}",
    ]
    assert err == ""
    _show(tmp_path, TrainingConfig(), RESULT, 300)
    assert capsys.readouterr().out.startswith("20 of 300 planned steps, 2.5 epochs")
    _show(tmp_path, TrainingConfig(), changed(unlearned=("car", "tree")), 0)
    said = "warning: IoU below 0.01 at the best checkpoint, though the validation masks hold them: car, tree.\n"
    assert capsys.readouterr().err == said


def test_without_validation_the_last_checkpoint_is_named_and_there_is_no_score(tmp_path, capsys):
    result = changed(score=None, best=None, values={})
    _show(tmp_path, TrainingConfig(), result, 0)
    assert f"last      not validated   {tmp_path / 'checkpoints' / 'last'}\n" in capsys.readouterr().out
    assert _scores(result) == {}
    assert list(_scores(RESULT).items()) == [("iou/car", 0.25), ("mean_iou", None)]


SPEC = ClassSpec(task="multiclass", names=("ground", "cell"), colours=((0, 0, 0), (255, 0, 0)), ignore_index=255)


def test_images_stand_above_their_targets(tmp_path):
    images = np.stack([np.full((BATCH_PANEL, BATCH_PANEL, 3), grey, np.uint8) for grey in (40, 200)])
    targets = np.zeros((2, BATCH_PANEL, BATCH_PANEL), np.uint8)
    targets[1, :, : BATCH_PANEL // 2] = 1
    path = draw_batch(images, targets, ("a", "b"), tmp_path, spec=SPEC)
    assert path == tmp_path / "first_batch.png"
    with Image.open(path) as stored:
        picture = np.asarray(stored)
    painted = flatten(draw_layers(images[1], None, targets[1], SPEC, edge=BATCH_PANEL), "prediction", panel=BATCH_PANEL)
    left = MARGIN + BATCH_PANEL + GAP
    tops = [row for row in range(len(picture)) if (picture[row, left : left + BATCH_PANEL] == 200).all()]
    assert len(tops) == BATCH_PANEL
    below = picture[tops[-1] + 1 :, left : left + BATCH_PANEL]
    assert any((below[row : row + BATCH_PANEL] == painted).all() for row in range(20))


def test_planes_of_multilabel_are_drawn_too(tmp_path):
    spec = ClassSpec(task="multilabel", names=("one", "two"), colours=((255, 0, 0), (0, 0, 255)))
    targets = np.ones((1, 2, 16, 24), np.uint8)
    path = draw_batch(np.zeros((1, 16, 24, 1), np.float32), targets, ("a",), tmp_path, spec=spec)
    with Image.open(path) as stored:
        assert stored.width > 240


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
