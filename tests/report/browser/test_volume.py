"""A volume: its worst plane first, and the others by a slider."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import DrawnCase, draw_run
from tests.metrics.build import case_row

from ..conftest import write_run

pytestmark = pytest.mark.slow


def test_a_slider_scrolls_through_the_planes_from_the_worst_on(visit, tmp_path):
    spec = ClassSpec(task="binary", names=("rest", "organ"), colours=((0, 0, 0), (255, 0, 0)))
    target = np.zeros((40, 30, 40), np.uint8)
    target[8:32, 8:22, 10:30] = 1
    labels = target.copy()
    labels[30, 8:22, 10:16] = 0
    image = (target * 120 + np.arange(40, dtype=np.uint8)[:, None, None])[..., None]
    write_run(tmp_path, [case_row("scan", [[60000, 0], [84, 6636]])], spec)
    ranking = Ranking(case_ids=["scan"], worst=["scan"])
    draw_run(tmp_path, ranking, lambda name: DrawnCase(image=image, target=target, labels=labels), ReportConfig(), spec)
    write_report(tmp_path)
    page = visit(tmp_path / "report.html", "#?case=scan", alone=True)
    about, plane = page.locator(".about"), page.locator("#plane")
    assert "slice 31 of 40, the one with the most wrong pixels" in about.text_content()
    assert plane.get_attribute("max") == "17", "17 along the axis, and the worst"
    source = page.locator("#case img.base.image").get_attribute("src")
    plane.fill("0")
    assert "slice 1 of 40 ·" in about.text_content()
    assert page.locator("#case img.base.image").get_attribute("src") != source
    plane.focus()
    for _ in range(17):
        page.keyboard.press("ArrowRight")
    assert "slice 40 of 40 ·" in about.text_content()
