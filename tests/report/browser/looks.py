"""The runs whose pages are clicked in, and an open page, read as a reader would."""

import io

import numpy as np
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.metrics.config.measures import ErrorTypesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.pictures.layers import draw_layers, write_layers

from ..conftest import row_of, write_run

# Once what the browser itself decides is drawn: sizes and colour schemes reach a page with its next frame.
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
BACK = """() => new Promise((done) => {
  addEventListener("hashchange", () => done(), {once: true});
  history.back();
})"""
DECODED = "images => Promise.all(images.map((image) => image.decode()))"


def back(page):
    """Press the browser's back button and wait until the page has followed."""
    page.evaluate(BACK)


def ids(page):
    return page.locator("#table tbody a").all_text_contents()


def count(page):
    return page.locator("#count").text_content()


def column(page, title):
    """Texts of a column of the table, of the rows that are seen."""
    heads = [text.strip() for text in page.locator("#table thead th").all_text_contents()]
    return page.locator(f"#table tbody tr[data-case] td:nth-child({heads.index(title) + 1})").all_text_contents()


def drag(page, start, *places):
    """Press the mouse at a place of the window, and let it go at the last of the others."""
    page.mouse.move(*start)
    page.mouse.down()
    for place in places:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


def pixels(page, selector):
    """A picture of an element, (H, W, 3), once its images are there."""
    page.locator(selector).locator("img").evaluate_all(DECODED)
    return np.asarray(Image.open(io.BytesIO(page.locator(selector).screenshot())).convert("RGB")).astype(int)


def near(picture, row, column):
    """The colour at shares of height and width."""
    return picture[int(row * picture.shape[0]), int(column * picture.shape[1])]


class Tab:
    """An open page, and what went wrong in it: scripts that failed, and what was refused or said in a dialog."""

    def __init__(self, window, address, *, refused):
        self.page, self.faults = window.new_page(), []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.log(said) if said.type == "error" and not refused else None)
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.goto(address)
        if self.page.locator("#data, #history").count():  # which a script shows
            self.page.locator("html[data-ready=yes]").wait_for(state="attached")
        self.page.evaluate(FRAME)

    def log(self, said):
        self.faults.append(said.text)

    def choose(self, state):
        """Show another choice of cases without loading the page anew, as a link does."""
        self.page.bring_to_front()  # a browser draws and answers slowly what is behind
        self.page.evaluate(CHOOSE, state or "#?")
        self.page.evaluate(FRAME)

    def left(self):
        """What a test has changed that the address does not hold."""
        return [name for name, changed in self.page.evaluate(LEFT).items() if changed]


CHOOSE = """(state) => {
  const go = (link) => (history.replaceState(null, "", link), dispatchEvent(new Event("hashchange")));
  if (document.querySelector("dialog[open]")) go("#?");
  document.activeElement?.blur();
  for (const details of document.querySelectorAll("details[open]")) details.open = false;
  for (const input of document.querySelectorAll("input.end")) input.value = "";
  scrollTo(0, 0);
  go(state);
  document.querySelector(".rows")?.scrollTo(0, 0);
}"""
LEFT = """() => {
  const has = (found) => document.querySelector(found) !== null;
  const seen = typeof view === "undefined" ? null : view;
  return {
    opacity: seen && seen.opacity !== 0.6, classes: seen && seen.hidden.size > 0,
    layers: has("#case .roles [aria-pressed=false]"), pictures: has(".tile:nth-child(7)"),
    tables: has("table.sortable th[aria-sort]"), lines: has(".chart .chip[aria-pressed=false]"),
  };
}"""


NAMES = ("ground", "tree", "car", "lamp")
COLOURS = ((0, 0, 0), (0, 200, 0), (200, 0, 0), (0, 0, 200))
SPEC = ClassSpec(task="multiclass", names=NAMES, colours=COLOURS, ignore_index=255)
NAME = "<img src=x onerror=alert(8)>"  # of a class
TENS = r"-(\d)"  # slices of ten cases each


def draw_case(rng, i):
    """A target with a car in every second case and a lamp in every fifth, and a prediction that gets worse with i."""
    target = np.zeros((24, 32), np.uint8)
    target[4:14, 2:16] = 1
    if i % 2 == 0:
        target[12:20, 18:28] = 2
    if i % 5 == 0:
        target[1:5, 26:30] = 3
    target[23] = 255
    labels = target.copy()
    labels[4 : 4 + i // 6, 2:16] = 0
    if i % 4 == 0:
        labels[labels == 2] = 1
    if i % 10 == 0:
        labels[labels == 3] = 0
    image = np.clip(target[..., None] * 40 + 60 + rng.normal(0, 8, (24, 32, 3)), 0, 255).astype(np.uint8)
    return image, target, labels


def make_run(folder, ids, spec=SPEC, pictured=20, **options):
    rng = np.random.default_rng(7)
    config = MetricsConfig(bootstrap=20, measures=(SurfaceConfig(), ErrorTypesConfig()), **options)
    rows = []
    for i, case_id in enumerate(ids):
        image, target, labels = draw_case(rng, i)
        rows.append(row_of(case_id, target, labels, spec, config, loss=0.1 * i))
        if i < pictured:
            notes = {"files": {"prediction": [f"{case_id}.png"]}}
            write_layers(folder, case_id, draw_layers(image, target, labels, spec, edge=128, notes=notes))
    write_run(folder, rows, spec, config)
    return rows
