"""A real Chromium and pages to click in; without a Chromium these tests are skipped, and say so."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.evaluation.compare import compare
from segmeter.files import write_json
from segmeter.metrics.cases.table import CaseRow, write_cases
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.pixels.confusion import confusion_matrix, multilabel_counts
from segmeter.metrics.summary.summary import summarise
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report
from segmeter.report.pictures.layers import draw_layers, write_layers

from ..conftest import HOSTILE, HOSTILE_IDS

NAMES = ("ground", "tree", "car", "lamp")
COLOURS = ((0, 0, 0), (0, 200, 0), (200, 0, 0), (0, 0, 200))
SPEC = ClassSpec(task="multiclass", names=NAMES, colours=COLOURS, ignore_index=255)
PICTURED = 20


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine; .ci/run installs one")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open a page at a state; at the end no script may have failed, and nothing been refused or said in a dialog."""
    faults, contexts = [], []

    def visit(path: Path, state: str = "", *, width: int = 1300, refused: bool = False, **options):
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(6000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" and not refused else None)
        page.on("dialog", lambda dialog: (faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(path.as_uri() + state)
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not faults


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


def write_run(folder, rows, spec, config):
    folder.mkdir(parents=True, exist_ok=True)
    write_cases(folder, rows, spec)
    write_json(folder / "metrics.json", summarise(rows, spec, config))
    write_json(folder / "run.json", {"command": "eval", "state": "done"})


def make_run(folder, ids, spec=SPEC, pictured=PICTURED):
    rng = np.random.default_rng(7)
    config = MetricsConfig(bootstrap=20, measures=(SurfaceConfig(),))
    measures = build_measures(config, spec)
    rows = []
    for i, case_id in enumerate(ids):
        image, target, labels = draw_case(rng, i)
        maps = CaseMaps(case_id=case_id, target=target, labels=labels, spacing=(1.0, 1.0), spec=spec)
        counts = confusion_matrix(target, labels, num_classes=4, ignore_index=spec.ignore_index)
        measured = measure_case(maps, measures)
        rows.append(CaseRow(case_id=case_id, height=24, width=32, counts=counts, loss=0.1 * i, measured=measured))
        if i < pictured:
            notes = {"files": {"prediction": [f"{i}.png"]}}
            write_layers(folder, case_id, draw_layers(image, target, labels, spec, panel=128, notes=notes))
    write_run(folder, rows, spec, config)
    return rows


@pytest.fixture(scope="session")
def run_rows(tmp_path_factory):
    """A run of 60 cases, the first 20 with pictures: its folder and its rows."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return folder, make_run(folder, [f"case-{i:02}" for i in range(60)])


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


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """10,000 cases of 19 classes."""
    rng = np.random.default_rng(3)
    spec = ClassSpec(task="multiclass", names=tuple(f"class {k}" for k in range(19)), colours=((9, 99, 9),) * 19)
    counts = rng.poisson(3, (10_000, 19, 19)) * (rng.random((10_000, 19, 19)) < 0.1)
    counts[:, range(19), range(19)] = rng.integers(0, 900, (10_000, 19))
    rows = [CaseRow(case_id=f"scene/{i:05}", height=100, width=100, counts=table) for i, table in enumerate(counts)]
    folder = tmp_path_factory.mktemp("large") / "run"
    write_run(folder, rows, spec, MetricsConfig(bootstrap=0))
    return write_report(folder)


@pytest.fixture(scope="session")
def compared(run_rows, tmp_path_factory):
    """The run of 60 cases against two in which every third case, and every case, predicts what the target holds."""
    root = tmp_path_factory.mktemp("compared")
    folders = [root / "new", root / "perfect", root / "third"]
    shutil.copytree(run_rows[0], folders[0])
    for folder, every in zip(folders[1:], (1, 3), strict=True):
        rows = [replace(row, measured=()) for row in run_rows[1]]
        for i in range(0, 60, every):
            rows[i] = replace(rows[i], counts=np.diag(rows[i].counts.sum(axis=1)))
        write_run(folder, rows, SPEC, MetricsConfig(bootstrap=20))
        for i in range(5):
            image, target, _ = draw_case(np.random.default_rng(7), i)
            write_layers(folder, f"case-{i:02}", draw_layers(image, target, target, SPEC, panel=128))
    result = compare(folders, MetricsConfig(bootstrap=20))
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
        write_layers(folder, f"case-{i}", draw_layers(image, target, labels, spec, panel=128, notes=notes))
    write_run(folder, rows, spec, MetricsConfig(bootstrap=0))
    return write_report(folder)
