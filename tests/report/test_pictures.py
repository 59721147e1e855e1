"""Which pictures go into the page, and how many bytes of them."""

import base64
import io

import numpy as np
from PIL import Image

from segmeter.report.config import ReportConfig
from segmeter.report.overlay import write_overlay
from segmeter.report.pictures import WIDTH, load_pictures

SCORES = {f"case{k}": k / 10 for k in range(10)} | {"undefined": None}


def save_all(folder, names=SCORES, width=40):
    for name in names:
        write_overlay(folder, name, np.full((20, width, 3), 128, np.uint8))


def ids(pictures):
    return [picture.case_id for picture in pictures]


def test_the_worst_come_first_and_others_are_spread_evenly(tmp_path):
    """Of the eight that are left, numbers 1, 4 and 6 (counted from 0) are the middles of three equal parts."""
    save_all(tmp_path)
    worst, others = load_pictures(tmp_path, SCORES, ReportConfig(worst=3, others=3))
    assert ids(worst) == ["case0", "case1", "case2"]
    assert ids(others) == ["case4", "case7", "case9"]
    assert others[-1].score == 0.9


def test_cases_without_a_picture_are_passed_over(tmp_path):
    save_all(tmp_path, ["case5", "undefined"])
    worst, others = load_pictures(tmp_path, SCORES, ReportConfig(worst=1, others=3))
    assert (ids(worst), ids(others)) == (["case5"], ["undefined"])
    assert load_pictures(tmp_path / "none", SCORES, ReportConfig()) == ([], [])


def test_bytes_are_limited_in_all(tmp_path):
    save_all(tmp_path)
    size = len(load_pictures(tmp_path, SCORES, ReportConfig(worst=1, others=0))[0][0].source)
    limit = ReportConfig(worst=4, others=4, max_mb=(5.5 * size) / 2**20)
    worst, others = load_pictures(tmp_path, SCORES, limit)
    assert (len(worst), len(others)) == (4, 1)


def test_wide_pictures_are_reduced_and_are_jpeg(tmp_path):
    save_all(tmp_path, ["case0"], width=2 * WIDTH)
    ((picture,), _) = load_pictures(tmp_path, SCORES, ReportConfig())
    head, _, content = picture.source.partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(content)), formats=["JPEG"]) as image:
        assert image.size == (picture.width, picture.height) == (WIDTH, 10)
