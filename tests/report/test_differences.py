"""Tables of a comparison: their scores, runs and numbers, and that all outputs give a change the same sign and word."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import compare_runs
from segmeter.report.differences import adjusted, comparison_tables, shown_metrics
from tests.data.crafted import BINARY
from tests.metrics.build import case_row, class_spec, random_rows
from tests.metrics.summary.test_compare import spoil

from .conftest import Page, write_run

RESAMPLING = {"interval": "expanded", "resamples": 500, "cluster": None, "warning": None}
ROWS = random_rows(12)
REST = {"convention": "segmeter", "rank_by": "mean_iou", "order": ["base", "new"], "other_orders": {}}
REST |= {"bootstrap": RESAMPLING}


def ran(*shares, names=("base", "new", "third"), spec=None, require=(), **options):
    runs = {name: spoil(ROWS, share) if share else ROWS for name, share in zip(names, shares, strict=False)}
    config = MetricsConfig(bootstrap=1000, **options)
    return compare_runs(runs, spec or class_spec(), config, require=require) | REST


def compared(**metrics):
    """Metrics by name, with the p-values of their pairs."""
    pairs = {name.replace("__", "/"): [{"sign_flip_p_holm": p} for p in ps] for name, ps in metrics.items()}
    entries = {name: {"pairs": each} for name, each in pairs.items()}
    return {"rank_by": next(iter(entries)), "metrics": entries}


def test_the_first_test_that_has_a_value_is_shown():
    ps = {"sign_flip_p_holm": 0.25, "wilcoxon_p_holm": 0.5, "dataset_p_holm": 0.75}
    assert adjusted(ps) == 0.25
    assert adjusted(ps | {"sign_flip_p_holm": None}) == 0.5
    assert adjusted({"dataset_p_holm": 0.75}) == 0.75
    assert adjusted({"sign_flip_p": 0.01}) is None  # not adjusted


def test_the_scores_that_matter_most_are_shown():
    """A p-value may be 0, as Wilcoxon's is with thousands of cases."""
    result = compared(iou__a=[0.5], mean_iou=[0.9], iou__b=[0.0], iou__c=[0.9, 0.049], iou__d=[0.05], iou__e=[None])
    assert shown_metrics(result, 4) == (["iou/a", "mean_iou", "iou/b", "iou/c"], 2)
    assert shown_metrics(result, 9)[1] == 0
    binary = compared(pq__cell=[0.5], pq__mean=[0.5], hd95__cell=[0.5], hd95__mean=[0.5], mean_iou=[0.5])
    assert shown_metrics(binary, 9)[0] == ["pq/cell", "mean_iou", "hd95/cell"], "the mean of one class repeats it"


def test_a_pair_has_a_ranking_and_ten_scores():
    result = ran(0, 0.4)
    bars = comparison_tables(result)["ranking"].rows[0][4]
    assert sum(map(float, re.findall(r' width="([\d.]+)"', bars))) == pytest.approx(100, abs=0.02)
    ranking, differences = (table.narrow() for table in comparison_tables(result).values())
    assert [row[:2] for row in ranking.rows] == [["base", "1"], ["new", "2"]]
    assert ranking.rows[0][-1] == f"{100 * result['metrics']['mean_iou']['ranking']['rank_shares']['base'][0]:.1f} %"
    assert differences.title == "new (new) minus base (base)"
    assert [row[0] for row in differences.rows[:3]] == ["mean IoU", "mean Dice", "pixel accuracy"]
    pair = result["metrics"]["mean_iou"]["pairs"][0]
    low, high = pair["dataset_ci95"]
    assert differences.rows[0][3:5] == [f"{pair['dataset_difference']:+.4f} worse", f"[{low:.3f}, {high:.3f}]"]
    assert len(differences.rows) == 10
    assert differences.note == f"{len(result['metrics']) - 10} more in compare.json and compare.html."


def test_three_runs_have_a_row_per_pair_and_those_that_are_alike_no_ranking():
    pairs = comparison_tables(ran(0, 0.2, 0.5))["differences"]
    assert pairs.title == "mean IoU, new minus base"
    assert [row[:2] for row in pairs.rows] == [
        ["mean IoU", f"{one}"] for one in ("base, new", "base, third", "new, third")
    ]
    assert [table.title for table in comparison_tables(ran(0, 0)).values()] == ["new (new) minus base (base)"]


def test_infinite_changes_have_their_sign_and_counts_are_whole_numbers():
    scores = {"hd95/car": (2.0, np.inf), "fn/car": (7.0, 3.0)}
    near, lost = (
        [case_row(row.case_id, row.counts, scores={name: pair[side] for name, pair in scores.items()}) for row in ROWS]
        for side in range(2)
    )
    result = compare_runs({"base": near, "new": lost}, class_spec(), MetricsConfig(bootstrap=200)) | REST
    rows = {row[0]: row[1:] for row in comparison_tables(result | {"rank_by": "hd95/car"})["differences"].rows}
    assert [*rows["HD95 of car"][:3], rows["HD95 of car"][3]] == ["2.0000", "inf in 12", "+inf worse", "[inf, inf]"]
    rows = {row[0]: row[1:] for row in comparison_tables(result | {"rank_by": "fn/car"})["differences"].rows}
    assert [*rows["fn of car"][:3], rows["fn of car"][3]] == ["7", "3", "-4 better", "[-4, -4]"]


def test_slices_and_requirements_have_tables_of_their_own():
    result = ran(0, 0.6, slice_by=(r"(\d)$",), require=("mean_iou >= base - 0.5", "mean_iou >= base"))
    required, *_, slices = (table.narrow() for table in comparison_tables(result).values())
    assert slices.title == "mean IoU by slice: new (new) minus base (base)"
    entries = result["slices"][0]["by"][r"(\d)$"]
    assert [row[:3] for row in slices.rows] == [[r"(\d)$", label, str(entry["n"])] for label, entry in entries.items()]
    assert sum(entry["n"] for entry in entries.values()) == 12
    assert [row[0] for row in required.rows] == ["mean_iou >= base - 0.5", "mean_iou >= base"]
    assert [row[-1] for row in required.rows] == ["met", "REGRESSION"]


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


@pytest.mark.parametrize(("better", "nearer"), [(True, False), (False, True)], ids=["better", "nearer"])
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
