"""Draw docs/images/report-*.png: pages of a report as a reader sees them, in a headless Chromium.

    python docs/draw_reports.py cases=RUN/report.html#cases case='RUN/report.html#?case=ID' compare=RUN/compare.html

Each argument is the name of a picture and a page, with the state of the page after "#", or after "@" a part of the page
by its selector: batch=RUN/report.html@.batch. Give pages of the built-in data, whose pictures anyone may show, or of
drawn_runs.py.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
SIZE = {"width": 1200, "height": 860}


def draw(name: str, page: str) -> Path:
    """Take one picture. All its colours are kept, as a palette of 256 changed those of legends."""
    page, _, part = page.partition("@")
    path, mark, state = page.partition("#")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport=SIZE)
        view.goto(Path(path).resolve().as_uri() + mark + state)
        view.locator("html[data-ready=yes]").wait_for(state="attached")
        view.wait_for_timeout(500)  # pictures are decoded
        shot = view.locator(part).screenshot() if part else view.screenshot()
        taken = Image.open(io.BytesIO(shot)).convert("RGB")
        browser.close()
    target = IMAGES / f"report-{name}.png"
    taken.save(target, optimize=True)
    return target


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        name, _, page = argument.partition("=")
        found = draw(name, page)
        sys.stdout.write(f"{found}: {found.stat().st_size / 1000:.0f} kB\n")
