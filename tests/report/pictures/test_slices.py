"""Which slice of a volume is drawn."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.report.pictures.finished import choose_slice

TASKS = {
    task: ClassSpec(task=task, names=("a", "b"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)
    for task in ("binary", "multilabel")
}


@pytest.mark.parametrize("task", TASKS)
def test_the_slice_with_the_most_wrong_pixels_is_chosen(task):
    lead = (2,) if task == "multilabel" else ()
    target = np.zeros((*lead, 6, 4, 4), np.uint8)
    labels = target.copy()
    labels[..., 1, 0, :2] = 1
    labels[..., 4, 0, :3] = 1
    assert choose_slice(target, labels, TASKS[task]) == 4
    target[..., 4, 0, :3] = 255
    assert choose_slice(target, labels, TASKS[task]) == 1, "ignored pixels are not wrong"


def test_without_errors_it_is_the_slice_with_the_most_objects_nearest_to_the_middle():
    target = np.zeros((7, 4, 4), np.uint8)
    target[[0, 5], :2] = 1
    assert choose_slice(target, target, TASKS["binary"]) == 5
    target[:] = 0
    assert choose_slice(target, target, TASKS["binary"]) == 3
