"""The report in a headless Chromium: bytes, time until it can be used, and how fast it answers.

    python benchmarks/report.py [--axe axe.min.js] [--pages FOLDER]

Pages of 10,000 cases of 19 classes, about 80 confused pairs of classes each, as a road-scene data set has. Times are
the median of several fresh pages, from the start of the navigation to the end of the page's script. With axe-core's
script the page's accessibility is checked too, light and dark. Pages that a FOLDER holds already are not made again, so
that the minutes of a quiet machine are for the browser alone.
"""

import argparse
import json
import re
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from record import RESULTS, circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.html import write_report
from segmeter.report.pictures.layers import draw_layers, write_layers

CLASSES = 19
VISITS = 7
SPEC = ClassSpec(
    task="multiclass",
    names=tuple(f"class {k}" for k in range(CLASSES)),
    colours=tuple((13 * k % 256, 101 * k % 256, 59 * k % 256) for k in range(CLASSES)),
    ignore_index=255,
)


def build(folder: Path, cases: int, pictures: int) -> Path:
    """Write a run of random counts, and noisy pictures of blocks, more than fit, and its page."""
    if (folder / "report.html").is_file():
        return folder / "report.html"
    rng = np.random.default_rng(11)
    rows = []
    for start in range(0, cases, 1000):
        size = min(1000, cases - start)
        present = rng.random((size, CLASSES)) < 0.6
        both = present[:, :, None] & present[:, None, :]
        counts = rng.lognormal(4, 2, (size, CLASSES, CLASSES)) * (rng.random((size, CLASSES, CLASSES)) < 0.6) * both
        counts[:, range(CLASSES), range(CLASSES)] = rng.lognormal(9, 2, (size, CLASSES)) * present
        for i, table in enumerate(counts.astype(np.int64), start):
            name = f"town_{i // 100:03}/scene_{i:06}"
            rows.append(CaseRow(case_id=name, height=1024, width=2048, counts=table, loss=float(rng.random())))
    folder.mkdir(parents=True)
    write_cases(folder, rows, SPEC)
    write_json(folder / "metrics.json", summarise(rows, SPEC, MetricsConfig(bootstrap=0)))
    blocks = rng.integers(0, CLASSES, (2, 16, 32)).astype(np.uint8).repeat(64, 1).repeat(64, 2)
    for i in range(pictures):
        target, labels = (np.roll(each, 37 * i, 1) for each in blocks)
        image = np.repeat(target[..., None] * 7, 3, -1) + rng.integers(0, 120, (1024, 2048, 3)).astype(np.uint8)
        write_layers(folder, rows[i].case_id, draw_layers(image, target, labels, SPEC, edge=480))
    return write_report(folder)


def visit(browser: Browser, path: Path, scheme: Literal["light", "dark"] = "light") -> tuple[Page, float]:
    """Open a page afresh; the milliseconds until it could be used."""
    page = browser.new_context(viewport={"width": 1300, "height": 900}, color_scheme=scheme).new_page()
    page.goto(path.as_uri())
    page.locator("html[data-ready=yes]").wait_for(state="attached")
    return page, float(page.evaluate("performance.getEntriesByName('ready')[0].startTime"))


def answers(page: Page) -> dict[str, float]:
    """Milliseconds of script for one search, one sorting, and one class, each with the whole page redrawn."""
    timed = """(state) => { const start = performance.now(); history.replaceState(null, '', state);
        dispatchEvent(new Event('hashchange')); document.body.offsetHeight; return performance.now() - start; }"""
    states = {"search": "#?q=005432", "sort": "#?sort=-mean_dice", "class": "#?has=3", "cell": "#?cell=3.4"}
    return {name: round(page.evaluate(timed, state), 1) for name, state in states.items()}


def accessibility(page: Page, axe: Path) -> dict[str, list[str]]:
    """Findings of axe-core by impact, of the page and with a case open."""
    page.evaluate(axe.read_text("utf-8"))
    found: dict[str, list[str]] = {}
    for opened in (False, True):
        if opened:
            page.locator("#table tbody a").first.click()
        for violation in page.evaluate("axe.run()")["violations"]:
            where = f"{violation['id']}: {violation['nodes'][0]['target']}"
            found.setdefault(violation["impact"], []).append(where)
    return found


def measure(folder: Path, axe: Path | None) -> dict[str, Any]:
    large = build(folder / "large", 10_000, 0)
    pictured = build(folder / "pictured", 5_000, 200)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        ready = {}
        for name, path in {"10,000 cases": large, "5,000 cases with all the pictures that fit": pictured}.items():
            times = [visit(browser, path)[1] for _ in range(VISITS)]
            ready[name] = {"median": round(statistics.median(times)), "all": [round(each) for each in times]}
        page, _ = visit(browser, large)
        found: dict[str, Any] = {
            "chromium": browser.version,
            "milliseconds_to_interactive": ready,
            "milliseconds_to_answer": answers(page),
            "megabytes": {path.parent.name: round(path.stat().st_size / 2**20, 2) for path in (large, pictured)},
        }
        page, _ = visit(browser, large)
        page.fill("#find", "town_077/scene_007700")
        found["found_in_one_search"] = page.locator("#count").text_content()
        found["printed_pages"] = {
            path.parent.name: len(re.findall(rb"/Type\s*/Page\b", visit(browser, path)[0].pdf(format="A4")))
            for path in (large, pictured)
        }
        if axe:
            schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
            found["axe"] = {each: accessibility(visit(browser, pictured, each)[0], axe) for each in schemes}
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "report.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.pages or Path(folder), options.axe)
    write_record(options.out, circumstances("playwright") | {"cases": 10_000, "classes": CLASSES} | found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
