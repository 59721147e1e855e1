"""What a page shows, read as a reader would."""

import io

import numpy as np
from PIL import Image

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


def pixels(page, selector):
    """A picture of an element, (H, W, 3), once its images are there."""
    page.locator(selector).locator("img").evaluate_all(DECODED)
    return np.asarray(Image.open(io.BytesIO(page.locator(selector).screenshot())).convert("RGB")).astype(int)


def near(picture, row, column):
    """The colour at shares of height and width."""
    return picture[int(row * picture.shape[0]), int(column * picture.shape[1])]
