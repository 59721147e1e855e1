"""Small runs, with and without hostile names, and their pages as a browser reads them."""

import base64
import json
import shutil
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures, measure_case
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.columns import SCORE_STEPS
from segmeter.report.pictures.layers import draw_layers, write_layers
from tests.metrics.build import maps_of

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '=HYPERLINK("http://x")',
    "[red]bold[/red]",
    "\"'></style><script>alert(1)//",
)
HOSTILE_IDS = ("<script>alert(2)</script>", "=cmd()", "../up", "a\nb", "[red]x", '" onload="alert(3)')


@pytest.fixture
def rng():
    return np.random.default_rng(20240917)


SPEC = ClassSpec(
    task="multiclass", names=("ground", "tree", "car"), colours=((0, 0, 0), (0, 200, 0), (200, 0, 0)), ignore_index=255
)


@pytest.fixture
def spec():
    return SPEC


def write_run(folder, rows, spec, config=None):
    """An evaluation without pictures; gives its summary."""
    folder.mkdir(parents=True, exist_ok=True)
    write_cases(folder, rows, spec)
    summary = summarise(rows, spec, config or MetricsConfig(bootstrap=0))
    write_json(folder / "metrics.json", summary)
    write_json(folder / "run.json", {"command": "eval", "state": "done"})
    return summary


def row_of(case_id, target, labels, spec, config=None, **fields):
    """Make a case of two maps, with the measures of a configuration."""
    counts = confusion_matrix(target, labels, num_classes=spec.num_classes, ignore_index=spec.ignore_index)
    measured = measure_case(maps_of(target, labels, spec), build_measures(config, spec)) if config else ()
    height, width = target.shape
    return CaseRow(case_id=case_id, height=height, width=width, counts=counts, measured=measured, **fields)


def make_rows(rng, spec, ids):
    rows = []
    for share, case_id in zip(np.linspace(0.95, 0.4, len(ids)), ids, strict=True):
        target = rng.integers(0, spec.num_classes, (12, 16)).astype(np.uint8)
        labels = np.where(rng.random(target.shape) < share, target, 0).astype(np.uint8)
        rows.append(row_of(case_id, target, labels, spec, loss=float(share)))
    return rows


def fill_run(folder, rng, spec, ids):
    summary = write_run(folder, make_rows(rng, spec, ids), spec, MetricsConfig(bootstrap=200))
    for case_id in ids:
        write_picture(folder, case_id, rng, spec)
    return summary


def write_picture(folder, case_id, rng, spec, *, referenced=True):
    """Layers of noise."""
    image = rng.integers(0, 255, (30, 40, 3)).astype(np.uint8)
    target, labels = rng.integers(0, spec.num_classes, (2, 30, 40)).astype(np.uint8)
    write_layers(folder, case_id, draw_layers(image, target if referenced else None, labels, spec, edge=128))


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    fill_run(folder, np.random.default_rng(20240917), SPEC, tuple("abcdefgh"))
    write_json(folder / "run.json", {"command": "eval", "state": "done", "versions": {"numpy": "2.4"}, "seed": 7})
    (folder / "config.yaml").write_text("data:\n  name: cells\n")
    return folder


@pytest.fixture
def run(filled, tmp_path):
    """An evaluation's folder with 8 cases; case "h" is the worst, "a" the best."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path


def unpack_page(block):
    """Unpack a text of `pack_page`; columns and arrays get their ``values`` as the page sees them."""
    content = zlib.decompress(base64.b64decode(block))
    start = 4 + int.from_bytes(content[:4], "little")
    header = json.loads(content[4:start])
    for entry in (*header["columns"], *header["arrays"].values()):
        if "type" in entry:
            found = np.frombuffer(content, entry["type"], entry["length"], start + entry["offset"])
            scored = entry.get("kind") == "score"  # 65535 is undefined
            entry["values"] = np.where(found == 65535, np.nan, found / SCORE_STEPS) if scored else found
    return header


class Page(HTMLParser):
    """Tags with their attributes, the text of each, rows of tables as texts, and whether the nesting is right."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.rows, self.open = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.rows[-1][-1] = self.rows[-1][-1].strip()

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return [data.strip() for name, data in self.texts if name == tag and data.strip()]
