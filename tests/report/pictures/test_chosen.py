"""The cases that are worth a picture, those that a page shows, and how many bytes of them."""

import json
from dataclasses import replace

import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking, choose_cases, choose_pictures, take_turns
from tests.metrics.build import case_row, class_spec

from ..conftest import write_picture

RANKING = Ranking(case_ids=sorted([*"abcdef", "undefined", "none"]), worst=["f", "none", *"edcba"])


@pytest.fixture
def pictures(tmp_path, rng, spec):
    for name in (*"abcdef", "undefined"):
        write_picture(tmp_path, name, rng, spec)
    return tmp_path


def page(folder, config, of_classes=()):
    order = take_turns(replace(RANKING, of_classes=of_classes))
    (shown,), left_out = choose_pictures([folder], order, config, page=folder)
    return shown, left_out


def test_the_worst_the_worst_of_classes_and_a_sample_take_turns_within_the_limit(pictures):
    """Without a limit all are there; in their order the worst is first, then the class's, then one of the sample."""
    shown, left_out = page(pictures, ReportConfig(), ["b", "none"])
    assert list(shown)[:2] == ["f", "b"]
    assert set(shown) == {*"abcdef", "undefined"}
    assert not left_out
    size = max(len(json.dumps(picture)) for picture in shown.values())
    fewer, left_out = page(pictures, ReportConfig(picture_mb=3.2 * size / 2**20))
    assert len(fewer) == 3
    assert set(fewer) | set(left_out) == set(shown)
    assert page(pictures / "none", ReportConfig()) == ({}, [])


def ranked(scores, **changes):
    """Cases whose road has an IoU of TP / 10, or is undefined."""
    counts = {name: [[5, 0], [10 - tp, tp]] if tp is not None else [[5, 0], [0, 0]] for name, tp in scores.items()}
    config = MetricsConfig(bootstrap=0, **changes)
    return Ranking.of(
        build_scoreboard([case_row(name, one) for name, one in counts.items()], class_spec(2, "binary"), config)
    )


CHOSEN = {"a": 9, "b": 1, "c": 5, "d": None, "e": 2, "f": None}


def test_cases_are_ranked_by_the_headline_the_worst_first_and_undefined_ones_nowhere():
    ranking = ranked(CHOSEN)
    assert list(ranking.worst) == ["b", "e", "c", "a"]
    assert ranking.headline == "iou/road"
    assert list(ranking.of_classes) == ["b", "b"]
    assert ranking.scores["e"] == pytest.approx(0.2)
    assert list(ranked(CHOSEN, headline="precision/road").worst) == ["a", "b", "c", "e"]  # all of them 1


def test_the_worst_a_sample_and_the_worst_of_each_class_are_chosen():
    chosen = choose_cases(ranked(CHOSEN), ReportConfig(overlays=3, worst=2))
    assert {"b", "e"} <= chosen
    assert len(chosen) in (2, 3)  # the sample may be one of the worst
    ranking = Ranking(case_ids="abcdef", worst="becad", of_classes=["a", "e"])
    assert choose_cases(ranking, ReportConfig(overlays=1, worst=1)) == {"a", "b", "e"}
    for overlays, expected in ((-1, set(CHOSEN)), (0, set())):
        assert choose_cases(ranked(CHOSEN), ReportConfig(overlays=overlays)) == expected
