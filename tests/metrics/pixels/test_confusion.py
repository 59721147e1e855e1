"""Counting is exact for every dtype, layout and size, and refuses what it cannot count."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as reference_matrix

from segmeter.errors import InputError
from segmeter.metrics.pixels import confusion
from segmeter.metrics.pixels import confusion as module
from segmeter.metrics.pixels._kernels import count_pairs
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
    monkeypatch.setattr(module, "_COMPILED_CHUNK", 777)
    np.testing.assert_array_equal(confusion_matrix(target, labels, num_classes=4, ignore_index=255), whole)


def test_multilabel_leaves_ignored_pixels_out_of_their_class_only():
    target = np.array([[1, 255, 0], [1, 1, 255]], np.uint8)
    labels = np.array([[1, 1, 1], [0, 1, 1]], np.uint8)
    counts = multilabel_counts(target, labels, ignore_index=255)
    np.testing.assert_array_equal(counts, [[[0, 1], [0, 1]], [[0, 0], [1, 1]]])


@pytest.mark.parametrize("num_classes", [5, 300])
@pytest.mark.parametrize("position", [0, 5000], ids=["block", "rest"])
@pytest.mark.parametrize("argument", ["target", "labels"])
def test_foreign_values_are_refused_in_every_loop(argument, position, num_classes):
    maps = {"target": np.zeros(5001, np.uint16), "labels": np.zeros(5001, np.uint16)}
    maps[argument][position] = 999
    with pytest.raises(InputError, match=f"`{argument}` .* got 1 pixel of 999"):
        confusion_matrix(**maps, num_classes=num_classes, ignore_index=998)


def test_multilabel_refusals_name_the_class():
    target = np.zeros((2, 3), np.uint8)
    labels = target.copy()
    labels[1, 2] = 5
    with pytest.raises(InputError, match=r"class 1: expected `labels` .* got 1 pixel of 5"):
        multilabel_counts(target, labels)
    with pytest.raises(InputError, match="a class axis and pixel axes"):
        multilabel_counts(target[0], labels[0])


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_case_is_counted_as_its_task_asks_for_and_ignored_pixels_may_hide_foreign_labels(task, hidden):
    target, labels = np.array([[[0, 1, 255]], [[1, 1, 0]]], np.uint8), np.array([[[1, 1, 0]], [[0, 1, 0]]], np.uint8)
    labels[0, 0, 2] = 7 if hidden else 1
    counts, found = count_case_and_hidden(target, labels, class_spec(2, task))
    assert found is hidden
    planes = multilabel_counts(target, labels, ignore_index=255)
    np.testing.assert_array_equal(counts, planes if task == "multilabel" else planes.sum(axis=0))
    np.testing.assert_array_equal(count_case(target, labels, class_spec(2, task)), counts)


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


def test_numba_is_not_imported_before_much_is_counted():
    code = (
        "import sys; import numpy, segmeter; import segmeter.metrics.summary.summarise;"
        "few, many = (numpy.zeros(size, numpy.uint8) for size in (9, 2 * 10**7));"
        "segmeter.confusion_matrix(few, few, num_classes=2); print('numba' in sys.modules, 'torch' in sys.modules);"
        "segmeter.confusion_matrix(many, many, num_classes=2); print('numba' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False", "True"]


def test_a_full_sub_histogram_table_fits_the_pairs_dtype():
    largest = confusion.MOST_COMPILED
    assert (largest + 2) * (largest + 1) <= np.iinfo(np.uint16).max < (largest + 3) * (largest + 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("length", [1, 8, 40], ids=["noise", "words", "runs"])
@pytest.mark.parametrize("classes", [1, 2, 19, 253, 254])
def test_both_ways_of_counting_agree(classes, length, dtype):
    """Mutation seen to fail: the last run of equal pairs is not added."""
    rng = np.random.default_rng(classes)
    most = min(classes + 3, np.iinfo(dtype).max + 1)
    for size in (1, 4095, 4096, 70_000):
        target, labels = (np.repeat(rng.integers(0, most, size), length)[:size].astype(dtype) for _ in range(2))
        for ignore in (0, classes):
            found = count_pairs(target, labels, classes, ignore)
            np.testing.assert_array_equal(found, confusion._count_plainly(target, labels, classes, ignore))
