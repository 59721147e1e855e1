"""What a gate requires is read by a small grammar of its own; nothing of it is run."""

import pytest

from segmeter.errors import ConfigError
from segmeter.metrics.config.scores import RequireConfig, parse_requirements


@pytest.mark.parametrize(
    ("text", "metric", "factor", "offset", "at_least"),
    [
        ("mean_iou >= base - 0.005", "mean_iou", 1, -0.005, True),
        ("mean_iou>=base", "mean_iou", 1, 0, True),
        ("hd95/mean <= base + 1.5e-1", "hd95/mean", 1, 0.15, False),
        ("iou/Road Marking >= .7", "iou/Road Marking", 0, 0.7, True),
        ("nsd@2/car >= base * 0.98 - .01", "nsd@2/car", 0.98, -0.01, True),
        ("score/a-b >= -2", "score/a-b", 0, -2, True),
    ],
)
def test_requirements_are_read(text, metric, factor, offset, at_least):
    (one,) = parse_requirements([text])
    assert (one.metric, one.factor, one.offset, one.at_least) == (metric, factor, offset, at_least)
    assert (one.slice, one.per_case) == (None, False)
    assert parse_requirements([str(one)]) == [one]


def test_slices_means_over_cases_and_several_in_one_text():
    first, second = parse_requirements(["per_case(mean_iou)[ward = B 2] >= 0.5; iou/*[ward=*] >= base"])
    assert (first.metric, first.per_case, first.slice) == ("mean_iou", True, ("ward", "B 2"))
    assert str(first) == "per_case(mean_iou)[ward=B 2] >= 0.5"
    assert (second.metric, second.slice) == ("iou/*", ("ward", "*"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean_iou", "to be METRIC >= BOUND or METRIC <= BOUND, with a bound such as 0.8, base"),
        ("mean_iou > base", "got 'mean_iou > base'"),
        ("mean_iou => base", "to be METRIC >= BOUND"),
        ("mean_iou >= base - 2%", "base - 0.01 or base * 0.98"),
        ("0.5 <= mean_iou <= 0.9", "to be METRIC >= BOUND"),
        ("mean_iou >= other - 0.1", "to be METRIC >= BOUND"),
        ("mean_iou >= base / 2", "to be METRIC >= BOUND"),
        ("mean_iou >= __import__('os').getcwd()", "to be METRIC >= BOUND"),
        (">= 0.5", "to be METRIC >= BOUND"),
        ("mean_iou >= 1_000", "to be METRIC >= BOUND"),
        ("mean_iou >= nan", "to be METRIC >= BOUND"),
        ("", "to be METRIC >= BOUND"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_meant(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_requirements([text])
    assert message in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        RequireConfig(require=text)
    assert message in str(caught.value)


def test_every_unreadable_one_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_requirements(["a > 1; b >= base", "c < 2"])
    assert [line.partition(", got ")[2] for line in caught.value.problems] == ["'a > 1'.", "'c < 2'."]
