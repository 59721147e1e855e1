"""The index of runs: sorted, searched, and opened."""

import shutil

import pytest

from segmeter.report.page.runs import write_index


@pytest.fixture
def index(tmp_path, run_rows, site):
    for name in ("eval/one", "eval/<img src=x onerror=alert(7)>", "score/three"):
        shutil.copytree(run_rows[0], tmp_path / name)
    return write_index(tmp_path)


def test_a_run_is_found_and_opened(visit, index):
    page = visit(index)
    page.fill("#find", "SCORE three")
    assert [row.is_visible() for row in page.locator("tbody tr").all()].count(True) == 1
    page.fill("#find", "eval/one")
    assert page.locator("#count").text_content() == "1 of 3 runs"
    page.get_by_role("link", name="eval/one").click()
    page.locator("html[data-ready=yes] #cases").wait_for()


def test_a_hostile_name_is_a_link_that_opens(visit, index):
    page = visit(index)
    page.get_by_role("link", name="onerror").click()
    page.locator("html[data-ready=yes] #cases").wait_for()


@pytest.mark.parametrize("width", [360, 1300])
def test_runs_are_sorted_by_any_figure(visit, index, width):
    page = visit(index, width=width)
    page.get_by_role("button", name="mean IoU").first.click()
    assert page.locator("th[aria-sort]", has_text="mean IoU").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
