"""Two runs side by side: what became better, what became worse, and both predictions."""

import shutil

import numpy as np
import pytest

from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report

from .looks import DECODED, column, count, ids, near, pixels

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
