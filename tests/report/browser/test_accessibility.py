"""What axe-core finds on each kind of page: nothing serious, light and dark, with and without an open case."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

axe = pytest.importorskip("axe_playwright_python", reason="axe-core comes with the development group")

SCRIPT = Path(axe.__file__).parent / "axe.min.js"
RUN = """([place, rules]) => axe.run(
    {include: [[place]], exclude: [['tbody tr:nth-child(n+4)'], ['.choices fieldset:nth-child(n+3)']]},
    {resultTypes: ['violations'], ...rules})"""


def findings(page, place="html", **rules):
    """Rules that are broken in a part of the page, with a place of each; of rows alike the first ones are seen."""
    found = page.evaluate(RUN, [place, rules])["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("kind", ["site", "multilabel", "compared", "trained", "index", "sweep"])
def test_nothing_serious_is_found(visit, request, kind):
    page = visit(request.getfixturevalue(kind), alone=True)
    page.evaluate(SCRIPT.read_text("utf-8"))
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    assert findings(page, runOnly=["color-contrast"]) == []
    cases = page.locator("#table tbody a")
    if cases.count():
        cases.first.click()
        page.locator("#case").wait_for()
        assert findings(page, "#case") == []


def test_a_finding_would_be_seen(visit, site):
    page = visit(site, alone=True)
    page.evaluate(SCRIPT.read_text("utf-8"))
    page.evaluate("document.querySelector('#find').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('#find').removeAttribute('placeholder')")
    assert [each.partition(":")[0] for each in findings(page, runOnly=["label"])] == ["label"]
