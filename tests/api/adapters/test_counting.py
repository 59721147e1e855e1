"""Batches of label tensors: the counts of each case by scikit-learn, and what is no batch of labels."""

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, multilabel_confusion_matrix

from segmeter.api.adapters import count_batch
from segmeter.errors import InputError
from tests.api.adapters.drawn import BINARY, SPEC, draw

MULTILABEL = SPEC.replace(task="multilabel", ignore_index=None)


def test_each_case_is_counted_without_its_ignored_pixels():
    target, labels = draw(3)
    found = count_batch("f", torch.from_numpy(labels), torch.from_numpy(target), SPEC)
    assert (found.dtype, found.shape) == (np.int64, (3, 3, 3))
    for counts, one, other in zip(found, target, labels, strict=True):
        np.testing.assert_array_equal(counts, confusion_matrix(one[one != 255], other[one != 255], labels=[0, 1, 2]))


def test_planes_of_a_multilabel_task_are_counted_apart():
    rng = np.random.default_rng(0)
    target, labels = rng.random((2, 2, 3, 8, 9)) < 0.4
    found = count_batch("f", torch.from_numpy(labels), torch.from_numpy(target), MULTILABEL)
    assert found.shape == (2, 3, 2, 2)
    for counts, one, other in zip(found, target, labels, strict=True):
        flat = [np.moveaxis(each, 0, -1).reshape(-1, 3) for each in (one, other)]
        np.testing.assert_array_equal(counts, multilabel_confusion_matrix(*flat))


@pytest.mark.parametrize(("ours", "theirs"), [(False, False), (True, False), (False, True), (True, True)])
def test_binary_maps_may_have_a_channel_axis(ours, theirs):
    target, labels = (torch.from_numpy(one) for one in draw(3, spec=BINARY))
    wanted = count_batch("f", labels, target, BINARY)
    found = count_batch("f", labels[:, None] if ours else labels, target[:, None] if theirs else target, BINARY)
    np.testing.assert_array_equal(found, wanted)


def test_a_batch_without_cases_has_no_counts():
    empty = torch.zeros(0, 4, 5, dtype=torch.uint8)
    assert count_batch("f", empty, empty, SPEC).shape == (0, 3, 3)


TARGET = torch.zeros(2, 4, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("labels", "target", "line"),
    [
        (torch.zeros(2, 3, 4, 5), TARGET, "got torch.float32 (2, 3, 4, 5). Decide on classes first: logits.argmax(1)"),
        (TARGET, TARGET.bfloat16(), "f: expected `target` to hold labels, got torch.bfloat16 (2, 4, 5). "),
        (TARGET[..., :4], TARGET, "f: expected `preds` to have the target's shape (2, 4, 5), got (2, 4, 4)."),
        (TARGET[0, 0], TARGET[0, 0], "f: expected `preds` to have an axis of cases and at least one more, got (5,)."),
        (TARGET + 9, TARGET, "expected `labels` to hold only classes 0 to 2"),
    ],
    ids=["logits", "a soft target", "shape", "no cases", "no class"],
)
def test_what_is_no_batch_of_labels_is_refused(labels, target, line):
    with pytest.raises(InputError) as error:
        count_batch("f", labels, target, SPEC)
    assert line in str(error.value)
