"""A real Chromium and pages to click in; without a Chromium these tests are skipped, and say so."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.sweep import SweepJob, write_sweep
from segmeter.evaluation.compare import compare
from segmeter.files import write_json
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import multilabel_counts
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_index, write_report
from segmeter.report.pictures.layers import draw_layers, write_layers
from segmeter.report.pictures.objects import Objects

from ..conftest import HOSTILE, HOSTILE_IDS, row_of, write_run
from .looks import COLOURS, NAME, SPEC, TENS, Tab, draw_case, make_run


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine; .ci/run installs one")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def windows(chromium):
    """Windows by width, each opened once: a page in one is a tab, which opens faster."""
    permissions = ["clipboard-read", "clipboard-write"]
    return cache(lambda width: chromium.new_context(viewport={"width": width, "height": 900}, permissions=permissions))


@pytest.fixture(scope="session")
def tabs():
    """Pages that stay open from test to test, by path and width."""
    return {}


@pytest.fixture
def visit(windows, tabs):
    """Show a page at a state; at the end no script may have failed, and nothing been refused or said in a dialog.

    A page stays open for the next test, unless a test wants it `alone`, as it changes what the address does not hold.
    """
    used = []

    def visit(path: Path, state: str = "", *, width: int = 1300, alone: bool = False, refused: bool = False):
        key = None if alone else (path, width)
        if key in tabs:
            tabs[key].choose(state)
            tab = tabs[key]
        else:
            tab = Tab(windows(width), path.as_uri() + state, refused=refused)
        used.append((key, tab))
        if key:
            tabs[key] = tab
        return tab.page

    yield visit
    for key, tab in used:
        left = [] if key is None else tab.left()
        if key is None or left or tab.faults:
            tabs.pop(key, None)
            tab.page.close()
        assert not tab.faults
        assert not left, "the test changes what the address does not hold: visit(..., alone=True)"


@pytest.fixture(scope="session")
def run_rows(tmp_path_factory):
    """A run of 60 cases, the first 20 with pictures: its folder and its rows."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    ids = [f"case-{i:02}" for i in range(60)]
    return folder, make_run(folder, ids, groups={"things": ("car", "lamp")}, slice_by=(TENS,))


@pytest.fixture(scope="session")
def rows(run_rows):
    return run_rows[1]


@pytest.fixture(scope="session")
def site(run_rows):
    return write_report(run_rows[0])


@pytest.fixture(scope="session")
def linked(run_rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("linked") / "run"
    shutil.copytree(run_rows[0], folder)
    return write_report(folder, ReportConfig(pictures="link"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    names = (*HOSTILE[:2], "{{7*7}}", "\u202egnp.exe")
    folder = tmp_path_factory.mktemp("hostile") / '"><img src=x onerror=alert(9)>'
    make_run(folder, HOSTILE_IDS, ClassSpec(task="multiclass", names=names, colours=COLOURS, ignore_index=255))
    return write_report(folder)


def write_tables(root, names, tables, pixels):
    """A run of cases of so many pixels with these matrices."""
    spec = ClassSpec(task="multiclass", names=tuple(names), colours=((9, 99, 9),) * len(names))
    sides = dict(zip(("height", "width"), pixels, strict=True))
    rows = [CaseRow(case_id=f"case-{i}", counts=table, **sides) for i, table in enumerate(tables)]
    write_run(root / "run", rows, spec)
    return root / "run", spec


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """10,000 cases of 19 classes."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(3, (10_000, 19, 19)) * (rng.random((10_000, 19, 19)) < 0.1)
    counts[:, range(19), range(19)] = rng.integers(0, 900, (10_000, 19))
    names = [f"class {k}" for k in range(19)]
    return write_report(write_tables(tmp_path_factory.mktemp("large"), names, counts, (100, 100))[0])


@pytest.fixture(scope="session")
def named(tmp_path_factory):
    """1200 large cases whose classes have names of 22 letters."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 100_000, (1200, 12, 12)) * (rng.random((1200, 12, 12)) < 0.3)
    counts[:, range(12), range(12)] = rng.integers(0, 1_500_000, (1200, 12))
    names = [f"Kraftfahrzeuganhaeng{k:02}" for k in range(12)]
    return write_report(write_tables(tmp_path_factory.mktemp("named"), names, counts, (4000, 4000))[0])


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """Three cases of 120 classes with long names; a tenth of each class is predicted as another one."""
    names = [f"{k} broad-leaved woodland of kind {k}" for k in range(120)]
    counts = 90 * np.eye(120, dtype=np.int64) + 10 * np.roll(np.eye(120, dtype=np.int64), 40, axis=1)
    folder, spec = write_tables(tmp_path_factory.mktemp("many"), names, [counts] * 3, (100, 120))
    labels, image = np.arange(120, dtype=np.uint8).reshape(10, 12), np.full((10, 12, 3), 90, np.uint8)
    write_layers(folder, "case-0", draw_layers(image, labels, labels[::-1], spec, edge=128))
    return write_report(folder)


@pytest.fixture(scope="session")
def compared(run_rows, tmp_path_factory):
    """The run of 60 cases against two in which every third case, and every case, predicts what the target holds."""
    root = tmp_path_factory.mktemp("compared")
    folders = [root / "old", root / "perfect", root / "third"]
    shutil.copytree(run_rows[0], folders[0])
    for folder, every in zip(folders[1:], (1, 3), strict=True):
        rows = [replace(row, measured=()) for row in run_rows[1]]
        for i in range(0, 60, every):
            rows[i] = replace(rows[i], counts=np.diag(rows[i].counts.sum(axis=1)), loss=0.0)
        write_run(folder, rows, SPEC, MetricsConfig(bootstrap=20))
        for i in range(5):
            image, target, _ = draw_case(np.random.default_rng(7), i)
            write_layers(folder, f"case-{i:02}", draw_layers(image, target, target, SPEC, edge=128))
    result = compare(folders, MetricsConfig(bootstrap=20, slice_by=(TENS,)))
    (root / "comparison").mkdir()
    write_json(root / "comparison" / "compare.json", result)
    return write_report(root / "comparison")


@pytest.fixture(scope="session")
def multilabel(tmp_path_factory):
    rng = np.random.default_rng(5)
    spec = ClassSpec(task="multilabel", names=("red", "blue"), colours=((250, 0, 0), (0, 0, 250)))
    folder, rows = tmp_path_factory.mktemp("multilabel") / "run", []
    for i in range(4):
        target = np.zeros((2, 24, 32), np.uint8)
        target[0, 2:20, 2:20], target[1, 2:20, 12:30] = 1, 1
        labels = np.roll(target, i, 2)
        image = rng.integers(90, 110, (24, 32, 1)).astype(np.uint8)
        counts = multilabel_counts(target, labels)
        rows.append(CaseRow(case_id=f"case-{i}", height=24, width=32, depth=9, counts=counts))
        notes = {"slice": [3, 9]}
        write_layers(folder, f"case-{i}", draw_layers(image, target, labels, spec, edge=128, notes=notes))
    write_run(folder, rows, spec)
    return write_report(folder)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    rows = []
    for step in range(1, 101):
        rows.append({"step": step, "epoch": step / 10, "loss": 1 / step, "lr": 0.1, "seconds": 2.0 * step})
        if step % 20 == 0:
            score = {"mean_iou": 0.9 - abs(step - 60) / 100, f"iou/{NAME}": 0.5, "iou/car": 0.25}
            rows.append({"step": step, "val": score | {"loss": 0.5}, "best": step <= 60, "seconds": 2.0 * step})
            for case, grey in (("a", step), ("b", 200)):
                place = folder / "validation" / f"step-{step:08}"
                place.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.full((20, 60, 3), grey, np.uint8)).save(place / f"{case}.png")
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(folder / "first_batch.png")
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_report(folder)


@pytest.fixture(scope="session")
def index(tmp_path_factory, run_rows, site):
    """An index of three runs, one of which has a hostile name."""
    root = tmp_path_factory.mktemp("index")
    for name in ("eval/one", "eval/<img src=x onerror=alert(7)>", "score/three"):
        shutil.copytree(run_rows[0], root / name)
    return write_index(root)


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """Jobs of a sweep, one of which was stopped; the first two have a report."""
    folder = tmp_path_factory.mktemp("sweep")
    jobs = []
    for number, gamma in enumerate(("1e-05", "10", "0.5", "3x", "inf", "20", "1e3", "-inf", "2x")):
        settings, name = {"loss.gamma": gamma, "loss.name": NAME}, f"{number}_gamma-{gamma}"
        ended = {"result": {"mean_iou": 0.5 + number / 10}, "state": "done"}
        ended = {"result": {}, "state": "stopped: no disk"} if number == 2 else ended
        jobs.append(SweepJob(number=number, folder=name, settings=settings, **ended))
    for job in jobs[:2]:
        (folder / job.folder).mkdir()
        (folder / job.folder / "report.html").write_text("<title>the job's page</title>")
    write_sweep(folder, jobs)
    return folder / "sweep.html"


@pytest.fixture(scope="session")
def numbered(tmp_path_factory):
    """A case of two cells that touch, of which one is found and one is missed, and a made-up third one."""
    spec = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (200, 0, 0)))
    target, found = np.zeros((2, 24, 32), np.int64)
    target[2:22, 2:12], target[2:22, 12:22] = 1, 2
    found[2:22, 2:12], found[2:12, 25:31] = 5, 6
    labels = [(each > 0).astype(np.uint8) for each in (target, found)]
    folder = tmp_path_factory.mktemp("numbered") / "run"
    write_run(folder, [row_of("a", *labels, spec)], spec)
    image, objects = np.full((24, 32, 3), 90, np.uint8), Objects(target=target, prediction=found)
    write_layers(folder, "a", draw_layers(image, *labels, spec, edge=128, objects=objects))
    return write_report(folder)
