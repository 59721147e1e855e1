"""Which pictures stay, whatever the order, and which the page shows."""

import itertools

import numpy as np
import pytest

from segmeter.errors import ConfigError
from segmeter.report.config import ReportConfig
from segmeter.report.gallery import Gallery, choose_cases
from segmeter.report.overlay import write_overlay
from segmeter.report.pictures import load_pictures

SCORES = {"a": 0.9, "b": 0.1, "c": 0.5, "d": None, "e": 0.2, "f": float("nan")}


def offer(gallery, ids):
    zero = np.zeros((4, 4), np.uint8)
    for case_id in ids:
        gallery.offer(case_id, image=zero[..., None], target=zero, labels=zero, score=SCORES[case_id])


def stems(folder):
    return {path.stem for path in folder.iterdir()} if folder.exists() else set()


def test_any_order_leaves_the_same_pictures(tmp_path, spec):
    config, kept = ReportConfig(overlays=3, worst=2, panel=128), []
    for index, order in enumerate(list(itertools.permutations(SCORES))[::131]):
        gallery = Gallery(tmp_path / str(index), config, spec)
        offer(gallery, order)
        assert stems(tmp_path / str(index)) == gallery.chosen()
        kept.append(gallery.chosen())
    assert all(chosen == kept[0] for chosen in kept)
    assert {"b", "e"} <= kept[0]
    assert len(kept[0]) in (2, 3)


@pytest.mark.parametrize(("overlays", "expected"), [(-1, set(SCORES)), (0, set())])
def test_all_and_none(tmp_path, spec, overlays, expected):
    offer(Gallery(tmp_path / "o", ReportConfig(overlays=overlays, panel=128), spec), SCORES)
    assert stems(tmp_path / "o") == expected


def test_a_resumed_run_ends_with_the_same_pictures(tmp_path, spec):
    config = ReportConfig(overlays=3, worst=2, panel=128)
    offer(Gallery(tmp_path / "whole", config, spec), "abcdef")
    offer(Gallery(tmp_path / "parts", config, spec), "abc")
    resumed = Gallery(tmp_path / "parts", config, spec)
    for name in "abc":
        resumed.remember(name, SCORES[name])
    offer(resumed, "def")
    assert stems(tmp_path / "parts") == stems(tmp_path / "whole") == choose_cases(SCORES, config)


@pytest.fixture
def overlays(tmp_path, rng):
    for name in "abcdef":
        write_overlay(tmp_path, name, rng.integers(0, 255, (40, 50, 3)).astype(np.uint8))
    return tmp_path


def test_worst_come_first_and_others_are_spread(overlays):
    scores = {name: index / 10 for index, name in enumerate("fedcba")} | {"missing": 0.0}
    worst, others = load_pictures(overlays, scores, ReportConfig(worst=2, others=2))
    assert [picture.case_id for picture in worst] == ["f", "e"]
    assert [picture.case_id for picture in others] == ["c", "a"]
    assert worst[0].source.startswith("data:image/jpeg;base64,")
    assert (worst[0].width, worst[0].height) == (50, 40)


def test_pictures_stop_at_the_limit_of_bytes(overlays):
    scores = dict.fromkeys("abcdef", 0.5)
    everything, _ = load_pictures(overlays, scores, ReportConfig(worst=6, others=0))
    size = sum(len(picture.source) for picture in everything)
    some, _ = load_pictures(overlays, scores, ReportConfig(worst=6, others=0, max_mb=0.6 * size / 2**20))
    assert 0 < len(some) < 6


def test_no_folder_means_no_pictures(tmp_path):
    assert load_pictures(tmp_path / "none", {"a": 0.5}, ReportConfig()) == ([], [])


def test_settings_out_of_range_are_said_at_once():
    with pytest.raises(ConfigError) as caught:
        ReportConfig(overlays=-2, panel=10, worst=-1, others=101, max_mb=0)
    assert len(caught.value.problems) == 5
