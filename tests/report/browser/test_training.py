"""The curves of a training: legends, zoom in step, the best value, and pictures step by step."""

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
    assert "validation 0.5" in chart(page, "loss").locator(".tip").text_content()


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
    page = visit(trained, alone=True)
    assert page.locator("#steps output").text_content() == "step 100"
    sources = page.locator("#over-time img").evaluate_all("nodes => nodes.map((node) => node.src)")
    page.get_by_label("step of the validation").fill("0")
    assert page.locator("#steps output").text_content() == "step 20"
    moved = page.locator("#over-time img").evaluate_all("nodes => nodes.map((node) => node.src)")
    assert (sources[0] == moved[0], sources[1] == moved[1]) == (False, True)
