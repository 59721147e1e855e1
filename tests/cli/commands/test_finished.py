"""`segmeter compare` and `segmeter report`; `merge` has a file of its own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from segmeter.metrics.summary.summarise import summarise
from tests.cli.sharded import newest, run
from tests.data.crafted import BINARY

TWO = "runs=[one,two]"
BOTH = ("compare", TWO)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def finish(folder: Path, rows: list[CaseRow]) -> Path:
    folder.mkdir()
    write_cases(folder, rows, BINARY)
    (folder / "metrics.json").write_text(json.dumps(summarise(rows, BINARY)))
    return folder


def make_run(folder: Path, *, wrong: int, cases: int = 6) -> Path:
    """A finished run in which `wrong` of the object's 10 pixels and more are missed."""
    tables = [np.array([[20, 0], [wrong + i % 2, 10 - wrong - i % 2]]) for i in range(cases)]
    return finish(folder, [CaseRow(case_id=f"c{i}", height=6, width=5, counts=t) for i, t in enumerate(tables)])


def test_a_comparison_prints_its_tables_and_keeps_its_figures(capsys):
    for name, wrong in (("good", 1), ("fair", 3), ("poor", 6)):
        make_run(Path(name), wrong=wrong)
    assert run("compare", "runs=[poor,good,fair]", "metrics.bootstrap=100") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "IoU of cell, new minus base" in shown
    assert "no difference in IoU of cell can be told from 6 cases, so that the runs are not ranked" in shown
    assert "p (Holm)" in shown
    assert "Only 6 independent units" in shown
    folder = newest("runs/compare")
    result = json.loads((folder / "compare.json").read_text())
    for metric in ("mean_iou", "mean_dice", "pixel_accuracy"):
        entry = result["metrics"][metric]
        assert entry["ranking"]["order"] == ["good", "fair", "poor"]
        assert len(entry["pairs"]) == 3
        smallest = 2 / 2**6  # of all arrangements: 6 cases that moved one way, or all the other
        assert [pair["sign_flip_p"] for pair in entry["pairs"]] == [smallest] * 3
        assert [pair["sign_flip_p_holm"] for pair in entry["pairs"]] == [9 * smallest] * 3  # of 3 metrics
    record = json.loads((folder / "run.json").read_text())
    assert record["state"] == "done"
    assert re.search(r'<p class="when">.* · done</p>', (folder / "compare.html").read_text())
    assert set(record["runs"]) == {"good", "fair", "poor"}


@pytest.fixture
def _cells():
    """Finished runs with one measure's column, of 3 patients with 4 slices each."""
    for folder, iou, quality in (("one", 0.9, 0.2), ("two", 0.5, 0.6)):
        counts = np.array([[20, 0], [10 - int(10 * iou), int(10 * iou)]])
        columns = (MeasureColumn("pq", "cell", quality), MeasureColumn("area", "cell", 1.0))
        names = [f"p{i}_{j}" for i in range(3) for j in range(4)]
        finish(Path(folder), [CaseRow(case_id=n, height=6, width=5, counts=counts, measured=columns) for n in names])


@pytest.mark.usefixtures("_cells")
def test_what_says_the_opposite_is_printed_and_a_prefix_groups_the_cases(capsys):
    assert run(*BOTH, "metrics.bootstrap=50", "metrics.cluster=prefix:_", "rank_by=pq") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.index("two (new) minus one (base)") < printed.index("mean PQ ") < printed.index("mean IoU ")
    assert "no difference in mean PQ can be told from 12 cases" in printed
    assert "Only 3 independent units: no intervals." in printed
    result = json.loads((newest("runs/compare") / "compare.json").read_text())
    assert (result["order"], result["other_orders"]["mean_iou"]) == (["two", "one"], ["one", "two"])
    assert "area/cell" in result["metrics"]


@pytest.mark.parametrize(
    ("cluster", "units"),
    [("prefix:_", 3), ('"^([^_]+)[_]"', 3), ('"^p(\\d+)_"', 3), ("wards.csv:ward", 2), ("sub/wards.csv:ward", 2)],
    ids=["prefix", "suggested", "expression", "table", "path"],
)
@pytest.mark.usefixtures("_cells")
def test_clusters_are_given_without_ado(cluster, units):
    rows = [f"p{i}_{j},{'north' if i else 'south'}\n" for i in range(3) for j in range(4)]
    Path("sub").mkdir()
    for folder in (Path(), Path("sub")):
        (folder / "wards.csv").write_text("case_id,ward\n" + "".join(rows))
    assert run(*BOTH, "metrics.bootstrap=50", f"metrics.cluster={cluster}") == 0
    assert json.loads((newest("runs/compare") / "compare.json").read_text())["bootstrap"]["n_units"] == units


@pytest.mark.parametrize(("arguments", "message"), [
    (["runs=[one,nowhere]"], "which has none"),
    ([], "`runs` is required"),
    (["runs=[one,other]"], "1 missing from 'other': c5"),
    ([TWO, "metrics.bootstrap=0"], "expected `metrics.bootstrap` to be an integer >= 1"),
    ([TWO, "rank_by=mean_dcie"], "Did you mean 'mean_dice'?"),
    ([TWO, "metrics.cluster=prefix:_"], "to find its separator in every case id ('prefix:_'), got 6 without: 'c0'"),
    ([TWO, "metrics.cluster=t.csv:patient"], "to name a table, got t.csv"),
    ([TWO, "metrics.cluster=prefix"], "to be prefix:SEPARATOR, prefix:NUMBER, pair, TABLE.csv:COLUMN, or"),
])  # fmt: skip
def test_bad_requests_are_refused(arguments, message, capsys):
    for name, cases in (("one", 6), ("two", 6), ("other", 5)):
        make_run(Path(name), wrong=1, cases=cases)
    assert run("compare", *arguments) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.fixture
def trained(tmp_path):
    (tmp_path / "history.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    write_json(tmp_path / "run.json", {"command": "train", "state": "done"})
    return tmp_path


def test_a_report_is_rebuilt_and_its_runs_are_listed_in_an_index(trained, capsys):
    for argument in (f"run={trained}", str(trained)):
        assert run("report", argument) == 0
        assert str(trained / "report.html") in capsys.readouterr().out
        assert "img-src data:;" in (trained / "report.html").read_text()
    assert run("report", f"runs={trained.parent}") == 0
    assert f'href="{trained.name}/report.html"' in (trained.parent / "index.html").read_text()


def test_settings_are_the_runs_own_but_for_those_given(trained):
    (trained / "config.yaml").write_text("report: {pictures: link, gone: 3}\n")
    assert run("report", f"run={trained}") == 0
    assert "img-src data: file: 'self';" in (trained / "report.html").read_text().replace("&#39;", "'")
    assert run("report", f"run={trained}", "report.pictures=embed") == 0
    assert "img-src data:;" in (trained / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected one run folder, got none"),
        (["run=nowhere"], "expected a run folder of this machine, got "),
        (["run={}", "report.picture=link"], "picture"),
        (["run={}", "report.pictures"], "expected one run folder, got run="),
        (["runs={}", "report.pictures=link"], "Write segmeter report run=RUN, with"),
    ],
)
def test_bad_arguments_are_said_in_a_line(trained, arguments, said, capsys):
    assert run("report", *(argument.format(trained) for argument in arguments)) == 2
    assert said in capsys.readouterr().err
    assert not (trained / "report.html").exists()
