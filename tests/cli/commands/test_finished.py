"""`segmeter compare` and `segmeter report`; `merge` has a file of its own."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from segmeter.metrics.summary.summarise import summarise
from tests.cli.sharded import run as main_code
from tests.data.crafted import BINARY

CODE = "import sys; from segmeter.cli.main import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"


def make_run(folder: Path, *, wrong: int, cases: int = 6) -> Path:
    """A finished run in which `wrong` of the object's 10 pixels and more are missed."""
    rows = [
        CaseRow(case_id=f"c{i}", height=6, width=5, counts=np.array([[20, 0], [wrong + i % 2, 10 - wrong - i % 2]]))
        for i in range(cases)
    ]
    folder.mkdir()
    write_cases(folder, rows, BINARY)
    (folder / "metrics.json").write_text(json.dumps(summarise(rows, BINARY)))
    return folder


def test_a_comparison_prints_its_tables_and_keeps_its_figures_without_torch(tmp_path: Path) -> None:
    for name, wrong in (("good", 1), ("fair", 3), ("poor", 6)):
        make_run(tmp_path / name, wrong=wrong)
    command = [sys.executable, "-W", "error", "-c", CODE, "compare", "runs=[poor,good,fair]", "metrics.bootstrap=100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "IoU of cell, new minus base" in done.stdout
    shown = " ".join(done.stdout.split())
    assert "no difference in IoU of cell can be told from 6 cases, so that the runs are not ranked" in shown
    assert "p (Holm)" in done.stdout
    assert "Only 6 independent units" in done.stdout.replace("\n", " ")
    (folder,) = (tmp_path / "runs" / "compare").iterdir()
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


def make_cells(folder: Path, *, iou: float, quality: float) -> Path:
    """A finished run with one measure's column, of 3 patients with 4 slices each."""
    names = [f"p{i}_{j}" for i in range(3) for j in range(4)]
    tables = [np.array([[20, 0], [10 - int(10 * iou), int(10 * iou)]]) for _ in names]
    columns = (MeasureColumn("pq", "cell", quality), MeasureColumn("area", "cell", 1.0))
    rows = [
        CaseRow(case_id=name, height=6, width=5, counts=table, measured=columns)
        for name, table in zip(names, tables, strict=True)
    ]
    folder.mkdir()
    write_cases(folder, rows, BINARY)
    (folder / "metrics.json").write_text(json.dumps(summarise(rows, BINARY)))
    return folder


def test_what_says_the_opposite_is_printed_and_a_prefix_groups_the_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_cells(tmp_path / "one", iou=0.9, quality=0.2)
    make_cells(tmp_path / "two", iou=0.5, quality=0.6)
    main(["compare", "runs=[one,two]", "metrics.bootstrap=50", "metrics.cluster=prefix:_", "rank_by=pq"])
    printed = capsys.readouterr().out
    assert printed.index("two (new) minus one (base)") < printed.index("mean PQ ") < printed.index("mean IoU ")
    assert "no difference in mean PQ can be told from 12 cases" in " ".join(printed.split())
    (result,) = (json.loads(path.read_text()) for path in Path("runs/compare").glob("*/compare.json"))
    assert (result["order"], result["other_orders"]["mean_iou"]) == (["two", "one"], ["one", "two"])
    assert "Only 3 independent units: no intervals." in " ".join(printed.split())
    assert "area/cell" in result["metrics"]


@pytest.mark.parametrize(
    ("cluster", "units"),
    [("prefix:_", 3), ('"^([^_]+)[_]"', 3), ('"^p(\\d+)_"', 3), ("wards.csv:ward", 2), ("sub/wards.csv:ward", 2)],
    ids=["prefix", "suggested", "expression", "table", "path"],
)
def test_clusters_are_given_without_ado(
    cluster: str, units: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_cells(tmp_path / "one", iou=0.9, quality=0.2)
    make_cells(tmp_path / "two", iou=0.5, quality=0.6)
    rows = [f"p{i}_{j},{'north' if i else 'south'}\n" for i in range(3) for j in range(4)]
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "wards.csv").write_text("case_id,ward\n" + "".join(rows))
    main(["compare", "runs=[one,two]", "metrics.bootstrap=50", f"metrics.cluster={cluster}"])
    (written,) = tmp_path.glob("runs/compare/*/compare.json")
    assert json.loads(written.read_text())["bootstrap"]["n_units"] == units


BOTH = "runs=[one,two]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs=[one]"], "to be two or more run folders, got 1"),
        (["runs=[one,nowhere]"], "which has none"),
        (["runs=[one,one]"], "twice"),
        ([], "`runs` is required"),
        (["runs=[one,other]"], "1 missing from 'other': c5"),
        ([BOTH, "metrics.bootstrap=0"], "expected `metrics.bootstrap` to be an integer >= 1"),
        ([BOTH, "metrics.measures=[instances]"], "expected `metrics.measures` to be empty"),
        ([BOTH, "rank_by=mean_dcie"], "Did you mean 'mean_dice'?"),
        (
            [BOTH, "metrics.cluster=prefix:_"],
            "to find its separator in every case id ('prefix:_'), got 6 without: 'c0'",
        ),
        ([BOTH, "metrics.cluster=t.csv:patient"], "to name a table, got t.csv"),
        ([BOTH, "metrics.cluster=prefix"], "to be prefix:SEPARATOR, prefix:NUMBER, pair, TABLE.csv:COLUMN, or"),
    ],
)
def test_bad_requests_are_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, cases in (("one", 6), ("two", 6), ("other", 5)):
        make_run(tmp_path / name, wrong=1, cases=cases)
    with pytest.raises(SystemExit) as leaving:
        main(["compare", *arguments])
    assert leaving.value.code == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


call = partial(main_code, "report")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "history.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    write_json(tmp_path / "run.json", {"command": "train", "state": "done"})
    return tmp_path


@pytest.mark.parametrize("argument", ["run={}", "{}"])
def test_a_report_is_rebuilt(run: Path, argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(argument.format(run)) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    assert "img-src data:;" in (run / "report.html").read_text()


def test_settings_are_the_runs_own_but_for_those_given(run: Path) -> None:
    (run / "config.yaml").write_text("report: {pictures: link, gone: 3}\n")
    assert call(f"run={run}") == 0
    assert "img-src data: file: 'self';" in (run / "report.html").read_text().replace("&#39;", "'")
    assert call(f"run={run}", "report.pictures=embed") == 0
    assert "img-src data:;" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected one run folder, got 0"),
        (["run=nowhere"], "expected a run folder, got "),
        (["run={}", "report.picture=link"], "picture"),
        (["run={}", "report.pictures"], "to have a value"),
        (["runs={}", "report.pictures=link"], "no setting of the report with runs="),
    ],
)
def test_bad_arguments_are_said_in_a_line(
    run: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*(argument.format(run) for argument in arguments)) == 2
    assert said in capsys.readouterr().err
    assert not (run / "report.html").exists()


def test_an_index_is_written(run: Path) -> None:
    assert call(f"run={run}") == 0
    assert call(f"runs={run.parent}") == 0
    assert f'href="{run.name}/report.html"' in (run.parent / "index.html").read_text()
