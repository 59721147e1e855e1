"""The index of runs and the jobs of a sweep: sorted and opened."""

import pytest

pytestmark = pytest.mark.slow


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
