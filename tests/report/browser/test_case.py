"""One case: its layers, keys, zoom, and what is known of it."""

import re

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report
from segmeter.report.pictures.chosen import Ranking
from segmeter.report.pictures.finished import DrawnCase, draw_run
from segmeter.report.pictures.layers import LONGEST, draw_layers, write_layers
from tests.metrics.build import case_row

from ..conftest import write_run
from .looks import back, drag, ids, near, pixels

pytestmark = pytest.mark.slow

CASE = "#?case=case-12"  # of draw_case: tree, and a car that is predicted as tree


def filters(page):
    values = "nodes => nodes.map((node) => node.getAttribute('tableValues'))"
    return page.locator("#filters feFuncA[tableValues]").evaluate_all(values)


ZOOMS = """nodes => nodes.map((node) => {
  const [world, stage] = [node, node.parentElement].map((each) => each.getBoundingClientRect());
  const found = [world.width / stage.width, world.left - stage.left, world.top - stage.top];
  return found.map((each) => Number(each.toFixed(2)));
})"""


def scales(page):
    """How much each panel is enlarged, and where its picture begins."""
    return [tuple(found) for found in page.locator("#case .world").evaluate_all(ZOOMS)]


def test_a_row_opens_its_case_and_back_closes_it(visit, site):
    page = visit(site)
    page.locator("#table tbody tr[data-case]").nth(2).click(position={"x": 400, "y": 10})
    title = page.locator("#case-title").text_content()
    assert title == ids(page)[2]
    assert page.locator("#case-place").text_content() == "case 3 of 60"
    back(page)
    page.locator("#case").wait_for(state="hidden")


def test_the_keyboard_walks_the_table_and_opens_a_case(visit, site):
    page = visit(site, "#?sort=-loss")
    page.locator("#table tr[data-place='0'] a").focus()
    for key in ("PageDown", "PageDown", "PageDown", "ArrowDown", "ArrowDown", "ArrowUp"):  # to rows not yet drawn
        page.keyboard.press(key)
    box, row = (page.locator(found).bounding_box() for found in (".rows", "#table tr[data-place='31']"))
    assert box["y"] <= row["y"] <= box["y"] + box["height"] - row["height"]  # it is seen
    page.keyboard.press("Enter")
    assert page.locator("#case-title").text_content() == "case-28"


def test_arrows_go_to_the_neighbours_in_the_choice(visit, site):
    page = visit(site, "#?has=3&sort=id&case=case-05")
    page.keyboard.press("ArrowRight")
    assert page.locator("#case-title").text_content() == "case-10"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # the first: stays
    assert page.locator("#case-title").text_content() == "case-00"
    assert page.locator("#previous").is_disabled()
    page.click("#next")
    assert page.locator("#case-title").text_content() == "case-05"


def test_layers_are_toggled_by_click_and_key_and_hidden_while_h_is_held(visit, site):
    page = visit(site, CASE, alone=True)
    page.get_by_role("button", name="target", exact=True).click()
    assert page.locator("#case .pane.target").is_hidden()
    page.keyboard.press("2")
    assert page.locator("#case .pane.target").is_visible()
    page.keyboard.press("4")
    assert page.locator("#case .pane.errors").is_hidden()
    before = filters(page)
    page.keyboard.down("h")
    assert filters(page) != before
    page.keyboard.up("h")
    assert filters(page) == before


def check_colours(page, role, wanted, tolerance=3):
    """Compare the colours of a panel at places given in pixels of the case."""
    height, width, *places = wanted
    picture = pixels(page, f"#case .pane.{role} .stage")
    for row, left, colour in places:
        np.testing.assert_allclose(near(picture, row / height, left / width), colour, atol=tolerance)


GREEN, RED = (0, 200, 0), (200, 0, 0)


def test_classes_have_their_colours_where_they_are_and_are_hidden_by_their_chips(visit, site, linked):
    page = visit(site, CASE, alone=True)
    page.locator("#opacity").fill("1")
    check_colours(page, "target", (24, 32, (9, 9, GREEN), (16, 23, RED)))
    check_colours(page, "prediction", (24, 32, (16, 23, GREEN)))
    check_colours(page, "errors", (24, 32, (16, 23, (255, 196, 0))))  # another class
    page.get_by_role("button", name="car", exact=True).click()
    assert np.ptp(near(pixels(page, "#case .pane.target .stage"), 16 / 24, 23 / 32)) < 8  # the grey image
    check_colours(page, "target", (24, 32, (9, 9, GREEN)))
    page.get_by_role("button", name="car", exact=True).click()
    check_colours(page, "target", (24, 32, (16, 23, RED)))
    page = visit(linked, CASE, alone=True)  # whose pictures lie beside the page
    page.locator("#opacity").fill("1")
    assert page.locator("#case img").first.get_attribute("src").startswith("pictures/")
    check_colours(page, "target", (24, 32, (16, 23, RED)))


def test_panels_zoom_in_step_and_fit_again_and_a_drag_moves_all_but_not_past_their_edge(visit, site):
    page = visit(site, CASE)
    page.locator("#case .pane.target .stage").hover()
    page.mouse.wheel(0, -300)
    page.wait_for_function("view.scale === 1.2")
    assert len(set(scales(page))) == 1
    page.keyboard.press("+")
    assert scales(page)[0][0] == 1.8
    page.keyboard.press("-")
    assert scales(page)[0][0] == 1.2
    page.keyboard.press("0")
    assert set(scales(page)) == {(1, 0, 0)}
    for _ in range(3):
        page.click("#zoom-in")
    box = page.locator("#case .pane.image .stage").bounding_box()
    before = scales(page)
    drag(page, (box["x"] + 100, box["y"] + 60), (box["x"] + 140, box["y"] + 80))
    assert scales(page) != before
    assert len(set(scales(page))) == 1
    drag(page, (box["x"] + 10, box["y"] + 10), (box["x"] + 2000, box["y"] + 2000))
    assert scales(page)[0][1:] == (0, 0)


def test_all_that_is_known_of_a_case_is_there_and_why_it_has_no_picture(visit, site, rows):
    page = visit(site, CASE)
    facts = page.locator(".case-facts").text_content()
    assert "prediction: case-12.png" in facts
    assert "24 × 32" in facts  # noqa: RUF001
    row = page.get_by_role("row").filter(has_text=re.compile("^tree"))
    counts = rows[12].counts
    overlap = counts[1, 1] / (counts[1].sum() + counts[:, 1].sum() - counts[1, 1])
    assert f"{overlap:.4f}" in row.last.text_content()
    page = visit(site, "#?case=case-50")
    assert "This case has no picture" in page.locator("#case").text_content()
    assert page.locator(".tools").is_hidden()


def test_small_pictures_follow_the_choice_and_open_their_cases(visit, site):
    page = visit(site, "#?q=case-1&sort=id", alone=True)
    assert page.locator(".tile .name").all_text_contents() == [f"case-1{i}" for i in range(6)]
    page.fill("#find", "case-5")
    assert "None of these cases has a picture" in page.locator("#pictures").text_content()
    page.fill("#find", "")
    assert len(page.locator(".tile").all()) == 6
    page.get_by_role("button", name=re.compile("^show 14 more of 20")).click()
    assert len(page.locator(".tile").all()) == 20
    page.get_by_role("heading", name="pictures of the").get_by_role("combobox").select_option("prediction")
    page.locator(".tile").last.click()
    assert page.locator("#case-title").text_content() == page.locator(".tile .name").last.text_content()


def test_labels_that_overlap_lie_over_each_other(visit, multilabel):
    page = visit(multilabel, "#?case=case-0", alone=True)
    page.locator("#opacity").fill("1")
    check_colours(page, "target", (24, 32, (12, 5, (250, 0, 0)), (12, 16, (0, 0, 250))))
    page.get_by_role("button", name="blue", exact=True).click()
    check_colours(page, "target", (24, 32, (12, 16, (250, 0, 0))))
    assert "slice 3 of 9" in page.locator(".about").text_content()
    assert "9 × 24 × 32" in page.locator(".case-facts").text_content()  # noqa: RUF001


def test_each_object_has_an_outline_by_what_became_of_it(visit, numbered):
    page = visit(numbered, "#?case=a", alone=True)
    page.locator("#opacity").fill("1")
    matched, missed, false = (60, 200, 110), (255, 66, 140), (64, 156, 255)
    touching = ((12.5, 11.5, matched), (12.5, 12.5, missed), (12.5, 6.5, RED))  # inside it is the class
    check_colours(page, "target", (24, 32, *touching), tolerance=6)
    check_colours(page, "prediction", (24, 32, (12.5, 11.5, matched), (6.5, 25.5, false)), tolerance=6)
    legend = page.locator("#case .chips").text_content()
    assert "1 matched (IoU above 0.5)" in legend
    assert "1 missed" in legend
    assert "ignored" not in legend  # as nothing is


CELLS = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (200, 0, 0)))


def case_page(folder, counts, layers, **parts):
    """Write a run with one case, and its page; also give the state that opens it."""
    write_run(folder, [case_row("a", counts)], CELLS)
    write_layers(folder, "a", layers, **parts)
    return write_report(folder), "#?case=a"


def tone(page):
    """The filters of the image: brightness, contrast, and the bend of its gamma."""
    style = page.locator("#case .base.image").first.get_attribute("style")
    return [float(part) for part in re.findall(r"(?:brightness|contrast)\(([\d.]+)\)", style)], "gamma-curve" in style


def test_contrast_and_gamma_of_the_image_are_the_readers(visit, tmp_path):
    """Dim images are stretched from the start."""
    labels = np.zeros((400, 640), np.uint8)
    labels[200] = 1  # a line that is one pixel wide
    image = np.full((400, 640, 1), 10, np.uint8)
    image[100:300] = 30
    counts = [[400 * 640 - 640, 0], [0, 640]]
    page = visit(*case_page(tmp_path, counts, draw_layers(image, labels, labels, CELLS)))
    assert page.locator("#auto-contrast").is_checked()
    (brightness, contrast), bent = tone(page)
    stretched = [contrast * (brightness * value / 255 - 0.5) + 0.5 for value in (10, 20, 30)]
    np.testing.assert_allclose(stretched, (0, 0.5, 1), atol=1e-3)
    assert not bent
    page.locator("#auto-contrast").uncheck()
    page.locator("#contrast").fill("2")
    assert tone(page) == ([4, 1], False)
    page.locator("#gamma").fill("1")
    assert tone(page)[1]
    assert page.locator("#gamma-curve feFuncG").get_attribute("exponent") == "0.5"
    assert "400 × 640 pixels" in page.locator(".about").text_content()  # noqa: RUF001
    seen = "nodes => nodes.map((node) => getComputedStyle(node).visibility)"
    maps, reduced = page.locator("#case .map:not(.reduced)"), page.locator("#case .map.reduced")
    assert set(reduced.evaluate_all(seen)) == {"visible"}  # three panels are narrower than the case
    assert set(maps.evaluate_all(seen)) == {"hidden"}
    for _ in range(4):
        page.click("#zoom-in")
    assert set(maps.evaluate_all(seen)) == {"visible"}
    assert set(reduced.evaluate_all(seen)) == {"hidden"}


def test_zooming_in_shows_the_own_pixels_of_a_large_case(visit, tmp_path):
    """Black and white pixels by turns, which are grey in the overview."""
    image = np.zeros((800, 2000, 1), np.uint8)
    image[:, ::2] = 255
    target = np.zeros((800, 2000), np.uint8)
    labels = target.copy()
    labels[398:403, 998:1003] = 1  # around the middle
    layers, counts = draw_layers(image, target, labels, CELLS), [[1_600_000 - 25, 25], [0, 0]]
    page = visit(*case_page(tmp_path, counts, layers.reduce(LONGEST), tiles=layers.cut(labels != target)))
    assert "800 × 2000 pixels, reduced to 614 × 1536; zooming in" in page.locator(".about").text_content()  # noqa: RUF001
    assert not page.locator("#case .tile-of").count()  # none before the reader zooms in
    for _ in range(11):
        page.click("#zoom-in")
    picture = pixels(page, "#case .pane.image .stage")
    assert np.isin(picture[len(picture) // 2], (0, 255)).mean() > 0.95  # a pixel may begin within one of the screen
    toned = "images => new Set(images.map((image) => image.style.filter)).size"
    assert page.locator("#case .pane.image .base").evaluate_all(toned) == 1, "tiles have the tone of the overview"
    picture = pixels(page, "#case .pane.errors .stage")
    middle = picture[len(picture) // 2]
    found = (middle[:, 2] - middle[:, 0] > 50).mean() * page.locator("#case .stage").first.bounding_box()["width"]
    pixel = page.locator("#case .world").first.bounding_box()["width"] / 2000
    assert round(found / pixel) == 5


def test_a_slider_scrolls_through_the_planes_from_the_worst_on(visit, tmp_path):
    target = np.zeros((40, 30, 40), np.uint8)
    target[8:32, 8:22, 10:30] = 1
    labels = target.copy()
    labels[30, 8:22, 10:16] = 0
    image = (target * 120 + np.arange(40, dtype=np.uint8)[:, None, None])[..., None]
    write_run(tmp_path, [case_row("a", [[60000, 0], [84, 6636]])], CELLS)
    case = DrawnCase(image=image, target=target, labels=labels)
    draw_run(tmp_path, Ranking(case_ids=["a"], worst=["a"]), lambda name: case, ReportConfig(), CELLS)
    page = visit(write_report(tmp_path), "#?case=a", alone=True)
    about, plane = page.locator(".about"), page.locator("#plane")
    assert "slice 31 of 40, the one with the most wrong pixels" in about.text_content()
    assert plane.get_attribute("max") == "17", "17 along the axis, and the worst"
    source = page.locator("#case img.base.image").get_attribute("src")
    plane.fill("0")
    assert "slice 1 of 40 ·" in about.text_content()
    assert page.locator("#case img.base.image").get_attribute("src") != source
    plane.focus()
    for _ in range(17):
        page.keyboard.press("ArrowRight")
    assert "slice 40 of 40 ·" in about.text_content()
