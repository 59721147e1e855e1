"""An overview keeps the most important label of each block."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.report.pictures.layers import reduce_labels


@pytest.mark.parametrize("first", [(0, 0, 0), (9, 9, 9)], ids=["background", "sky"])
def test_each_block_has_its_rarest_label_and_background_and_ignored_only_where_nothing_else_is(first, rng):
    colours = (first, (1, 1, 1), (2, 2, 2))
    spec = ClassSpec(task="multiclass", names=("z", "a", "b"), colours=colours, ignore_index=9)
    labels = rng.choice(np.array([0, 1, 2, 9], np.uint8), (30, 45), p=[0.8, 0.13, 0.02, 0.05])
    counts = np.bincount(labels.ravel(), minlength=10)
    behind = {9: 1} | ({0: 2} if spec.has_background else {})

    def most_important(block):
        return min(np.unique(block).tolist(), key=lambda value: (behind.get(value, 0), counts[value]))

    blocks = labels.reshape(10, 3, 9, 5).swapaxes(1, 2)
    expected = [[most_important(block) for block in row] for row in blocks]
    np.testing.assert_array_equal(reduce_labels(labels, (10, 9), spec), expected)
