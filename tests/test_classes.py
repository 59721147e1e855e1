"""What the classes of a data set are: shapes and dtypes of each task, and what is refused."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec, label_dtype
from segmeter.errors import ConfigError


def make(task: str, count: int, ignore_index: int | None = None, **changes: object) -> ClassSpec:
    given = {"names": tuple(f"c{k}" for k in range(count)), "colours": ((5, 5, 5),) * count} | changes
    return ClassSpec(task=task, ignore_index=ignore_index, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("spec", "channels", "values", "counts"), [
    (make("binary", 2), 1, 2, (2, 2)),
    (make("multiclass", 5), 5, 5, (5, 5)),
    (make("multilabel", 5), 5, 2, (5, 2, 2)),
    (make("multilabel", 1), 1, 2, (1, 2, 2)),
], ids=["binary", "multiclass", "multilabel", "one-label"])  # fmt: skip
def test_each_task_has_its_shapes(spec, channels, values, counts):
    assert (spec.num_channels, spec.num_values, spec.counts_shape) == (channels, values, counts)
    assert spec.is_multilabel == (spec.task == "multilabel")


@pytest.mark.parametrize(("spec", "dtype"), [
    (make("binary", 2), np.uint8),
    (make("binary", 2, 255), np.uint8),
    (make("binary", 2, 256), np.uint16),
    (make("multiclass", 256), np.uint8),
    (make("multiclass", 256, 256), np.uint16),
    (make("multiclass", 257), np.uint16),
    (make("multilabel", 300), np.uint8),
])  # fmt: skip
def test_the_label_dtype_holds_every_label_and_the_ignored_value(spec, dtype):
    highest = max(spec.num_values - 1, spec.ignore_index or 0)
    assert spec.label_dtype == dtype == label_dtype(highest)
    assert np.array(highest).astype(spec.label_dtype) == highest


def test_valid_pixels_are_those_that_are_not_ignored():
    target = np.array([[0, 1, 255], [255, 2, 0]], np.uint8)
    assert make("multiclass", 3, 255).valid(target).tolist() == [[True, True, False], [False, True, True]]
    for without in (None, 300):  # a value that uint8 can't hold is in no pixel
        assert make("multiclass", 3, without).valid(target).tolist() == [[True] * 3] * 2


def test_class_0_is_background_for_binary_and_where_multiclass_has_it_in_black():
    assert make("binary", 2).has_background
    assert not make("multiclass", 2).has_background
    assert make("multiclass", 2, colours=((0, 0, 0), (1, 1, 1))).has_background
    assert not make("multilabel", 2, colours=((0, 0, 0), (1, 1, 1))).has_background


@pytest.mark.parametrize(("given", "message"), [
    ({"task": "panoptic", "count": 2}, "`task` to be one of binary, multiclass, multilabel"),
    ({"task": "binary", "count": 3}, "to be two names"),
    ({"task": "multiclass", "count": 1}, "to name at least 2"),
    ({"task": "multiclass", "count": 65535}, r"to name at most 65534, got \['c0', 'c1'"),
    ({"task": "multiclass", "count": 2, "names": ("a", "a")}, "Twice: a"),
    ({"task": "multiclass", "count": 3, "ignore_index": 2}, "between 3 and 65535, as it must not be a class"),
    ({"task": "multilabel", "count": 3, "ignore_index": 65536}, "between 2 and 65535"),
    ({"task": "multiclass", "count": 3, "ignore_index": 254.5}, "to be an integer or null"),
    ({"task": "multilabel", "count": 1, "colours": ((0, 0, 256),)},
     r"`colours\[0\]\[2\]` to be an integer >= 0 and <= 255"),
    ({"task": "multiclass", "count": 2, "colours": ((0, 0, 0),)}, "`colours` to be 2 colours, one per class"),
    ({"task": "multiclass", "count": 2, "names": "ab"}, "`names` to be a list, each text, got 'ab'"),
], ids=range(11))  # fmt: skip
def test_refusals(given, message):
    with pytest.raises(ConfigError, match=message):
        make(**given)


def test_all_broken_rules_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        make("multiclass", 3, 1, names=("a", "a", "b"), colours=((0, 0, 300),) * 3)
    assert len(caught.value.problems) == 4  # the names and each colour; the ignored value depends on the names


def test_a_plane_of_multilabel_has_its_own_meaning():
    spec = make("multilabel", 2, 9, names=("other", "cell"), colours=((1, 2, 3), (4, 5, 6)))
    plane = spec.of_plane(1)
    assert (plane.task, plane.colours, plane.values) == ("binary", ((0, 0, 0), (4, 5, 6)), (0, 1, 9))
    assert [spec.of_plane(index).names for index in (0, 1)] == [("rest", "other"), ("other", "cell")]


def test_labels_are_ignored_in_a_mask_where_there_is_a_value_for_it():
    spec, labels, where = make("binary", 2), np.array([0, 1, 1], np.int64), np.array([True, False, True])
    np.testing.assert_array_equal(spec.ignoring(labels, where), [0, 1, 1])
    assert not spec.is_ignored(labels).any()
    found = spec.with_ignored().ignoring(labels, where)
    assert (found.tolist(), found.dtype) == ([255, 1, 255], np.uint8)
    np.testing.assert_array_equal(spec.with_ignored().valid(found), ~where)
