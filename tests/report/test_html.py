"""The page: figures that are right, nothing loaded, nothing injected, old or new but never half."""

import base64
import hashlib
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.cases.table import CaseRow, write_cases
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.probabilities.calibration import Calibration
from segmeter.metrics.probabilities.summary import summarise_calibration
from segmeter.metrics.summary.summary import summarise
from segmeter.report.config import ReportConfig
from segmeter.report.html import MOST_ROWS, write_report
from segmeter.report.overlay import write_overlay

from .conftest import HOSTILE, HOSTILE_IDS, make_rows

VOID = {"meta", "img", "input", "br"}


class Page(HTMLParser):
    """Tags with their attributes, the text of each, and whether the nesting is right."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return [data.strip() for name, data in self.texts if name == tag and data.strip()]


def render(folder, config=None):
    return Page(write_report(folder, config).read_text())


def test_cases_are_listed_worst_first_with_their_scores(run):
    page = render(run)
    rows = [attributes["data-value"] for attributes in page.all("td") if "data-value" in attributes]
    ids = [value for value in rows if value in "abcdefgh" and len(value) == 1]
    assert sorted(ids) == list("abcdefgh")
    scores = {row.case_id: row.counts for row in read_cases(run)}

    def mean_iou(counts):
        overlap = counts.diagonal() / (counts.sum(0) + counts.sum(1) - counts.diagonal())
        return overlap.mean()

    assert ids == sorted(ids, key=lambda case_id: mean_iou(scores[case_id]))
    assert ids[0] == "h"
    assert rows[rows.index("h") + 1] == str(mean_iou(scores["h"]))


def test_the_page_loads_nothing(run):
    page = render(run)
    assert {name for name, _ in page.tags} >= {"svg", "table", "img", "style", "script"}
    for _, attributes in page.tags:
        assert not {"href", "srcset", "action", "style", "xlink:href"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("src", "data:image/jpeg;base64,").startswith("data:image/jpeg;base64,")
    assert not {"link", "iframe", "object", "embed", "base", "form", "a"} & {name for name, _ in page.tags}


def test_the_policy_allows_only_the_pages_own_style_and_script(run):
    text = write_report(run).read_text()
    policy = next(tag["content"] for tag in Page(text).all("meta") if tag.get("http-equiv"))
    for kind in ("style", "script"):
        body = re.search(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy


def test_hostile_names_stay_text(hostile_run, run_tags):
    page = render(hostile_run)
    assert {name for name, _ in page.tags} <= run_tags
    assert len(page.all("script")) == len(page.all("style")) == 1
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
    values = [attributes.get("data-value") for attributes in page.all("td")]
    assert set(HOSTILE) <= set(values)
    assert set(HOSTILE_IDS) <= set(values)
    assert "</table><script>alert(4)</script>" in page.text("td")
    assert "x: </pre><script>alert(5)</script>" in page.text("pre")


@pytest.fixture
def run_tags():
    names = "html head meta title style script body header main section h1 h2 p div span b table thead tbody tr th td"
    return set((names + " svg g rect path text figure figcaption img input details summary pre").split())


def test_both_sections_of_pictures_show_with_their_scores(run):
    page = render(run, ReportConfig(worst=3, others=2))
    assert page.text("h2")[-3:] == ["Worst cases", "Other cases", "Run"]
    assert len(page.all("img")) == 5
    assert page.all("img")[0]["alt"] == "image, target, prediction and errors of h"


def test_training_runs_show_curves(tmp_path):
    (tmp_path / "history.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "val": {"loss": 1.5}}\n{"st')
    page = render(tmp_path)
    assert page.text("h2") == ["Training"]
    assert "val/loss" in page.text("span")


def test_undefined_is_shown_as_such_and_sorts_last(tmp_path, spec):
    empty = CaseRow(case_id="empty", height=2, width=2, counts=np.zeros((3, 3), np.int64))
    ground = CaseRow(case_id="ground only", height=2, width=2, counts=np.diag([4, 0, 0]))
    write_cases(tmp_path, [empty, ground], spec)
    write_json(tmp_path / "metrics.json", summarise([empty, ground], spec, MetricsConfig(bootstrap=0)))
    page = render(tmp_path)
    values = [attributes.get("data-value") for attributes in page.all("td")]
    assert values.index("ground only") < values.index("empty")
    assert values[values.index("empty") + 1] == ""
    assert values[values.index("car") + 1] == ""  # a class that never occurs has no IoU
    assert page.text("td").count("n/a") >= 2


def test_multilabel_runs_have_no_confusion_between_classes(tmp_path, rng):
    spec = ClassSpec(task="multilabel", names=("a", "b"), colours=((9, 0, 0), (0, 9, 0)))
    rows = [
        CaseRow(case_id=name, height=4, width=4, counts=rng.integers(0, 9, (2, 2, 2)).astype(np.int64)) for name in "xy"
    ]
    write_cases(tmp_path, rows, spec)
    write_json(tmp_path / "metrics.json", summarise(rows, spec, MetricsConfig(bootstrap=0)))
    page = render(tmp_path)
    assert page.text("h2")[-2:] == ["Classes", "Cases"]


def test_a_failed_write_keeps_the_old_report(run, monkeypatch):
    before = write_report(run).read_bytes()

    def fail(source, target, **folders):
        raise OSError(28, "No space left on device")

    (run / "config.yaml").write_text("changed: true\n")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before
    assert not [path for path in run.iterdir() if path.name.startswith(".tmp-")]


def test_equal_runs_give_equal_pages(run):
    assert write_report(run).read_bytes() == write_report(run).read_bytes()


def test_long_tables_are_cut_and_say_so(run, monkeypatch):
    monkeypatch.setattr("segmeter.report.html.MOST_ROWS", 3)
    assert MOST_ROWS > 3
    text = write_report(run).read_text()
    assert "The worst 3 of 8 cases" in text


def test_a_folder_without_figures_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"to hold metrics.json, history.jsonl or predictions, got .* Give a run's folder"
    ):
        write_report(tmp_path)


@pytest.mark.parametrize("name", ["metrics.json", "history.jsonl"])
def test_a_damaged_file_is_named(tmp_path, name):
    (tmp_path / name).write_text("{broken\n")
    with pytest.raises(InputError, match=rf"expected `{name}` to be .*JSON"):
        write_report(tmp_path)


def measured_run(folder, rng, names=("ground", "tree", "car")):
    """An evaluation with surfaces, one class missed once, and probabilities."""
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0), (0, 200, 0), (200, 0, 0)))
    config = MetricsConfig(bootstrap=100, measures=(SurfaceConfig(), InstancesConfig()))
    sums, rows = Calibration(num_classes=3), []
    for i in range(4):
        target = np.zeros((12, 16), np.uint8)
        target[2:6, 2:7], target[8:11, 9:14] = 1, 2
        labels = np.roll(target, i, 1)
        if i == 3:
            labels[labels == 1] = 0
        maps = CaseMaps(case_id=str(i), target=target, labels=labels, spacing=(1.0, 1.0), spec=spec)
        measured = measure_case(maps, build_measures(config, spec))
        counts = confusion_matrix(target, labels, num_classes=3)
        rows.append(CaseRow(case_id=str(i), height=12, width=16, counts=counts, measured=measured))
        sums.update(target, np.moveaxis(rng.dirichlet((1, 1, 1), target.shape) * 0.5 + np.eye(3)[labels] * 0.5, -1, 0))
    write_cases(folder, rows, spec)
    summary = summarise(rows, spec, config) | {"calibration": summarise_calibration(sums.compute(), spec)}
    write_json(folder / "metrics.json", summary)
    return summary


def test_measures_and_probabilities_are_shown_with_their_failures(tmp_path, rng):
    summary = measured_run(tmp_path, rng)
    page = render(tmp_path)
    titles = page.text("h2")
    assert titles.index("Measures") < titles.index("Probabilities") < titles.index("Confusion")
    cells = page.text("td")
    tree = next(i for i in range(len(cells)) if cells[i : i + 2] == ["hd95 (pixels)", "tree"])
    assert cells[tree + 2] == "inf"
    assert "tp" in cells
    entry = summary["calibration"]["per_class"]["car"]
    assert f"{entry['average_precision']:.4f}" in cells
    assert sum(1 for tag in page.all("svg") if "precision, by recall" in tag.get("aria-label", "")) == 1
    assert any(tag.get("data-value") == "Infinity" for tag in page.all("td"))


def test_names_in_the_charts_of_probabilities_are_escaped(tmp_path, rng):
    measured_run(tmp_path, rng, names=HOSTILE[:3])
    page = render(tmp_path)
    assert len(page.all("script")) == 1
    assert not [tag for tag in page.all("img") if "onerror" in tag]


def test_conventions_are_shown_with_what_differs(tmp_path, rng, spec):
    rows = make_rows(rng, spec, "abc")
    write_cases(tmp_path, rows, spec)
    summary = summarise(rows, spec, MetricsConfig(bootstrap=0, convention="all"))
    write_json(tmp_path / "metrics.json", summary)
    page = Page(write_report(tmp_path).read_text())
    cells, entries = page.text("td"), {entry["name"]: entry for entry in summary["conventions"]}
    assert [cell for cell in cells if cell in entries] == list(entries)
    at = cells.index("smp")
    assert cells[at + 1] == f"{entries['smp']['figures']['mean_iou']:.4f}"
    assert "all pixels pooled" in cells[at + 3]
    assert any("0.0 for the mean distance when every object was missed" in text for text in page.text("p"))


def test_a_binary_run_is_sorted_by_its_object(tmp_path):
    """By the mean IoU "b" is the worst case, by the object's "a" is."""
    spec = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    counts = {"a": [[960, 20], [20, 0]], "b": [[200, 600], [0, 200]]}
    rows = [CaseRow(case_id=name, height=10, width=100, counts=np.array(table)) for name, table in counts.items()]
    write_cases(tmp_path, rows, spec)
    write_json(tmp_path / "metrics.json", summarise(rows, spec, MetricsConfig(bootstrap=0)))
    page = render(tmp_path)
    ids = [attributes["data-value"] for attributes in page.all("td") if attributes.get("data-value") in ("a", "b")]
    assert ids == ["a", "b"]
    assert page.text("h2")[:2] == ["IoU of cell", "mean IoU"]
    assert "IoU of cell" in page.text("th")


def test_groups_have_a_table(tmp_path, rng, spec):
    rows = make_rows(rng, spec, "ab")
    write_cases(tmp_path, rows, spec)
    config = MetricsConfig(bootstrap=0, groups={"green <i>": ("ground", "tree")})
    write_json(tmp_path / "metrics.json", summarise(rows, spec, config))
    page = render(tmp_path)
    assert "green <i> (ground, tree)" in page.text("td")


def test_a_folder_of_predictions_shows_its_pictures(tmp_path, rng):
    (tmp_path / "predictions").mkdir()
    assert not render(tmp_path).all("img")
    for case_id in ("a", "b", "c"):
        write_overlay(tmp_path / "overlays", case_id, rng.integers(0, 255, (30, 90, 3)).astype(np.uint8))
    page = render(tmp_path, ReportConfig(worst=1, others=1))
    assert len(page.all("img")) == 2
    assert "Predictions" in page.text("h2")
    assert not [text for _, text in page.texts if "IoU" in text]
