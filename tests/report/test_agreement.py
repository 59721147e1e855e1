"""Terminal, compare.md, compare.html and compare.json give every change the same sign and the same word."""

import html
import json
import re
from pathlib import Path

import pytest

from segmeter.cli.main import main
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.crafted import BINARY
from tests.metrics.build import case_row

from .conftest import write_run
from .parsed import Page

CASES = 24
TITLES = {  # as all three texts call them, and which way is better
    "IoU of cell": ("iou/cell", 1),
    "mean Dice": ("mean_dice", 1),
    "HD95 of cell": ("hd95/cell", -1),
    "PQ of cell": ("pq/cell", 1),
}
REQUIRED = {"iou/cell >= base - 0.9": "iou/cell", "hd95/cell <= base + 90": "hd95/cell"}


def make_run(folder, *, missed, distance, quality):
    """A finished run whose cases miss so many of 100 pixels; slice "b" is as bad as that, "a" a little better."""
    rows = []
    for i in range(CASES):
        lost = missed + i % 5 + (i % 2)
        scores = {"hd95/cell": distance + i % 3, "pq/cell": quality - 0.01 * (i % 4)}
        rows.append(case_row(f"c{i:02d}-{'ab'[i % 2]}", [[400, 0], [lost, 100 - lost]], scores=scores))
    write_run(folder, rows, BINARY, MetricsConfig())


def piped(text):
    """Cells of every line of tables that are drawn with "|"."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]


def changes(rows, first):
    """The texts of the rows that begin with these cells, as far as they give a change."""
    found = [row[len(first) :] for row in rows if row[: len(first)] == first]
    return [cell for row in found for cell in row if cell[:1] in "+-" and cell.endswith(("better", "worse"))]


@pytest.mark.parametrize("better", [True, False], ids=["better", "worse"])
@pytest.mark.parametrize("nearer", [True, False], ids=["nearer", "farther"])
def test_all_outputs_agree_in_sign_and_word(better, nearer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "monday", missed=20, distance=5.0, quality=0.5)
    changed = {"missed": 10 if better else 30, "quality": 0.6 if better else 0.4}
    make_run(tmp_path / "friday", distance=3.0 if nearer else 8.0, **changed)
    require = f"require=[{','.join(REQUIRED)}]"
    main(["compare", "runs=[monday,friday]", "metrics.bootstrap=1000", "metrics.slice_by=['-(.)$']", require])
    (folder,) = Path("runs/compare").iterdir()
    result = json.loads((folder / "compare.json").read_text())
    texts = {
        "terminal": [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()],
        "compare.md": piped((folder / "compare.md").read_text()),
        "compare.html": Page((folder / "compare.html").read_text()).rows,
    }
    for title, (metric, sign) in TITLES.items():
        word = "better" if (nearer if sign < 0 else better) else "worse"
        (pair,) = result["metrics"][metric]["pairs"]
        kind = "dataset" if "dataset_difference" in pair else "per_case"
        values = result["metrics"][metric][kind]
        difference = pair[f"{kind}_difference"]
        assert difference == pytest.approx(values["friday"] - values["monday"], rel=1e-9), "new minus base"
        assert (pair["base"], pair["new"], pair[f"{kind}_change"]) == ("monday", "friday", word)
        assert (difference > 0) == (word == ("better" if sign > 0 else "worse"))
        for name, rows in texts.items():
            assert changes(rows, [title])[:1] == [f"{difference:+.4f} {word}"], (name, title)
    for label in "ab":
        entry = result["slices"][0]["by"]["-(.)$"][label]
        score = entry["scores"]["iou/cell"]
        said = f"{score['difference']:+.4f} {'better' if better else 'worse'}"
        assert changes(texts["terminal"], ["-(.)$", label]) == [said]
        assert changes(texts["compare.md"], [r"-(.)$", label, str(CASES // 2)]) == [said]
        assert changes(texts["compare.html"], ["monday, friday", "IoU of cell", "-(.)$", label]) == [said]
    for entry in result["gate"]["requirements"]:
        sign = dict(TITLES.values())[REQUIRED[entry["require"]]]
        word = "better" if (nearer if sign < 0 else better) else "worse"
        assert entry["change"] == word
        said = f"{entry['difference']:+.4f} {word}"
        for name, rows in texts.items():
            first = html.escape(entry["require"]) if name == "compare.md" else entry["require"]
            assert changes(rows, [first]) == [said], name
