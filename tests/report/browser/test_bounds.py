"""Large pages, small screens, paper, and names that attack."""

import re
import time

import numpy as np
import pytest

from .looks import FRAME, back, count, pixels

pytestmark = pytest.mark.slow


def test_ten_thousand_cases_take_few_rows_of_the_page_and_answer_at_once(visit, large):
    """Wide of the second that the bar allows, as the machine that runs tests may be busy."""
    page = visit(large)
    assert page.evaluate("performance.getEntriesByName('ready')[0].startTime") < 10_000
    start = time.perf_counter()
    page.get_by_role("button", name="mean Dice").click()
    assert time.perf_counter() - start < 5
    assert count(page) == "10,000 cases"
    assert len(page.locator("#table tbody tr").all()) < 60
    page.locator(".rows").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    page.locator("#table tr[data-place='9999']").wait_for()
    assert len(page.locator("#table tbody tr").all()) < 60
    assert large.stat().st_size < 3 * 2**20


def test_a_list_that_is_cut_says_of_how_many(visit, large):
    page = visit(large)
    page.locator(".largest a").first.click()
    said = page.locator("#toolbar .chip").text_content()
    kept, held = re.search(r"the ([\d,]+) cases with the most, of ([\d,]+)", said).groups()
    assert count(page) == f"{kept} of 10,000 cases"
    assert held in page.locator(".largest .minor").first.text_content()
    assert int(kept.replace(",", "")) < int(held.replace(",", ""))


@pytest.mark.parametrize("name", ["site", "large"])
def test_ten_sheets_of_paper_are_enough(visit, request, name):
    page = visit(request.getfixturevalue(name))
    printed = page.pdf(format="A4", print_background=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 10
    assert len(page.locator("#table tbody tr").all()) < 60  # as before


def test_paper_has_the_first_rows_of_a_long_table_and_says_so(visit, many):
    page = visit(many, alone=True)
    rows = page.locator(".scroll[aria-label='classes'] tbody tr")
    said = "box => getComputedStyle(box, '::after').content"
    assert sum(row.is_visible() for row in rows.all()) == 120
    assert page.locator(".scroll[aria-label='classes']").evaluate(said) == "none"
    page.emulate_media(media="print")
    assert sum(row.is_visible() for row in rows.all()) == 40
    assert "first 40 rows" in page.locator(".scroll[aria-label='classes']").evaluate(said)


@pytest.mark.parametrize("width", [360, 1300])
@pytest.mark.parametrize("name", ["site", "hostile", "multilabel", "compared", "trained", "index", "sweep"])
def test_nothing_hangs_over_the_edge_of_the_screen(visit, request, name, width):
    page = visit(request.getfixturevalue(name), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cases = page.locator("#table tbody a")
    if cases.count():
        cases.first.click()
        assert page.evaluate("document.getElementById('case').scrollWidth") <= width


@pytest.mark.parametrize("name", ["named", "site", "many"])
def test_no_table_scrolls_sideways_and_names_of_22_letters_stand_on_one_line(visit, request, named, name):
    page = visit(request.getfixturevalue(name))
    wider = "boxes => boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"
    assert page.locator(".scroll").evaluate_all(wider) == []
    page = visit(named)
    lines = page.locator("td.swatched a").evaluate_all("links => links.map((link) => link.getClientRects().length)")
    assert lines == [1] * 12
    page = visit(named, width=360)
    assert page.locator("td.swatched").first.bounding_box()["width"] < 200


@pytest.mark.parametrize("section", ["confusion-matrix", "cases"])
def test_a_page_opened_at_a_section_shows_it_once_all_is_drawn(visit, large, section):
    page = visit(large, f"#{section}", alone=True)
    assert page.evaluate("name => document.getElementById(name).getBoundingClientRect().top", section) < 60


def test_small_cells_of_a_large_matrix_are_seen(visit, many):
    """By the contrast of two colours as WCAG counts it."""
    page = visit(many, alone=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(FRAME)
        picture = pixels(page, "#confusion .cells")
        height, width = picture.shape[:2]
        row, column = ((np.array([10, 50]) + 0.5) / 120 * width).round().astype(int)
        parts = picture[row, [column, column + 20]] / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        dark, light = np.sort(linear @ (0.2126, 0.7152, 0.0722))
        assert (light + 0.05) / (dark + 0.05) > 1.7, scheme
        assert abs(height - width) < 3


def test_the_classes_of_a_case_leave_room_for_its_pictures(visit, many):
    page = visit(many, "#?case=case-0", width=360)
    box = page.locator("#case .panes").bounding_box()
    assert page.locator("#case .chips button").count() == 120
    assert box["y"] < 500
    chips, key = (page.locator(name).bounding_box() for name in ("#case .chips", "#case .chips .key >> nth=-1"))
    assert key["y"] + key["height"] <= chips["y"] + chips["height"]


def test_hostile_names_run_nothing_wherever_they_are_shown(visit, hostile):
    page = visit(hostile)
    elements = page.evaluate("document.querySelectorAll('script, img:not([src^=\"data:image\"])').length")
    for link in page.locator(".largest a").all():
        link.click()
        back(page)
    page.locator(".chooser summary").click()
    page.locator("#table tbody a").first.click()
    shown = ""
    for _ in range(6):
        shown += page.locator("#case .about").text_content()
        page.keyboard.press("ArrowRight")
    assert "prediction: <script>alert(2)</script>.png" in shown  # the name of a file
    assert page.evaluate("document.querySelectorAll('script, img:not([src^=\"data:image\"])').length") == elements
    assert "49" not in page.title()
    assert "{{7*7}}" in page.locator("#classes ~ div").first.text_content()


def test_a_script_that_is_not_ours_is_refused(visit, site, tmp_path):
    """The policy itself, not only the escaping: a script that gets into the page does not run."""
    path = tmp_path / "page.html"
    path.write_text(site.read_text().replace("</main>", "<script>document.title = 'attacked'</script></main>"))
    page = visit(path, refused=True)
    assert page.title() == "run"
