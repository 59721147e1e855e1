"""The MONAI metric: labels or one-hot channels, all cases together or each."""

import numpy as np
import pytest
import torch

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from tests.api.adapters.drawn import SPEC, counted, draw, evaluation
from tests.differential.peers import quiet

pytest.importorskip("monai", reason="monai is not installed: it comes with `make test`")
with quiet():
    from segmeter.api.adapters.monai import SegmentationMetric

PLAIN = SPEC.replace(ignore_index=None)


def one_hot(labels):
    return torch.from_numpy((labels[:, None] == np.arange(3)[:, None, None]).astype(np.float32))


@pytest.mark.parametrize("form", ["labels", "list", "float labels", "one-hot"])
def test_it_gives_the_scores_of_evaluate(form):
    target, labels = draw(spec=PLAIN)
    dtype = np.float32 if form == "float labels" else np.int64
    given = [torch.from_numpy(one[:, None].astype(dtype)) for one in (labels, target)]
    if form == "one-hot":
        given = [one_hot(labels), one_hot(target)]
    metric = SegmentationMetric(PLAIN)
    for start in range(0, 7, 3):
        part = [list(one[start : start + 3]) if form == "list" else one[start : start + 3] for one in given]
        metric(y_pred=part[0], y=part[1])
    wanted = evaluation(PLAIN).summary
    assert metric.aggregate()["mean_iou"] == wanted["dataset"]["mean_iou"]
    cases, car = metric.aggregate("cases"), wanted["per_class"]["car"]["per_case"]  # which the last case lacks
    assert cases["mean_dice"] == pytest.approx(wanted["per_case"]["mean_dice"]["mean"], rel=1e-12)
    assert cases["dice/car"] == pytest.approx(car["dice"]["mean"], rel=1e-12)
    assert metric.get_buffer().dtype == torch.int64
    with pytest.raises(InputError, match='"dataset" or "cases", got \'mean\''):
        metric.aggregate("mean")
    metric.reset()
    with pytest.raises(InputError, match="to be counted before they are scored"):
        metric.aggregate()


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        (torch.full((1, 1, 4, 5), 0.5), "`y_pred` to hold labels, got fractions"),
        (torch.ones(1, 3, 4, 5), "or one-hot with 3 channels"),
        (torch.zeros(1, 2, 4, 5), "or one-hot with 3 channels"),
    ],
    ids=["fractions", "two classes a pixel", "channels"],
)
def test_what_is_no_label_is_refused(labels, line):
    with pytest.raises(InputError, match=line):
        SegmentationMetric(PLAIN)(y_pred=labels, y=torch.zeros(1, 1, 4, 5))


def test_one_of_two_binary_maps_may_lack_its_channel():
    spec = ClassSpec(task="binary", names=("rest", "cell"), colours=((0, 0, 0), (255, 0, 0)))
    labels, target = torch.randint(0, 2, (2, 3, 1, 6, 7), generator=torch.Generator().manual_seed(0))
    found = set()
    for given in ((labels, target), (labels[:, 0], target), (labels, target[:, 0])):
        metric = SegmentationMetric(spec)
        metric(*given)
        found.add(metric.aggregate()["iou/cell"])
    assert len(found) == 1


def test_a_refused_batch_leaves_the_others_counted():
    metric = SegmentationMetric(SPEC)
    counted(metric, lambda metric, *pair: metric(*(one[:, None] for one in pair)), lambda metric: metric.get_buffer())
