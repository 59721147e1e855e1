"""Which pictures a page shows, and how many bytes of them."""

import json

import pytest

from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import choose_pictures

from ..conftest import write_picture

SCORES = {name: index / 10 for index, name in enumerate("fedcba")} | {"undefined": None, "none": 0.01}


@pytest.fixture
def pictures(tmp_path, rng, spec):
    for name in (*"abcdef", "undefined"):
        write_picture(tmp_path, name, rng, spec)
    return tmp_path


def test_the_worst_the_worst_of_classes_and_a_sample_take_turns(pictures):
    """Without a limit all are there; in their order the worst is first, then the class's, then one of the sample."""
    shown = choose_pictures(pictures, SCORES, ReportConfig(), of_class=["b", "none"])
    assert list(shown.cases)[:2] == ["f", "b"]
    assert set(shown.cases) == {*"abcdef", "undefined"}
    assert not shown.left_out


def test_what_is_over_the_limit_is_left_out_and_named(pictures):
    every = choose_pictures(pictures, SCORES, ReportConfig()).cases
    size = max(len(json.dumps(picture)) for picture in every.values())
    shown = choose_pictures(pictures, SCORES, ReportConfig(picture_mb=3.2 * size / 2**20))
    assert len(shown.cases) == 3
    assert set(shown.cases) | set(shown.left_out) == set(every)


def test_a_run_without_pictures_shows_none(tmp_path):
    assert not choose_pictures(tmp_path, SCORES, ReportConfig()).cases
