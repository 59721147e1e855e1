"""Index maps: each pixel names its kind of error, and blocks keep what is rare."""

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.report.pictures.maps import IGNORED, classify_errors, error_map


def kinds_of(target, labels, spec):
    return classify_errors(np.array(target), np.array(labels), spec).tolist()


def test_error_kinds_by_hand(spec):
    assert kinds_of([[0, 1, 1, 0, 1, 255]], [[0, 1, 0, 2, 2, 1]], spec) == [[0, 0, 1, 2, 3, IGNORED]]


def test_error_kinds_of_planes_by_hand():
    spec = ClassSpec(task="multilabel", names=("a", "b"), colours=((1, 1, 1),) * 2, ignore_index=9)
    target, labels = [[[1, 1, 0, 1, 9]], [[0, 1, 0, 0, 9]]], [[[1, 0, 1, 0, 1]], [[0, 1, 0, 1, 0]]]
    assert kinds_of(target, labels, spec) == [[0, 1, 2, 3, IGNORED]]


def test_where_class_0_is_no_background_taking_it_for_another_is_no_miss():
    spec = ClassSpec(task="multiclass", names=("sky", "road"), colours=((128, 128, 128), (128, 64, 128)))
    assert kinds_of([[0, 1, 0]], [[1, 0, 0]], spec) == [[3, 3, 0]]


def test_a_legend_leaves_out_errors_that_no_pixel_has(spec):
    found = error_map(np.array([[0, 2, 4]], np.uint8), spec)
    assert [entry.get("absent", False) for entry in found.entries] == [False, True, False, True, False]
