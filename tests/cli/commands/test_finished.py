"""`segmeter compare`, alone and as a gate of a pipeline, and `segmeter report`; `merge` has a file of its own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from segmeter.metrics.summary.summarise import summarise
from tests.cli.sharded import latest, newest, run
from tests.data.crafted import BINARY

TWO = "runs=[one,two]"
GATE = ("compare", "metrics.bootstrap=1000")
pytestmark = pytest.mark.usefixtures("in_tmp")


def finish(folder: Path, rows: list[CaseRow], spec: ClassSpec = BINARY) -> None:
    folder.mkdir()
    write_cases(folder, rows, spec)
    (folder / "metrics.json").write_text(json.dumps(summarise(rows, spec)))


def make_run(folder: Path, *, wrong: int, cases: int = 6) -> None:
    """A finished run in which `wrong` of the object's 10 pixels and more are missed."""
    tables = [np.array([[20, 0], [wrong + i % 2, 10 - wrong - i % 2]]) for i in range(cases)]
    finish(folder, [CaseRow(case_id=f"c{i}", height=6, width=5, counts=t) for i, t in enumerate(tables)])


def make_missing(name: str, missed: list[int], spec: ClassSpec = BINARY) -> None:
    """A finished run whose cases, of two kinds, miss so many of their object's 100 pixels."""
    names = [f"c{i:02d}-{'AB'[i % 2]}" for i in range(len(missed))]
    tables = [np.array([[400, 0], [m, 100 - m]]) for m in missed]
    rows = [CaseRow(case_id=n, height=20, width=25, counts=t) for n, t in zip(names, tables, strict=True)]
    finish(Path(name), rows, spec)


def compared() -> tuple[dict, str, str]:
    """The result of the only comparison, its summary for a pull request, and its page."""
    folder = newest("runs/compare")
    assert latest("compare", "run.json")["state"] == "done"
    return latest("compare", "compare.json"), (folder / "compare.md").read_text(), (folder / "compare.html").read_text()


def test_a_comparison_prints_its_tables_and_keeps_its_figures(capsys):
    for name, wrong in (("good", 1), ("fair", 3), ("poor", 6)):
        make_run(Path(name), wrong=wrong)
    assert run("compare", "runs=[poor,good,fair]", "metrics.bootstrap=100") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "IoU of cell, new minus base" in shown
    assert "no difference in IoU of cell can be told from 6 cases, so that the runs are not ranked" in shown
    assert "p (Holm)" in shown
    assert "Only 6 independent units" in shown
    result, _, page = compared()
    for metric in ("mean_iou", "mean_dice", "pixel_accuracy"):
        entry = result["metrics"][metric]
        assert entry["ranking"]["order"] == ["good", "fair", "poor"]
        assert len(entry["pairs"]) == 3
        smallest = 2 / 2**6  # of all arrangements: 6 cases that moved one way, or all the other
        assert [pair["sign_flip_p"] for pair in entry["pairs"]] == [smallest] * 3
        assert [pair["sign_flip_p_holm"] for pair in entry["pairs"]] == [9 * smallest] * 3  # of 3 metrics
    assert re.search(r'<p class="when">.* · done</p>', page)
    assert set(latest("compare", "run.json")["runs"]) == {"good", "fair", "poor"}


@pytest.fixture
def _cells(in_tmp):
    """Finished runs with one measure's column, of 3 patients with 4 slices each."""
    for folder, iou, quality in (("one", 0.9, 0.2), ("two", 0.5, 0.6)):
        counts = np.array([[20, 0], [10 - int(10 * iou), int(10 * iou)]])
        columns = (MeasureColumn("pq", "cell", quality), MeasureColumn("area", "cell", 1.0))
        names = [f"p{i}_{j}" for i in range(3) for j in range(4)]
        finish(Path(folder), [CaseRow(case_id=n, height=6, width=5, counts=counts, measured=columns) for n in names])


@pytest.mark.usefixtures("_cells")
def test_what_says_the_opposite_is_printed_and_a_prefix_groups_the_cases(capsys):
    assert run("compare", TWO, "metrics.bootstrap=50", "metrics.cluster=prefix:_", "rank_by=pq") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.index("two (new) minus one (base)") < printed.index("mean PQ ") < printed.index("mean IoU ")
    assert "no difference in mean PQ can be told from 12 cases" in printed
    assert "Only 3 independent units: no intervals." in printed
    result, _, _ = compared()
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
    assert run("compare", TWO, "metrics.bootstrap=50", f"metrics.cluster={cluster}") == 0
    assert compared()[0]["bootstrap"]["n_units"] == units


@pytest.mark.parametrize(("arguments", "message"), [
    (["runs=[one,nowhere]"], "which has none"),
    ([], "`runs` is required"),
    (["runs=[one,other]"], "1 missing from 'other': c5"),
    ([TWO, "metrics.bootstrap=0"], "expected `metrics.bootstrap` to be an integer >= 1"),
    ([TWO, "rank_by=mean_dcie"], "Did you mean 'mean_dice'?"),
    ([TWO, "metrics.cluster=prefix:_"], "to find its separator in every case id ('prefix:_'), got 6 without: 'c0'"),
    ([TWO, "metrics.cluster=t.csv:patient"], "to name a table, got t.csv"),
    ([TWO, "metrics.cluster=prefix"], "to be prefix:SEPARATOR, prefix:NUMBER, pair, TABLE.csv:COLUMN, or"),
    ([TWO, "require=iou/cell > base"], "to be METRIC >= BOUND"),
    ([TWO, "require=iou/cel >= base"], "Did you mean 'iou/cell'?"),
    ([TWO, "require=iou/cell <= base"], "as higher is better"),
    ([TWO, "require='iou/cell[ward=A] >= base'"], "Set metrics.slice_by."),
])  # fmt: skip
def test_bad_requests_are_refused(arguments, message, refused):
    for name, cases in (("one", 6), ("two", 6), ("other", 5)):
        make_run(Path(name), wrong=1, cases=cases)
    assert message in refused("compare", *arguments)
    assert not Path("runs").exists()


@pytest.fixture
def _gated(in_tmp):
    base = [10 + i % 7 for i in range(24)]
    make_missing("base", base)
    make_missing("same", base)
    make_missing("worse", [m + 10 + i % 3 for i, m in enumerate(base)])
    make_missing("noisy", [m + (9 if i % 2 else -8) for i, m in enumerate(base)])


@pytest.mark.usefixtures("_gated")
def test_a_run_that_is_as_good_passes(capsys):
    assert run(*GATE, "runs=[base,same]", "require=iou/cell >= base - 0.005") == 0
    result, text, _ = compared()
    assert result["gate"]["outcome"] == "pass"
    assert text.startswith("## segmeter: every requirement is met\n")
    assert "| iou/cell &gt;= base - 0.005 | 0.8725 | 0.8725 | +0.0000 | +0.0050 | [0.005, 0.005] | met |" in text
    assert "iou/cell >= base - 0.005" in capsys.readouterr().out


@pytest.mark.usefixtures("_gated")
def test_a_run_that_is_worse_ends_with_4_and_says_by_how_much(refused):
    said = refused(*GATE, "runs=[base,worse]", "require=[iou/cell >= base - 0.005, recall/cell >= 0.5]", code=4)
    result, text, page = compared()
    assert [entry["outcome"] for entry in result["gate"]["requirements"]] == ["regression", "pass"]
    assert text.startswith("## segmeter: regression\n")
    assert '<h2 id="required">' in page
    assert ">iou/cell &gt;= base - 0.005</a></b></td>" in page
    assert "segmeter: iou/cell >= base - 0.005: REGRESSION, margin -0.1" in said
    assert "]; new minus base -0.1" in said
    assert " worse\n" in said
    assert "recall/cell" not in said


@pytest.mark.usefixtures("_gated")
def test_what_cannot_be_told_ends_with_5_and_names_the_cases_needed(refused):
    said = refused(*GATE, "runs=[base,noisy]", "require=iou/cell >= base", code=5)
    assert "can't be told from 24 cases" in said
    _, text, _ = compared()
    assert text.startswith("## segmeter: can't be told from these cases\n")
    assert "cases like these would tell" in said
    assert "cases like these would tell" in text


@pytest.mark.usefixtures("_gated")
def test_a_slice_can_be_required_and_is_shown(capsys):
    slices = "metrics.slice_by=['-(.)']"
    assert run(*GATE, "runs=[base,noisy]", "require=iou/cell[-(.)=B] >= base - 0.02", slices) == 4
    assert "IoU of cell by slice: noisy (new) minus base (base)" in capsys.readouterr().out
    result, text, page = compared()
    assert result["slices"][0]["by"]["-(.)"]["A"]["scores"]["iou/cell"]["difference"] > 0
    assert "**IoU of cell by slice: noisy (new) minus base (base)**" in text
    assert '<h2 id="slices">' in page


def test_names_of_runs_and_classes_cannot_write_markdown():
    evil = BINARY.replace(names=("background", "a|b <i> @all [x](y)"))
    for name in ("one", "two"):
        make_missing(name, [1, 2, 3, 4, 5, 6], evil)
    assert run(*GATE, TWO) == 0
    _, text, page = compared()
    assert "<i>" not in page
    assert "a|b &lt;i&gt; @all [x](y)" in page
    assert "IoU of a\\|b &lt;i&gt; &#64;all \\[x\\](y)" in text


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


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "expected one run folder, got none"),
    (["run=nowhere"], "expected a run folder of this machine, got "),
    (["run={}", "report.picture=link"], "picture"),
    (["run={}", "report.worst=["], "`report.*` to be values that YAML can read, got report.worst=["),
    (["run={}", "report.pictures"], "expected one run folder, got run="),
    (["runs={}", "report.pictures=link"], "Write segmeter report run=RUN, with"),
])  # fmt: skip
def test_bad_arguments_of_report_are_said_in_a_line(trained, arguments, said, refused):
    assert said in refused("report", *(argument.format(trained) for argument in arguments))
    assert not (trained / "report.html").exists()
