"""Counting is exact for every dtype, layout and size, and refuses what it cannot count."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as reference_matrix

from segmeter.errors import InputError
from segmeter.metrics.pixels import confusion as module
from segmeter.metrics.pixels.confusion import confusion_matrix, count_case, count_case_and_hidden, multilabel_counts
from tests.metrics.build import class_spec

BLOCKS = [0, 1, 7, 8, 4095, 4096, 4097, 3 * 4096 + 13]


def counted_by_scikit_learn(target, labels, num_classes, ignore_index=None):
    kept = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    if not kept.any():
        return np.zeros((num_classes, num_classes), int)
    pair = target[kept].astype(np.int64), labels[kept].astype(np.int64)
    return reference_matrix(*pair, labels=np.arange(num_classes))


def random_maps(num_classes, size, dtype, *, ignore_index=None, seed=0):
    """Runs of equal pixels with noise between them, so that both branches of the fast loop are taken."""
    rng = np.random.default_rng(seed)
    runs = np.repeat(rng.integers(0, num_classes, size // 5 + 1), rng.integers(1, 30, size // 5 + 1))
    target = np.resize(runs, size).astype(dtype)
    labels = np.where(rng.random(size) < 0.2, rng.integers(0, num_classes, size), target).astype(dtype)
    if ignore_index is not None:
        target[rng.random(size) < 0.1] = ignore_index
    return target, labels


def test_rows_are_the_target_and_columns_the_prediction():
    target = np.array([[0, 0, 1, 2], [2, 2, 9, 9]], np.uint8)
    labels = np.array([[0, 1, 1, 0], [2, 2, 0, 2]], np.uint8)
    # by hand: 0->0, 0->1, 1->1, 2->0, 2->2 twice; the two 9 are left out
    counts = confusion_matrix(target, labels, num_classes=3, ignore_index=9)
    np.testing.assert_array_equal(counts, [[1, 1, 0], [0, 1, 0], [1, 0, 2]])
    assert counts.dtype == np.int64


@pytest.mark.parametrize("size", BLOCKS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64, np.uint32, np.dtype(">u2")], ids=str)
def test_counts_equal_scikit_learn_at_every_block_boundary(size, dtype):
    target, labels = random_maps(19, size, dtype, ignore_index=100)
    counts = confusion_matrix(target, labels, num_classes=19, ignore_index=100)
    np.testing.assert_array_equal(counts, counted_by_scikit_learn(target, labels, 19, 100))


@pytest.mark.parametrize("num_classes", [2, 19, 253, 254, 255, 256, 300])
def test_counts_equal_scikit_learn_for_few_and_many_classes(num_classes):
    target, labels = random_maps(num_classes, 20_000, np.uint16)
    expected = counted_by_scikit_learn(target, labels, num_classes)
    np.testing.assert_array_equal(confusion_matrix(target, labels, num_classes=num_classes), expected)


@pytest.mark.parametrize("num_classes", [254, 255])
def test_the_last_class_and_the_ignored_value_stay_apart_at_the_edge_of_uint8(num_classes):
    target = np.array([0, num_classes - 1, 255, 255], np.uint8)
    labels = np.array([num_classes - 1, num_classes - 1, 0, num_classes - 1], np.uint8)
    counts = confusion_matrix(target, labels, num_classes=num_classes, ignore_index=255)
    assert counts.sum() == 2
    assert counts[0, -1] == 1
    assert counts[-1, -1] == 1


@pytest.mark.parametrize("ignore_index", [-1, -100, 255, 65535, 70000, 2**40])
def test_any_ignored_value_is_left_out_of_wide_integers(ignore_index):
    target, labels = random_maps(5, 999, np.int64, ignore_index=ignore_index)
    counts = confusion_matrix(target, labels, num_classes=5, ignore_index=ignore_index)
    np.testing.assert_array_equal(counts, counted_by_scikit_learn(target, labels, 5, ignore_index))


def test_target_and_labels_may_have_different_dtypes_and_layouts():
    target, labels = random_maps(7, 60 * 40, np.uint8)
    expected = counted_by_scikit_learn(target, labels, 7)
    turned = np.asfortranarray(labels.reshape(60, 40)).astype(np.int16, order="K")
    strided = np.repeat(target.reshape(60, 40), 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(confusion_matrix(strided, turned, num_classes=7), expected)


@pytest.mark.parametrize("dtype", [np.uint8, bool])
def test_an_ignored_value_beyond_the_dtype_leaves_nothing_out(dtype):
    target, labels = np.array([[0, 1, 1], [0, 1, 0]], dtype)
    counts = confusion_matrix(target, labels, num_classes=2, ignore_index=257)  # 257 must not become 1
    assert counts.tolist() == [[1, 0], [1, 1]]


def test_values_that_would_wrap_into_a_class_or_the_ignored_value_are_refused():
    labels = np.zeros(1, np.uint8)
    for value, ignore_index in ((-1, None), (-1, 65535), (-65536, None), (65536, None), (65535, 255)):
        with pytest.raises(InputError, match=f"`target` .* got 1 pixel of {value}"):
            confusion_matrix(np.array([value]), labels, num_classes=3, ignore_index=ignore_index)
    for ignore_index in (65536 + 5, -65531):  # both are 5 when cut to 16 bits
        with pytest.raises(InputError, match=r"`target` .* got 1 pixel of 5"):
            confusion_matrix(np.array([5], np.uint16), labels, num_classes=3, ignore_index=ignore_index)


def test_chunks_of_a_huge_map_add_up(monkeypatch):
    target, labels = random_maps(4, 10_000, np.uint8, ignore_index=255)
    whole = confusion_matrix(target, labels, num_classes=4, ignore_index=255)
    monkeypatch.setattr(module, "_CHUNK", 777)
    np.testing.assert_array_equal(confusion_matrix(target, labels, num_classes=4, ignore_index=255), whole)


def test_multilabel_leaves_ignored_pixels_out_of_their_class_only():
    target = np.array([[1, 255, 0], [1, 1, 255]], np.uint8)
    labels = np.array([[1, 1, 1], [0, 1, 1]], np.uint8)
    counts = multilabel_counts(target, labels, ignore_index=255)
    np.testing.assert_array_equal(counts, [[[0, 1], [0, 1]], [[0, 0], [1, 1]]])


def test_an_empty_or_all_ignored_map_counts_nothing():
    ignored = np.full((4, 4), 255, np.uint8)
    assert not confusion_matrix(ignored, ignored, num_classes=3, ignore_index=255).any()
    assert not confusion_matrix(ignored[:0], ignored[:0], num_classes=3).any()


MAP = np.zeros((2, 3), np.uint8)
WRONG = MAP + np.array([0, 7, 7], np.uint8)


@pytest.mark.parametrize(
    ("target", "labels", "options", "message"),
    [
        (MAP, WRONG, {}, r"expected `labels` to hold only classes 0 to 2, got 4 pixels of 7\."),
        (WRONG, MAP, {}, r"`target` .* got 4 pixels of 7\. Pass its void value as ignore_index"),
        (MAP, MAP.astype(np.int32) - 1, {}, r"`labels` .* got 6 pixels of -1"),
        (MAP, MAP.astype(np.int64) + 2**32, {}, r"`labels` .* got 6 pixels of 4294967296"),
        (MAP.astype(np.int64) + 65535, MAP, {}, r"`target` .* got 6 pixels of 65535"),
        (MAP, MAP.astype(np.float32), {}, r"`labels` to have dtype integer, got float32 \(2, 3\)"),
        (MAP, MAP[:1], {}, r"`labels` to have the target's shape \(2, 3\), got \(1, 3\)"),
        (np.ma.masked_array(MAP, True), MAP, {}, "`target` to be a plain NumPy array, got MaskedArray"),
        (MAP, MAP, {"num_classes": 0}, "`num_classes` between 1 and 65534, got 0"),
        (MAP, MAP, {"ignore_index": 2}, r"`ignore_index` to lie outside the classes \(0 to 2\), got 2"),
    ],
)
def test_refusals_name_the_argument_and_what_was_given(target, labels, options, message):
    with pytest.raises(InputError, match=message):
        confusion_matrix(target, labels, **{"num_classes": 3, **options})


@pytest.mark.parametrize("num_classes", [5, 300])
@pytest.mark.parametrize("position", [0, 5000], ids=["block", "rest"])
@pytest.mark.parametrize("argument", ["target", "labels"])
def test_foreign_values_are_refused_in_every_loop(argument, position, num_classes):
    maps = {"target": np.zeros(5001, np.uint16), "labels": np.zeros(5001, np.uint16)}
    maps[argument][position] = 999
    with pytest.raises(InputError, match=f"`{argument}` .* got 1 pixel of 999"):
        confusion_matrix(**maps, num_classes=num_classes, ignore_index=998)


def test_a_long_list_of_foreign_values_is_cut():
    with pytest.raises(InputError, match=r"1 pixel of 9 and 246 more values"):
        confusion_matrix(np.zeros(254, np.uint8), np.arange(2, 256).astype(np.uint8), num_classes=2)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_case_is_counted_as_its_task_asks_for(task):
    target, labels = np.array([[0, 1, 1, 255]], np.uint8), np.array([[0, 1, 0, 1]], np.uint8)
    assert count_case(target, labels, class_spec(2, task)).tolist() == [[1, 0], [1, 1]]
    planes = np.stack([target, 1 - target % 2]), np.stack([labels, 1 - labels])
    counts = count_case(*planes, class_spec(2, "multilabel"))
    assert counts.tolist() == multilabel_counts(*planes, ignore_index=255).tolist()


def test_multilabel_refusals_name_the_class():
    target = np.zeros((2, 3), np.uint8)
    labels = target.copy()
    labels[1, 2] = 5
    with pytest.raises(InputError, match=r"class 1: expected `labels` .* got 1 pixel of 5"):
        multilabel_counts(target, labels)
    with pytest.raises(InputError, match="a class axis and pixel axes"):
        multilabel_counts(target[0], labels[0])


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("hidden", [False, True])
def test_labels_outside_the_classes_are_told_where_the_target_is_ignored(task, hidden):
    spec = class_spec(2, task)
    target, labels = np.array([[[0, 1, 255]], [[1, 1, 0]]], np.uint8), np.array([[[1, 1, 0]], [[0, 1, 0]]], np.uint8)
    labels[0, 0, 2] = 7 if hidden else 1
    counts, found = count_case_and_hidden(target, labels, spec)
    assert found is hidden
    np.testing.assert_array_equal(counts, count_case(target, labels, spec))


@pytest.mark.parametrize("swap", [False, True])
def test_binary_maps_may_have_a_channel_axis(swap):
    rng = np.random.default_rng(4)
    target, labels = rng.integers(0, 2, (2, 3, 8, 9))
    wanted = confusion_matrix(target, labels, num_classes=2)
    pair = (target[:, None], labels) if swap else (target, labels[:, None])
    np.testing.assert_array_equal(confusion_matrix(*pair, num_classes=2), wanted)
    with pytest.raises(InputError, match="shape"):
        confusion_matrix(*pair, num_classes=3)
    with pytest.raises(InputError, match="shape"):
        confusion_matrix(target[:2], labels[:, None], num_classes=2)
