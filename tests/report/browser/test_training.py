"""Pages without cases: the curves and pictures of a training, the index of runs, and the jobs of a sweep."""

import re

import pytest

from .looks import drag
from .made import NAME

pytestmark = pytest.mark.slow


def ink(page, selector):
    """How many pixels of a canvas are drawn."""
    return page.locator(selector).evaluate(
        "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"
    )


def chart(page, title):
    return page.locator("figure.chart").filter(has=page.locator("figcaption", has_text=title))


def test_the_best_value_stands_in_the_legend_and_on_top_and_the_pointer_reads_the_others(visit, trained):
    page = visit(trained)
    assert "best 0.9 at 60, last 0.5" in chart(page, "scores of the validation").locator(".chip").text_content()
    assert page.locator(".card").first.text_content() == "mean IoU0.900best, at step 60"
    assert NAME in chart(page, "IoU by class").text_content()
    plot = chart(page, "loss").locator(".u-over")
    plot.hover(position={"x": plot.bounding_box()["width"] / 2, "y": 100})
    said = chart(page, "loss").locator(".tip").text_content()
    assert re.fullmatch(r"step [\d.]+: training 0\.0(2|196\d), validation 0\.5", said), "1 / step, of the 50th or 51st"


def test_a_line_is_hidden_by_its_legend_and_left_alone_by_two_clicks(visit, trained):
    page = visit(trained, alone=True)
    classes = chart(page, "IoU by class")
    before = ink(page, "figure.chart:nth-of-type(3) canvas")
    classes.locator(".chip").first.click()
    assert classes.locator(".chip").first.get_attribute("aria-pressed") == "false"
    assert ink(page, "figure.chart:nth-of-type(3) canvas") != before
    classes.locator(".chip").first.dblclick()
    assert [chip.get_attribute("aria-pressed") for chip in classes.locator(".chip").all()] == ["true", "false"]


def test_a_drag_zooms_all_charts_the_whole_run_comes_back_and_the_axis_is_the_readers_choice(visit, trained):
    page = visit(trained, alone=True)
    box = chart(page, "loss").locator(".u-over").bounding_box()
    drag(page, (box["x"] + 200, box["y"] + 80), (box["x"] + 300, box["y"] + 80))
    zoomed = ink(page, "figure.chart:nth-of-type(1) canvas")
    page.click("#whole")
    assert ink(page, "figure.chart:nth-of-type(1) canvas") != zoomed
    before = ink(page, "figure.chart:nth-of-type(2) canvas")
    page.get_by_label("horizontal axis").select_option("seconds")
    assert ink(page, "figure.chart:nth-of-type(2) canvas") != before


def test_pictures_follow_the_step(visit, trained):
    def shown():
        sources = page.locator("#over-time img").evaluate_all("nodes => nodes.map((node) => node.src)")
        return page.locator("#steps output").text_content(), *sources

    page = visit(trained, alone=True)
    last, *before = shown()
    page.get_by_label("step of the validation").fill("0")
    first, *after = shown()
    assert (first, last) == ("step 20", "step 100")
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_runs_are_sorted_by_any_figure_and_a_hostile_name_is_a_link_that_opens(visit, index):
    page = visit(index, alone=True)
    page.get_by_role("button", name="mean IoU").first.click()
    assert page.locator("th[aria-sort]", has_text="mean IoU").count() == 1
    page.get_by_role("link", name="onerror").click()
    page.locator("html[data-ready=yes] #cases").wait_for()
    assert page.url.endswith("/report.html")


def test_jobs_of_a_sweep_are_sorted_by_size_and_opened(visit, sweep):
    page = visit(sweep, alone=True)
    page.get_by_role("button", name="loss.gamma").click()
    values = page.locator("tbody td:nth-child(2)")
    assert values.all_text_contents() == ["-inf", "1e-05", "0.5", "10", "20", "1e3", "inf", "2x", "3x"]
    assert page.locator("tbody tr").nth(2).get_by_role("link").count() == 0  # as it was stopped
    page.get_by_role("link", name="0_gamma").click()
    assert page.title() == "the job's page"
