"""The cases that are worth a picture, those that a page shows, and how many bytes of them."""

import itertools
import json

import pytest

from segmeter.errors import ConfigError
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import choose_cases, choose_pictures, take_turns

from ..conftest import write_picture

SCORES = {name: index / 10 for index, name in enumerate("fedcba")} | {"undefined": None, "none": 0.01}


@pytest.fixture
def pictures(tmp_path, rng, spec):
    for name in (*"abcdef", "undefined"):
        write_picture(tmp_path, name, rng, spec)
    return tmp_path


def page(folder, config, of_class=()):
    (shown,), left_out = choose_pictures([folder], take_turns(SCORES, of_class), config, page=folder)
    return shown, left_out


def test_the_worst_the_worst_of_classes_and_a_sample_take_turns(pictures):
    """Without a limit all are there; in their order the worst is first, then the class's, then one of the sample."""
    shown, left_out = page(pictures, ReportConfig(), ["b", "none"])
    assert list(shown)[:2] == ["f", "b"]
    assert set(shown) == {*"abcdef", "undefined"}
    assert not left_out


def test_what_is_over_the_limit_is_left_out_and_named(pictures):
    every = page(pictures, ReportConfig())[0]
    size = max(len(json.dumps(picture)) for picture in every.values())
    shown, left_out = page(pictures, ReportConfig(picture_mb=3.2 * size / 2**20))
    assert len(shown) == 3
    assert set(shown) | set(left_out) == set(every)


def test_a_run_without_pictures_shows_none(tmp_path):
    assert page(tmp_path, ReportConfig()) == ({}, [])


CHOSEN = {"a": 0.9, "b": 0.1, "c": 0.5, "d": None, "e": 0.2, "f": float("nan")}


def test_the_worst_and_a_sample_are_chosen_whatever_the_order():
    config = ReportConfig(overlays=3, worst=2)
    orders = [dict(order) for order in itertools.islice(itertools.permutations(CHOSEN.items()), 0, None, 131)]
    chosen = [choose_cases(scores, config) for scores in orders]
    assert all(each == chosen[0] for each in chosen)
    assert {"b", "e"} <= chosen[0]
    assert len(chosen[0]) in (2, 3)  # the sample may be one of the worst


@pytest.mark.parametrize(("overlays", "expected"), [(-1, set(CHOSEN)), (0, set())])
def test_all_and_none(overlays, expected):
    assert choose_cases(CHOSEN, ReportConfig(overlays=overlays)) == expected


def test_the_worst_case_of_each_class_comes_on_top():
    scores = {name: (0.5, 0.9 if name != "e" else 0.1, float("nan")) for name in "fedcba"}
    assert choose_cases(CHOSEN, ReportConfig(overlays=1, worst=1), scores) == {"a", "b", "e"}  # a: first of equal ones


def test_settings_out_of_range_are_said_at_once():
    with pytest.raises(ConfigError) as caught:
        ReportConfig(overlays=-2, panel=10, worst=-1, pictures="none", picture_mb=0)
    assert len(caught.value.problems) == 5
