"""The picture of the first batch: each sample, and its target drawn over it."""

import numpy as np
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.commands.train import BATCH_PANEL, draw_batch
from segmeter.report.pictures.flatten import GAP, MARGIN, flatten
from segmeter.report.pictures.layers import draw_layers

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
