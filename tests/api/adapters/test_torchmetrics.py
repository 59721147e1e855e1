"""The torchmetrics `Metric`: the data set's scores, whatever the batches and ranks."""

import pytest
import torch

from segmeter.errors import InputError
from tests.api.adapters.drawn import SPEC, counted, draw, evaluation
from tests.differential.peers import quiet

pytest.importorskip("torchmetrics", reason="torchmetrics is not installed: it comes with `make test`")
with quiet():
    from segmeter.api.adapters.torchmetrics import SegmentationMetric


def tensors(spec=SPEC):
    return [torch.from_numpy(one) for one in draw(spec=spec)]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_it_gives_the_scores_of_evaluate(size):
    metric, (target, labels) = SegmentationMetric(SPEC), tensors()
    for start in range(0, 7, size):
        metric.update(labels[start : start + size], target[start : start + size])
    found, wanted = metric.compute(), evaluation().summary
    for name in ("mean_iou", "mcc"):
        assert float(found[name]) == wanted["dataset"][name]
    assert float(found["dice/car"]) == wanted["per_class"]["car"]["dice"]
    assert (found["mean_iou"].dtype, metric.counts.dtype) == (torch.float64, torch.int64)
    assert metric.counts.tolist() == wanted["confusion_matrix"]


def test_states_of_ranks_add_exactly():
    """As DDP reduces them: by the sum that each state asks for. 2^24 + 1 would be lost in float32."""
    one, other = SegmentationMetric(SPEC), SegmentationMetric(SPEC)
    target, labels = tensors()
    one.update(labels[:3], target[:3])
    other.update(labels[3:], target[3:])
    one.counts += 2**24 + 1
    reduced = one._reductions["counts"](torch.stack([one.counts, other.counts]))
    assert reduced.dtype == torch.int64
    whole = SegmentationMetric(SPEC)
    whole.update(labels, target)
    assert torch.equal(reduced, whole.counts + 2**24 + 1)


def test_what_is_no_label_is_refused_by_the_metrics_name():
    with pytest.raises(InputError, match=r"^SegmentationMetric: expected `preds` to hold labels, got "):
        SegmentationMetric(SPEC).update(torch.zeros(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.int64))


@pytest.mark.parametrize("name", ["__call__", "update"])
def test_a_refused_batch_leaves_the_others_counted(name):
    """A call of the metric set its state aside first, so that the refused batch took all others with it."""
    metric = SegmentationMetric(SPEC)
    counted(metric, lambda metric, *pair: getattr(metric, name)(*pair), lambda metric: metric.counts)
    assert metric._to_sync, "ranks would no longer be added up"
    assert float(metric.compute()["mean_iou"]) > 0
