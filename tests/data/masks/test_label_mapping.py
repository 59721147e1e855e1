from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.masks.label_mapping import mark_cores, split_codes, to_labels
from segmeter.errors import DataError
from tests.data.crafted import BINARY, THREE

PATH = Path("x.png")


def _spec(task, classes, ignore_index=None):
    names = tuple(map(str, range(classes)))
    return ClassSpec(task=task, names=names, colours=((0, 0, 0),) * classes, ignore_index=ignore_index)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (BINARY, [0, 1]),
        (THREE, [0, 1, 2, 255]),
        (_spec("multilabel", 7, 9), [0, 1, 9]),
        (_spec("multiclass", 257), list(range(257))),
        (_spec("multiclass", 2, 256), [0, 1, 256]),
    ],
    ids=["binary", "ignore", "multilabel", "257", "wide-ignore"],
)
def test_labels_that_are_allowed(spec, allowed):
    assert list(spec.values) == allowed


@pytest.mark.parametrize(
    ("values", "spec", "label_map", "message"),
    [
        ([-1, 4], THREE, {"4": 1}, r"names: 4, got -1 \(1 pixels\). Add the missing values to data.label_map"),
        ([0, 1, 1], THREE, {"0": 0, "255": 1}, r"0; 255, got 1 \(2 pixels\). The values are labels already: leave"),
        ([*range(3, 40)] * 2, THREE, {}, r"got 3 \(2 pixels\), 4 .*12 \(2 pixels\) and 27 more values"),
        ([0, 2], _spec("multilabel", 5), {}, r"only 0 to 1, got 2 \(1 pixels\)"),
        ([[9, 9, 9], [0, 0, 0]], THREE, {"8,4,0": 2, "0,0,0": 0}, r"names: 8,4,0; 0,0,0, got 9,9,9 \(1 pixels\)"),
    ],
    ids=["negative", "labels already", "many", "a class in a plane", "a colour"],
)
def test_other_values_are_refused_with_their_pixels_and_advice(values, spec, label_map, message):
    stored = np.array([values], np.int32 if -1 in values else np.uint8)
    with pytest.raises(DataError, match=message):
        to_labels(PATH, stored, spec=spec, label_map=label_map)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int64", "uint32"])
@pytest.mark.parametrize("seed", [0, 1])
def test_label_map_is_what_a_loop_over_pixels_gives(dtype, seed):
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array([3, 17, 120, 90], dtype), (9, 11))
    label_map = {"3": 2, "17": 0, "120": 255, "90": 1, "5": 1}
    expected = [[label_map[str(int(value))] for value in row] for row in values]
    labels = to_labels(PATH, values, spec=THREE, label_map=label_map)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, expected)


def test_negative_values_are_labels_where_the_map_names_them():
    values = np.int32([[-1, 4]])
    np.testing.assert_array_equal(to_labels(PATH, values, spec=THREE, label_map={"-1": 255, "4": 1}), [[255, 1]])


def test_colours_that_share_two_channels_are_told_apart():
    values = np.uint8([[[1, 2, 3], [3, 2, 1], [1, 2, 4], [1, 3, 3]]])
    label_map = {"1,2,3": 0, "3,2,1": 1, "1,2,4": 2, "1,3,3": 255}
    np.testing.assert_array_equal(to_labels(PATH, values, spec=THREE, label_map=label_map), [[0, 1, 2, 255]])


@pytest.mark.parametrize(
    ("dtype", "divisor", "codes", "labels", "objects"),
    [
        ("uint8", 1000, [2, 0, 255], [2, 0, 255], [0, 0, 0]),
        ("int8", 1000, [2, 0, 1], [2, 0, 1], [0, 0, 0]),
        ("uint16", 70_000, [2, 0, 255], [2, 0, 255], [0, 0, 0]),
        ("uint8", 100, [2, 101, 203], [2, 1, 2], [0, 101, 203]),
        ("uint16", 1000, [2, 1001, 2065], [2, 1, 2], [0, 1001, 2065]),
    ],
)
def test_codes_of_any_width_are_split(dtype, divisor, codes, labels, objects):
    stored = np.array([codes], dtype)
    found, numbers = split_codes(PATH, stored, spec=THREE, label_map={}, divisor=divisor)
    assert (found.tolist(), numbers.tolist(), numbers.dtype) == ([labels], [objects], stored.dtype)


def test_cores_lie_deep_in_their_own_object():
    """Against distances to all pixels that touch another number."""
    rng = np.random.default_rng(0)
    instances = np.kron(rng.integers(0, 4, (5, 6)), np.ones((5, 7), int)).astype(np.uint16)
    instances[12:14, 20:22] = 9
    labels = (instances > 0).astype(np.uint8)
    labels[0, :9] = 255
    around = np.pad(instances, 1, mode="edge")
    sides = (around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:])
    outermost = np.argwhere(np.any([side != instances for side in sides], axis=0))
    depth = np.hypot(*(np.argwhere(labels < 9)[:, None] - outermost).transpose(2, 0, 1)).min(1)
    for core_depth in (1, 2.5):
        found = mark_cores(labels, instances, depth=core_depth)
        for (row, column), own in zip(np.argwhere(labels < 9), depth, strict=True):
            number, known = instances[row, column], labels[row, column]
            deepest = depth[instances[labels < 9] == number].max()
            assert found[row, column] == (2 if known == 1 and own >= min(core_depth, deepest) else known)
    assert (mark_cores(labels, np.ones_like(instances), depth=2) == np.where(labels == 1, 2, labels)).all()
