"""Lesions as columns of a case and scores of the data set; the functions behind are tested with the objects."""

import numpy as np
import pytest

from segmeter.metrics.config.measures import LesionsConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from tests.metrics.build import BINARY, class_spec, maps_of, measured

TARGET = np.zeros((9, 24), np.uint8)
TARGET[1:4, 1:5] = TARGET[5:7, 9:11] = 1  # lesions of 12 and 4 pixels
LABELS = np.zeros_like(TARGET)
LABELS[1:4, 1:3] = LABELS[0:2, 20:23] = 1  # half of the first one, and 6 pixels made up


def lesions(target=TARGET, labels=LABELS, *, spec=BINARY, spacing=(1.0, 1.0), groups=None, **options):
    options = {"dilation": 0, "least": 0.0} | options
    maps = maps_of(target, labels, spec, spacing=spacing)
    return measured((LesionsConfig(**options),), maps, groups=groups or {}, background=False)


def test_each_convention_by_hand():
    found = lesions()
    # one lesion with Dice 2 * 6 / 18, one missed, one made up
    assert found["brats_dice/road"] == pytest.approx((2 * 6 / 18 + 0 + 0) / 3)
    assert [found[f"sum:brats_{name}/road"] for name in ("tp", "fp", "fn")] == [1, 1, 1]
    assert [found[f"sum:picai_{name}/road"] for name in ("tp", "fp", "fn")] == [1, 1, 1]
    assert (found["autopet_fp_volume/road"], found["autopet_fn_volume/road"]) == (6, 4)
    assert 0 < found["cc_dice/road"] < 1
    assert len(found) == 2 + 3 + 3 + 2 + 1


def test_volumes_and_the_least_size_are_in_the_unit_of_the_spacing():
    found = lesions(spacing=(0.5, 3.0), least=6.0)
    assert (found["autopet_fp_volume/road"], found["autopet_fn_volume/road"]) == (6 * 1.5, 4 * 1.5)
    assert found["sum:brats_fn/road"] == 0  # its 4 pixels are 6 of the unit, and lesions up to that do not count
    assert lesions(spacing=(0.5, 3.0), least=5.9)["sum:brats_fn/road"] == 1


def test_settings_reach_their_convention():
    assert lesions(overlap=0.5)["sum:picai_tp/road"] == 1  # 6 of 12 pixels are an IoU of .5
    assert lesions(overlap=0.51)["sum:picai_tp/road"] == 0
    near = LABELS.copy()
    near[1:3, 6:8] = 1  # a second part, two columns from the first lesion: met only after dilation
    assert lesions(labels=near)["sum:brats_fp/road"] == 2
    assert lesions(labels=near, dilation=2)["sum:brats_fp/road"] == 1


def test_only_what_is_asked_for_is_measured_of_each_class_and_group():
    spec, groups = class_spec(3), {"both": ("road", "car")}
    target = np.where(TARGET, 1 + (np.arange(24) > 6), 0).astype(np.uint8)  # the second lesion is of the second class
    found = lesions(target, LABELS, spec=spec, groups=groups, conventions=("autopet",))
    assert found == {
        "autopet_fp_volume/road": 6, "autopet_fn_volume/road": 0,
        "autopet_fp_volume/car": 0, "autopet_fn_volume/car": 4,
        "autopet_fp_volume/both": 6, "autopet_fn_volume/both": 4,
    }  # fmt: skip


def test_scores_of_the_data_set_come_from_sums_over_its_cases():
    """Mutation seen to fail: one false positive counted as two. Arrays are resamples."""
    (measure,) = build_measures(MetricsConfig(measures=(LesionsConfig(),)), BINARY)
    numbers = {"tp": np.array([3.0, 0.0, 0.0]), "fp": np.array([1.0, 2.0, 0.0]), "fn": np.array([4.0, 0.0, 0.0])}
    for convention in ("brats", "picai"):
        found = measure.summarise({(f"{convention}_{name}", "road"): values for name, values in numbers.items()})
        assert set(found) == {(f"{convention}_{name}", "road") for name in ("tp", "fp", "fn", "f1")}
        np.testing.assert_array_equal(found[f"{convention}_f1", "road"], [6 / 11, 0, np.nan])
        np.testing.assert_array_equal(found[f"{convention}_fp", "road"], numbers["fp"])
    assert measure.summarise({}) == {}
