"""Photograph pages of reports at the widths of a phone and a screen, light and dark, to look at them.

    python docs/drawn_runs.py RUNS
    python docs/look_at_reports.py RUNS PICTURES [NAME ...]

Each page below RUNS, or in a named folder, is photographed from top to bottom, with one of its cases. Both widths go on
one sheet, NAME-sheet-light.png and NAME-sheet-dark.png, with long pages folded into columns.
"""

import argparse
import itertools
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

PAGES = ("report.html", "compare.html", "index.html", "sweep.html")
WIDTHS = {"phone": 360, "screen": 1300}
TALLEST = 6000  # pixels of a page
HEIGHT = 900
SHEET = 1500  # pixels of the height of a sheet
SHARES = {"phone": 0.72, "screen": 0.5}  # of its size that a picture has on a sheet


def shoot(browser: Browser, path: Path, name: str, folder: Path) -> None:
    """Take the pictures of one page."""
    for (kind, width), scheme in itertools.product(WIDTHS.items(), ("light", "dark")):
        context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_timeout(700)  # pictures are decoded
        too_wide = page.evaluate("document.documentElement.scrollWidth") > width
        if too_wide:
            sys.stdout.write(f"{name} at {width}: wider than the screen\n")
        take(page, folder / f"{name}-{kind}-{scheme}.png", width=width, of="html")
        case = page.locator(".tile" if page.locator(".tile").count() else "#table tbody a")
        if case.count():
            case.first.click()
            page.wait_for_timeout(300)
            take(page, folder / f"{name}-case-{kind}-{scheme}.png", width=width, of="dialog")
        context.close()
    for scheme in ("light", "dark"):
        sheet(folder, name, scheme).save(folder / f"{name}-sheet-{scheme}.png")


def sheet(folder: Path, name: str, scheme: str) -> Image.Image:
    """Return the pictures of a page beside each other, from top to bottom in columns."""
    columns = []
    for part, kind in itertools.product(("", "-case"), WIDTHS):
        path = folder / f"{name}{part}-{kind}-{scheme}.png"
        if path.is_file():
            with Image.open(path) as shot:
                small = shot.convert("RGB").resize([round(SHARES[kind] * side) for side in shot.size], Image.LANCZOS)
            columns += [small.crop((0, top, small.width, top + SHEET)) for top in range(0, small.height, SHEET)]
    whole = Image.new("RGB", (sum(column.width + 8 for column in columns), SHEET), "grey")
    left = 0
    for column in columns:
        whole.paste(column, (left, 0))
        left += column.width + 8
    return whole


def take(page: Page, path: Path, *, width: int, of: str) -> None:
    """Take all of an element in a window as high as it is, as pictures are loaded when they come into view."""
    height = min(TALLEST, max(HEIGHT, page.evaluate(f"document.querySelector('{of}').scrollHeight")))
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(500)
    page.screenshot(path=path)
    page.set_viewport_size({"width": width, "height": HEIGHT})


def main(root: Path, folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pages = [path for name in PAGES for path in sorted(root.rglob(name))]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for path in pages:
            name = path.parent.name if path.parent != root else "index"
            if not names or name in names:
                shoot(browser, path, name, folder)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("name", nargs="*")
    given = parser.parse_args()
    main(given.runs, given.pictures, given.name)
