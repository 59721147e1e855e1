"""A row of maps: counted by hand, for images, volumes and multilabel."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.measures.row import make_row
from tests.metrics.build import maps_of

GREY = (1, 1, 1)
BINARY = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), GREY), ignore_index=9)
LABELLED = ClassSpec(task="multilabel", names=("a", "b", "c"), colours=(GREY,) * 3)
TARGET = np.array([[0, 1, 1], [9, 0, 1]], np.uint8)
LABELS = np.array([[0, 1, 0], [1, 1, 1]], np.uint8)


def test_an_image_has_its_counts_without_ignored_pixels_and_no_depth():
    row = make_row(maps_of(TARGET, LABELS, BINARY), ())
    assert (row.case_id, row.height, row.width, row.depth) == ("c", 2, 3, None)
    assert row.counts.tolist() == [[1, 1], [1, 2]]
    assert (row.loss, row.spacing, row.unit, dict(row.extra)) == (None, None, "", {})


def test_a_volume_has_a_depth():
    row = make_row(maps_of(np.stack([TARGET] * 4), np.stack([LABELS] * 4), BINARY), ())
    assert (row.depth, row.height, row.width) == (4, 2, 3)
    assert row.counts.tolist() == [[4, 4], [4, 8]]


def test_planes_of_multilabel_are_no_depth():
    target = np.zeros((3, 2, 5), np.uint8)
    target[1, 0] = 1
    row = make_row(maps_of(target, np.zeros_like(target), LABELLED), ())
    assert (row.height, row.width, row.depth) == (2, 5, None)
    assert row.counts[:, 1, 0].tolist() == [0, 5, 0]


def test_measures_leave_their_columns():
    def area(maps):
        return (MeasureColumn("area", "cell", float((maps.labels == 1).sum())),)

    assert make_row(maps_of(TARGET, LABELS, BINARY), (area,)).scores == {"area/cell": 4.0}


def test_a_pixel_outside_the_classes_is_refused():
    labels = LABELS.copy()
    labels[0, 0] = 5
    with pytest.raises(InputError, match="1 pixel of 5"):
        make_row(maps_of(TARGET, labels, BINARY), ())
