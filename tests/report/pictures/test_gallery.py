"""Which pictures stay, whatever the order, and which the page shows."""

import itertools

import numpy as np
import pytest

from segmeter.errors import ConfigError
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.gallery import Gallery, choose_cases

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
        assert stems(tmp_path / str(index) / "overlays") == gallery.chosen()
        kept.append(gallery.chosen())
    assert all(chosen == kept[0] for chosen in kept)
    assert {"b", "e"} <= kept[0]
    assert len(kept[0]) in (2, 3)


@pytest.mark.parametrize(("overlays", "expected"), [(-1, set(SCORES)), (0, set())])
def test_all_and_none(tmp_path, spec, overlays, expected):
    offer(Gallery(tmp_path / "o", ReportConfig(overlays=overlays, panel=128), spec), SCORES)
    assert stems(tmp_path / "o" / "pictures") == expected


def test_a_resumed_run_ends_with_the_same_pictures(tmp_path, spec):
    config = ReportConfig(overlays=3, worst=2, panel=128)
    offer(Gallery(tmp_path / "whole", config, spec), "abcdef")
    offer(Gallery(tmp_path / "parts", config, spec), "abc")
    resumed = Gallery(tmp_path / "parts", config, spec)
    for name in "abc":
        resumed.remember(name, SCORES[name])
    offer(resumed, "def")
    assert (
        stems(tmp_path / "parts" / "pictures") == stems(tmp_path / "whole" / "pictures") == choose_cases(SCORES, config)
    )


def test_the_worst_case_of_each_class_is_kept_on_top(tmp_path, spec):
    scores = {name: (0.5, 0.9 if name != "e" else 0.1, float("nan")) for name in "abcdef"}
    config = ReportConfig(overlays=1, worst=1, panel=128)
    zero = np.zeros((4, 4), np.uint8)
    gallery = Gallery(tmp_path, config, spec)
    for name in "fedcba":
        gallery.offer(
            name, image=zero[..., None], target=zero, labels=zero, score=SCORES[name], class_scores=scores[name]
        )
    assert gallery.chosen() == choose_cases(SCORES, config, scores) == {"a", "b", "e"}  # a is the first of equal ones
    assert stems(tmp_path / "overlays") == stems(tmp_path / "pictures") == gallery.chosen()


def test_settings_out_of_range_are_said_at_once():
    with pytest.raises(ConfigError) as caught:
        ReportConfig(overlays=-2, panel=10, worst=-1, pictures="none", picture_mb=0)
    assert len(caught.value.problems) == 5
