"""Each kind of page once: it is ready, shows its parts, and no script fails. The other tests of pages are slow."""

import pytest


def test_an_evaluation_shows_its_cases_pictures_and_charts(visit, site):
    page = visit(site, "#?case=case-12")
    assert page.locator("#case-title").text_content() == "case-12"
    assert page.locator("#case .pane").count() == 4
    page.keyboard.press("Escape")
    page.wait_for_function("!location.hash.includes('case=')")
    assert page.locator("#count").text_content() == "60 cases"
    assert page.locator("#plot canvas, #confusion .cells").count() == 2
    page.locator("#histogram a").first.click()
    assert " of 60 cases" in page.locator("#count").text_content()


@pytest.mark.parametrize(("name", "shown"), [("compared", "#differences"), ("trained", ".chart canvas")])
def test_other_pages_are_ready(visit, request, name, shown):
    page = visit(request.getfixturevalue(name))
    assert page.locator(shown).first.is_visible()
