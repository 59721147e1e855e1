"""Two runs side by side, the curves and pictures of a training, the index of runs, and the jobs of a sweep."""

import re
import shutil

import numpy as np
import pytest

from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report

from .looks import DECODED, NAME, column, count, drag, ids, near, pixels

pytestmark = pytest.mark.slow


def changed(rows, every=1):
    """Cases whose mean IoU of a perfect prediction is better by more than 0.05."""
    found = set()
    for row in rows[::every]:
        counts = row.counts
        union = counts.sum(0) + counts.sum(1) - counts.diagonal()
        if (counts.diagonal()[union > 0] / union[union > 0]).mean() < 0.95:
            found.add(row.case_id)
    return found


def test_better_cases_are_one_click_away_of_a_pair_that_is_the_readers_choice(visit, compared, rows):
    page = visit(compared, alone=True)
    wanted = changed(rows)
    page.get_by_role("link", name=f"better {len(wanted)}").click()
    assert count(page) == f"{len(wanted)} of 60 cases"
    assert set(ids(page)) <= wanted
    differences = [float(text) for text in column(page, "difference of mean IoU")]
    assert differences == sorted(differences, reverse=True)
    assert min(differences) > 0.05
    page.get_by_label("new run").select_option(label="third")
    page.locator("a.chip", has_text=f"better {len(changed(rows, 3))}").wait_for()
    page.get_by_label("new run").select_option(label="old")  # so that "third" becomes the base
    page.get_by_role("link", name=f"worse {len(changed(rows, 3))}").click()
    assert set(ids(page)) <= changed(rows, 3)


def test_the_least_difference_and_the_measure_that_decides_are_the_readers_choice(visit, compared):
    page = visit(compared, alone=True)
    page.get_by_label("least difference").fill("0.9")
    page.get_by_label("least difference").press("Enter")
    page.get_by_role("link", name="unchanged 60").wait_for()
    assert page.locator("a.chip", has_text="worse").text_content() == "worse 0"
    page.locator("#differences ~ div").get_by_role("link", name="pixel accuracy").first.click()
    page.locator("th[aria-sort]", has_text="difference of pixel accuracy").wait_for()
    assert "difference/pixel_accuracy" in page.get_by_label("measure that decides").input_value()


def test_where_lower_is_better_a_fall_is_better_and_the_worst_come_first(visit, compared):
    page = visit(compared, "#?by=difference%2Floss", alone=True)  # each loss falls from a tenth of its number to 0
    page.get_by_role("link", name="unchanged 1").wait_for()
    assert page.locator("a.chip", has_text="worse").text_content() == "worse 0"
    assert ids(page)[0] == "case-00"
    page.get_by_role("link", name="better 59").click()
    assert count(page) == "59 of 60 cases"
    assert ids(page)[0] == "case-59", "the best of the better ones"
    assert float(column(page, "difference of loss")[0]) == -5.9


def test_a_slice_and_the_number_of_cases_of_a_metric_open_them(visit, compared):
    page = visit(compared, alone=True)
    rows = page.locator("section").filter(has=page.locator("#slices")).get_by_role("row")
    rows.filter(has_text="old, third").filter(has_text="mean Dice").get_by_role("link", name="2", exact=True).click()
    page.locator("th[aria-sort]", has_text="difference of mean Dice").wait_for()
    assert count(page) == "10 of 60 cases"
    assert {name[:6] for name in ids(page)} == {"case-2"}
    assert page.get_by_label("new run").input_value() == "2"
    rows = page.locator("#differences ~ div").get_by_role("row")
    rows.filter(has_text="IoU of car").filter(has_text="old, third").get_by_role("link", name="30", exact=True).click()
    page.locator(".chip", has_text="defined").wait_for()
    assert count(page) == "30 of 60 cases"


def test_another_pair_is_not_shown_with_the_columns_of_the_old_one(visit, compared):
    """The page is loaded anew, and what it shows until then is still the old choice, whole."""
    page = visit(compared, alone=True)
    sorted_by = """(link) => {
      history.pushState(null, "", link);
      dispatchEvent(new Event("hashchange"));
      return document.querySelector("th[aria-sort]").textContent;
    }"""
    assert page.evaluate(sorted_by, "#?pair=0.2&sort=difference/pixel_accuracy") == "difference of mean IoU"
    page.locator("th[aria-sort]", has_text="difference of pixel accuracy").wait_for()


def test_both_predictions_stand_beside_each_other(visit, compared):
    captions = visit(compared, "#?case=case-12").locator("#case figcaption").all_text_contents()
    assert captions == ["image", "target", "prediction: old", "errors: old"], "which one run drew"
    page = visit(compared, "#?case=case-04", alone=True)  # whose car is predicted as a tree
    captions = page.locator("#case figcaption").all_text_contents()
    both = ["prediction: old", "prediction: perfect", "errors: old", "errors: perfect"]
    assert captions == ["image", "target", *both]
    page.locator("#opacity").fill("1")
    for place, colour in ((1, (200, 0, 0)), (2, (0, 200, 0)), (3, (200, 0, 0))):
        stage = pixels(page, f"#case .pane >> nth={place} >> .stage")
        np.testing.assert_allclose(near(stage, 16 / 24, 23 / 32), colour, atol=3)
    row = page.locator("#case").get_by_role("row").filter(has_text="IoU of car").text_content()
    assert "0.0000" in row
    assert "1.0000" in row


def test_linked_pictures_are_those_of_the_runs(visit, compared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("a page") / "linked #1"
    shutil.copytree(compared.parent, folder)
    page = visit(write_report(folder, ReportConfig(pictures="link")), "#?case=case-04", alone=True)
    page.locator("#case img").evaluate_all(DECODED)  # none is missing
    sources = page.locator("#case img").evaluate_all("nodes => nodes.map((node) => node.getAttribute('src'))")
    assert len(sources) == 11
    assert all(source.startswith("../") for source in sources)
    assert any("/perfect/pictures/" in source for source in sources)


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
