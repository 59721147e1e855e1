"""The settings that are tried, and their counts beside a plain loop."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.settings import count_settings, parse_over
from segmeter.postprocess.config import CoresConfig, RemoveSmallObjectsConfig
from segmeter.postprocess.pipeline import run_steps
from tests.data.crafted import BINARY, THREE

OVER = ["threshold=0.3:0.7:0.1", "postprocess.min_size=0|4|16", "postprocess.fill_holes.max_pixels=0|9"]
MULTILABEL = BINARY.model_copy(update={"task": "multilabel", "names": ("a", "b"), "ignore_index": 255})


def field(seed, *shape):
    return ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=shape), [0] * (len(shape) - 2) + [1.5, 1.5])


def plain_counts(labels, target, classes):
    return [[int(((target == t) & (labels == p)).sum()) for p in range(classes)] for t in range(classes)]


def assert_each_alone(settings, found, probs, target):
    """Counts are those of a loop over the settings of a binary task."""
    for one, counts in zip(settings.every, found, strict=True):
        labels = run_steps((probs[0] > one.threshold).astype(np.uint8), one.steps, BINARY).labels
        assert counts.tolist() == plain_counts(labels, target, 2), one


@pytest.mark.parametrize("over", [OVER[:1], OVER[:2], OVER[::2], [OVER[2], *OVER[:2]]], ids=len)
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_each_setting_alone(over, seed):
    settings = parse_over(over, BINARY)
    probs = (1 / (1 + np.exp(-30 * field(seed, 1, 30, 40)))).astype(np.float32)
    probs = np.full_like(probs, 0.9) if seed == 3 else probs  # covers the image wholly
    target = (field(seed, 30, 40) + 0.02 * np.random.default_rng(seed).normal(size=(30, 40)) > 0).astype(np.uint8)
    found = count_settings(target, settings, BINARY, probs=probs)
    assert_each_alone(settings, found, probs, target)


def test_multiclass_labels_are_counted_under_every_step():
    settings = parse_over(OVER[1:2], THREE)
    labels, target = (np.random.default_rng(s).integers(0, 3, (20, 30)).astype(np.uint8) for s in range(2))
    for one, counts in zip(settings.every, count_settings(target, settings, THREE, labels=labels), strict=True):
        assert counts.tolist() == plain_counts(run_steps(labels, one.steps, THREE).labels, target, 3)


def test_multilabel_planes_have_thresholds():
    settings = parse_over(OVER[:1], MULTILABEL)
    probs = (1 / (1 + np.exp(-9 * field(0, 2, 20, 20)))).astype(np.float32)
    target = (field(1, 2, 20, 20) > 0).astype(np.uint8)
    found = count_settings(target, settings, MULTILABEL, probs=probs)
    for one, counts in zip(settings.every, found, strict=True):
        assert counts[1, 1, 1] == ((probs[1] > one.threshold) & (target[1] == 1)).sum()


def test_a_probability_is_compared_with_the_threshold_as_written_and_must_exceed_it():
    probs = np.float32([[[0.5, np.nextafter(np.float32(0.5), 1), 0.3]]])  # the last one is above 0.3 in float64
    found = count_settings(np.ones((1, 3), np.uint8), parse_over(["threshold=0.3|0.5"], BINARY), BINARY, probs=probs)
    assert found[:, 1, 1].tolist() == [3, 1]


def test_ranges_are_inclusive_and_the_usual_setting_is_among_them():
    settings = parse_over(["threshold=0.3:0.7:0.05"], BINARY)
    assert [one.threshold for one in settings.every] == [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7]
    assert settings.every[settings.usual].threshold == 0.5
    added = parse_over(["threshold=0.3|0.4"], BINARY)
    assert (added.usual, added.every[2].threshold) == (2, 0.5)
    alone = parse_over(["postprocess.largest_component=no|yes"], BINARY)
    assert [len(one.steps) for one in alone.every] == [0, 1]


def test_fewer_steps_and_thresholds_near_a_half_are_simpler():
    settings = parse_over(["threshold=0.4|0.5|0.6", "postprocess.min_size=0|8|64"], BINARY)
    order = sorted(settings.every, key=lambda one: one.simplicity)
    assert [tuple(one.values.values()) for one in order[:4]] == [("0.5", "0"), ("0.4", "0"), ("0.6", "0"), ("0.5", "8")]


@pytest.mark.parametrize(
    ("spec", "line", "said"),
    [
        (BINARY, "threshold=0.3:1.7:0.1", "numbers from 0 to 1"),
        (THREE, "threshold=0.3|0.5", "no threshold"),
        (BINARY, "postprocess.min_siz=0|8", "Did you mean"),
        (BINARY, "postprocess.opening.radius=0|900", "radius"),
        (BINARY, "postprocess.opening=1|2", "yes and no"),
        (BINARY, "postprocess.min_size=", "no values"),
        (BINARY, "loss.gamma=1|2", "no such key"),
        (THREE, "postprocess.cores.above=0.9|0.97", "cores.*to be used with a binary task"),
        (BINARY, f"postprocess.watershed.min_distance=5|9 {OVER[1]}", "watershed only as the last step"),
    ],
)
def test_what_cannot_be_tried_is_refused(spec, line, said):
    with pytest.raises(ConfigError, match=said):
        parse_over(line.split(), spec)


@pytest.mark.parametrize("usual", [{"min_pixels": 64}, {"min_pixels": 64, "connectivity": 4}], ids=["8", "4"])
@pytest.mark.parametrize("over", [OVER[1:2], ["postprocess.opening.radius=0|1", OVER[1]]], ids=len)
def test_a_size_that_always_applies_stays_before_those_that_are_tried(usual, over):
    settings = parse_over(over, BINARY, steps=(RemoveSmallObjectsConfig(**usual),))
    probs = (1 / (1 + np.exp(-30 * field(0, 1, 30, 40)))).astype(np.float32)
    target = (field(1, 30, 40) > 0).astype(np.uint8)
    found = count_settings(target, settings, BINARY, probs=probs)
    assert_each_alone(settings, found, probs, target)


def test_steps_that_make_instances_stay_last_and_get_probabilities():
    cores = CoresConfig()
    settings = parse_over(OVER[1:2], BINARY, steps=(RemoveSmallObjectsConfig(min_pixels=2), cores))
    assert all(one.steps[-1] == cores for one in settings.every)
    assert [len(one.steps) for one in settings.every] == [2, 3, 3]
    probs, target = np.full((1, 6, 8), 0.9, np.float32), np.ones((6, 8), np.uint8)
    found = count_settings(target, settings, BINARY, probs=probs)
    assert (found[:, 1, 1] == 48).all()
