"""Which cases: sorting, filters, links from figures, and what is taken away."""

import csv
import re

import pytest

from .looks import TENS, back, column, count, drag, ids

pytestmark = pytest.mark.slow


def test_a_click_on_a_heading_sorts_and_another_turns_round(visit, site):
    page = visit(site)
    page.get_by_role("button", name="loss").click()
    assert ids(page)[0] == "case-59"
    page.get_by_role("button", name="loss").click()
    assert ids(page)[0] == "case-00"
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    for sort in ("iou/3", "-iou/3"):  # undefined values stand last either way
        page = visit(site, f"#?sort={sort}&cols=iou/3")
        assert column(page, "IoU of lamp")[:12].count("n/a") == 0  # every fifth of 60 cases has one
        assert column(page, "IoU of lamp")[12] == "n/a"


def test_a_class_is_chosen_by_what_became_of_it(visit, site):
    page = visit(site)
    page.get_by_label("class", exact=True).select_option(label="lamp: in the target")
    assert count(page) == "12 of 60 cases"
    page.get_by_label("class", exact=True).select_option(label="lamp: missed")
    assert set(ids(page)) == {f"case-{i:02}" for i in range(0, 60, 10)}


def test_a_range_of_any_measure_is_typed_and_may_be_open(visit, site):
    """Mutation seen to fail: a handler of keys that returns false for all but Enter, so that nothing can be typed."""
    page = visit(site)
    page.get_by_label("measure", exact=True).select_option(label="loss")
    low, high = (page.get_by_label(f"{name} this value") for name in ("from", "to"))
    low.press_sequentially("1")
    high.press_sequentially("2")
    page.click("#within")
    assert set(ids(page)) == {f"case-{i}" for i in range(10, 21)}
    high.fill("")
    page.click("#within")
    assert count(page) == "50 of 60 cases"
    low.fill("5.5")
    low.press("Enter")
    assert count(page) == "5 of 60 cases"


def test_filters_add_up_and_go_one_by_one_or_together(visit, site):
    page = visit(site, "#?has=2&in.loss=2..")
    assert count(page) == "20 of 60 cases"
    page.locator("#toolbar .chip").first.click()
    assert count(page) == "40 of 60 cases"
    back(page)
    page.get_by_role("link", name="clear all").click()
    assert count(page) == "60 cases"


def test_a_cell_of_the_confusion_matrix_opens_its_cases(visit, site):
    page = visit(site)
    page.get_by_title("\u2068car\u2069 predicted as \u2068tree\u2069").click()
    assert set(ids(page)) == {f"case-{i:02}" for i in range(0, 60, 4)}
    assert set(column(page, "pixels of \u2068car\u2069 predicted as \u2068tree\u2069")) == {"80"}
    back(page)
    assert count(page) == "60 cases"


FOLLOW = """() => {
  const links = [...document.querySelectorAll("main a[href^='#?']:not(#table a, #pictures a)")].map((link) => {
    const cell = link.closest("td.n");
    return [link.hash, cell?.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent ?? "", link.textContent];
  });
  const counts = {};
  for (const [hash] of links) {
    if (hash in counts) continue;
    history.replaceState(null, "", hash);
    dispatchEvent(new Event("hashchange"));
    counts[hash] = parseInt(document.getElementById("count").textContent);
  }
  return links.map((link) => [...link, counts[link[0]]]);
}"""
BARE = """() => [...document.querySelectorAll("td.n[data-value]")]
    .filter((cell) => Number(cell.dataset.value) && !cell.querySelector("a"))
    .map((cell) => cell.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent)"""
COUNTS = ("cases", "failed", "undefined", "missed in cases", "false alarm in cases", "cases")


def test_every_link_opens_cases_and_every_count_as_many_as_it_says(visit, site):
    """Mutation seen to fail: the failures of a mean that are those of its first class."""
    links = visit(site).evaluate(FOLLOW)
    assert len(links) > 200
    assert not [link for link, _, _, found in links if not found]
    counts = [(link, int(text), found) for link, head, text, found in links if head in COUNTS]
    assert len(counts) > 50
    assert not [link for link, said, found in counts if said != found]
    assert set(visit(site).evaluate(BARE)) == {"p (Holm)"}, "every other figure of a table is of cases"


CLICK = """(found) => {
  const seen = () => [document.getElementById("case").open, document.getElementById("count").textContent].join();
  const before = seen();
  document.querySelector(found).dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
  return seen() !== before;
}"""
LINKS = (".largest a", "#histogram a", "[data-bars] a", "#table tbody a", ".tile")


@pytest.mark.parametrize("found", [*LINKS, "#table tbody td:nth-child(2)"])
def test_a_link_is_followed_before_the_next_key_arrives(visit, site, found):
    """Otherwise the page still shows what it did, and that takes the key: Enter and an arrow lost the arrow."""
    page = visit(site, "#?sort=id")
    assert page.evaluate(CLICK, found)


def test_a_link_with_ctrl_opens_a_tab_and_leaves_the_choice(visit, site):
    page = visit(site, "#?sort=id")
    with page.context.expect_page() as other:
        page.locator("#table tbody a").first.click(modifiers=["Control"])
    assert page.url.endswith("#?sort=id")
    other.value.locator("#case-title", has_text="case-00").wait_for()
    other.value.close()


def test_the_bars_hold_every_case_once_and_open_theirs(visit, site):
    def named():
        labels = [bar.get_attribute("aria-label") for bar in page.locator("#histogram a[aria-label]").all()]
        return [re.match(r"([\d.]+) to ([\d.]+): (\d+) case", label.replace(",", "")).groups() for label in labels]

    page = visit(site)
    low, high, wanted = named()[0]
    page.locator("#histogram a[aria-label]").first.click()
    assert count(page) == f"{wanted} of 60 cases"
    assert all(float(low) <= float(text) <= float(high) for text in column(page, "mean IoU"))
    for measure in ("loss", "IoU of tree", "pixels"):
        page.get_by_label("measure of the histogram").select_option(label=measure)
        assert sum(int(number) for *_, number in named()) == 60


def section(page, name):
    return page.locator("section").filter(has=page.locator(f"#{name}"))


def test_a_slice_opens_its_cases(visit, site):
    page = visit(site)
    row = section(page, "slices").get_by_role("row").filter(has=page.get_by_role("link", name="3", exact=True))
    row.get_by_role("link", name="10", exact=True).click()
    assert count(page) == "10 of 60 cases"
    back(page)
    section(page, "slices").get_by_role("link", name="3", exact=True).click()
    assert sorted(ids(page)) == [f"case-3{i}" for i in range(10)]
    assert page.get_by_label(TENS).input_value().endswith("=3")
    page.get_by_label(TENS).select_option("any " + TENS)
    assert count(page) == "60 cases"


def test_a_brush_over_the_plot_chooses_its_cases(visit, site):
    page = visit(site, "#?x=loss&y=pixels&sort=-loss")
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter").bounding_box()
    right, low = box["x"] + box["width"], box["y"] + 170
    drag(page, (right - box["width"] / 2, box["y"] + 5), (right - 3, low), (right + 37, low))  # out of the plot
    assert len(page.locator("#toolbar .chip:not(.clear)").all()) == 2
    assert int(count(page).split()[0]) in (29, 30, 31)
    assert ids(page)[0] == "case-59"


def test_a_click_on_a_point_opens_its_case(visit, site):
    """A click at the plot's edge, or by a hand that moves two pixels, is a click; a drag to another point isn't."""
    page = visit(site, "#?x=loss&y=loss")
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter").bounding_box()
    left, low = box["x"] + 1, box["y"] + box["height"] - 2
    for end in (left, left + 2):
        drag(page, (left, low), (end, low))
        assert "case=case-00" in page.url
        assert page.locator("#case-title").is_visible()
        page.keyboard.press("Escape")
        page.wait_for_function("!location.hash.includes('case=')")
    drag(page, (left, low), (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
    assert count(page) == "30 of 60 cases"
    assert not page.locator("#case").is_visible()


def test_axes_and_columns_are_the_readers_choice(visit, site):
    page = visit(site)
    page.get_by_label("x axis").select_option(label="loss")
    assert "x=loss" in page.url
    assert page.get_by_label("x axis").input_value() == "loss"
    page.locator(".chooser summary").click()
    page.get_by_label("target pixels of car").check()
    page.get_by_label("weakest class").last.uncheck()
    heads = page.locator("#table thead").text_content()
    assert "target pixels of car" in heads
    assert "weakest class" not in heads


LAMPS = [f"case-{i:02}" for i in range(0, 60, 5)]


def test_ids_are_copied_in_their_order_or_stand_in_a_dialog_where_the_clipboard_is_closed(visit, chromium, site):
    """A window without the permission, as a page that is opened from disk may be."""
    page = visit(site, "#?has=3&sort=id")
    page.click("#copy")
    page.locator("#said", has_text="12 ids copied").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()").split() == LAMPS
    window = chromium.new_context()
    page, said = window.new_page(), []
    page.on("dialog", lambda dialog: (said.append(dialog.default_value), dialog.dismiss()))
    page.goto(f"{site.as_uri()}#?has=3&sort=id")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('closed')); }")
    page.click("#copy")
    page.locator("#said", has_text="12 ids copied").wait_for(state="attached")
    window.close()
    assert said[0].split() == LAMPS


def test_what_is_chosen_is_saved_as_csv_in_which_no_name_is_a_formula(visit, site, hostile, tmp_path):
    def saved(page):
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "cases.csv")
        with (tmp_path / "cases.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    found = saved(visit(site, "#?has=3&sort=id"))
    assert [row["case"] for row in found] == LAMPS
    assert [float(row["loss"]) for row in found] == pytest.approx([0.1 * i for i in range(0, 60, 5)], rel=1e-4)
    names = {row["case"] for row in saved(visit(hostile))}
    assert "'=cmd()" in names
    assert not [name for name in names if name.startswith(("=", "+", "@"))]


def test_a_section_is_opened_without_losing_the_choice(visit, site):
    page = visit(site, "#cases", alone=True)
    assert count(page) == "60 cases"
    page.fill("#find", "CASE-37")
    assert ids(page) == ["case-37"]
    page.locator("nav").get_by_role("link", name="Classes").click()
    assert count(page) == "1 of 60 cases"
    assert page.evaluate("document.getElementById('classes').getBoundingClientRect().top") < 200
    page.keyboard.press("Tab")  # the keyboard goes on from there
    assert page.evaluate("document.activeElement.closest('section').querySelector('h2').id") == "classes"
