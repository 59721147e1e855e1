"""Masks of labels against maps of object numbers: said by a key, and refused where it is not said."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.api.evaluation import evaluate
from segmeter.errors import DataError
from segmeter.evaluation.score import score
from segmeter.metrics.config.measures import InstancesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.objects.scores import match_instances
from tests.data.crafted import BINARY
from tests.evaluation.masks import changed, put_sides, scoring

MEASURED = MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),))


def discs(count=12):
    """Objects 1 to N in a grid; 7 and 8 touch, so that they are one connected part."""
    numbers = np.zeros((60, 80), np.uint16)
    rows, columns = np.indices(numbers.shape)
    for number in range(count):
        centre = 10 + 20 * (number // 4), 10 + 20 * (number % 4)
        numbers[np.hypot(rows - centre[0], columns - centre[1]) < 6] = number + 1
    numbers[30, 50:72][numbers[30, 50:72] == 0] = 7
    return numbers


def job(folder, references, predictions, **changes):
    put_sides(folder, references, predictions)
    return changed(scoring(folder, spec=BINARY), metrics=MEASURED, **changes)


def found(summary):
    return tuple(summary["measures"][name]["cell"]["dataset"] for name in ("pq", "tp", "fp", "fn"))


@pytest.mark.parametrize(("side", "value"), [("references", 255), ("predictions", 1)])
def test_a_mask_of_labels_given_as_object_numbers_is_refused_with_the_key(tmp_path, side, value):
    numbers = discs()
    labels = np.where(numbers > 0, np.uint8(value), np.uint8(0))
    wrong, maps = ("predictions", (numbers, labels)) if side == "references" else ("references", (labels, numbers))
    found = f"got one number, {value}, in 11 separate parts, where the other side has 12 objects"
    rule = rf"{wrong}/a.png: expected `mask` to hold numbers of objects, {found}.*data.instances={side}"
    with pytest.raises(DataError, match=rule):
        score(job(tmp_path, *maps, instances=True))


def test_connected_parts_of_one_side_are_matched_with_the_objects_of_the_other(tmp_path):
    numbers = discs()
    labels = np.where(numbers > 0, np.uint8(255), np.uint8(0))
    summary = score(job(tmp_path, numbers, labels, instances="references", label_map={"0": 0, "255": 1}))
    wanted = match_instances(numbers.astype(np.int64), ndimage.label(labels, np.ones((3, 3)))[0])
    assert found(summary) == pytest.approx((wanted.pq, wanted.tp, wanted.fp, wanted.fn))
    assert (wanted.tp, wanted.fp, wanted.fn) == (11, 0, 1)  # the two that touch are one part
    turned = score(job(tmp_path / "turned", labels, numbers, instances="predictions", label_map={"0": 0, "255": 1}))
    assert turned["confusion_matrix"] == summary["confusion_matrix"]
    assert found(turned)[1:] == (11, 1, 0)


def test_one_object_in_a_few_parts_is_taken_as_it_is(tmp_path):
    numbers, one = discs(), np.zeros((60, 80), np.uint8)
    one[5:15, 5:15], one[40, 70] = 3, 3
    assert found(score(job(tmp_path, numbers, one, instances=True)))[1:] == (1, 0, 11)
    single = (discs() == 4).astype(np.uint8) * 9
    assert found(score(job(tmp_path / "single", single, single, instances=True)))[0] == 1.0


def test_a_side_of_labels_is_still_checked(tmp_path):
    with pytest.raises(DataError, match=r"predictions/a.png: expected `mask` to hold only 0 to 1, got 12"):
        score(job(tmp_path, discs(), (discs() == 3).astype(np.uint8) * 12, instances="references"))


@pytest.mark.parametrize("side", ["references", "predictions"])
def test_touching_objects_under_one_label_are_warned_of(tmp_path, side):
    """Where nearly all objects touch, a label has few parts, so that these do not tell it from an object."""
    numbers = np.repeat(np.repeat(np.arange(1, 26).reshape(5, 5), 8, axis=0), 8, axis=1).astype(np.uint16)
    numbers[:, :3] = 0
    labels = np.where(numbers > 0, np.uint8(255), np.uint8(0))
    first, second = (labels, numbers) if side == "references" else (numbers, labels)
    (warning,) = score(job(tmp_path, first, second, instances=True))["spacing"]["warnings"]
    assert warning.startswith(f"{side} have one number where the other side has objects; if it is a label, set data.")
    assert warning.endswith(" (1: a).")
    maps = [("a", first.astype(int), second.astype(int))]
    found = evaluate(maps, classes=["ground", "cell"], task="binary", instances=True)
    assert found.summary["spacing"]["warnings"] == [warning]
    assert "have one number where" in found.table()
