"""The cases that are worth a picture."""

import itertools

import pytest

from segmeter.errors import ConfigError
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.gallery import choose_cases

SCORES = {"a": 0.9, "b": 0.1, "c": 0.5, "d": None, "e": 0.2, "f": float("nan")}


def test_the_worst_and_a_sample_are_chosen_whatever_the_order():
    config = ReportConfig(overlays=3, worst=2)
    orders = [dict(order) for order in itertools.islice(itertools.permutations(SCORES.items()), 0, None, 131)]
    chosen = [choose_cases(scores, config) for scores in orders]
    assert all(each == chosen[0] for each in chosen)
    assert {"b", "e"} <= chosen[0]
    assert len(chosen[0]) in (2, 3)  # the sample may be one of the worst


@pytest.mark.parametrize(("overlays", "expected"), [(-1, set(SCORES)), (0, set())])
def test_all_and_none(overlays, expected):
    assert choose_cases(SCORES, ReportConfig(overlays=overlays)) == expected


def test_the_worst_case_of_each_class_comes_on_top():
    scores = {name: (0.5, 0.9 if name != "e" else 0.1, float("nan")) for name in "fedcba"}
    assert choose_cases(SCORES, ReportConfig(overlays=1, worst=1), scores) == {"a", "b", "e"}  # a: first of equal ones


def test_settings_out_of_range_are_said_at_once():
    with pytest.raises(ConfigError) as caught:
        ReportConfig(overlays=-2, panel=10, worst=-1, pictures="none", picture_mb=0)
    assert len(caught.value.problems) == 5
