"""`segmeter compare ... require=...` as a pipeline runs it: exit codes, and the summary for a pull request."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.summary.summarise import summarise
from tests.cli.sharded import run
from tests.data.crafted import BINARY

code_of = partial(run, "compare")

FEW = "metrics.bootstrap=1000"


def make_run(name: str, missed: list[int], spec: ClassSpec = BINARY) -> None:
    """A finished run whose cases miss so many of their object's 100 pixels."""
    rows = [
        CaseRow(case_id=f"c{i:02d}-{'AB'[i % 2]}", height=20, width=25, counts=np.array([[400, 0], [m, 100 - m]]))
        for i, m in enumerate(missed)
    ]
    Path(name).mkdir()
    write_cases(Path(name), rows, spec)
    Path(name, "metrics.json").write_text(json.dumps(summarise(rows, spec)))


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = [10 + i % 7 for i in range(24)]
    make_run("base", base)
    make_run("same", base)
    make_run("worse", [m + 10 + i % 3 for i, m in enumerate(base)])
    make_run("noisy", [m + (9 if i % 2 else -8) for i, m in enumerate(base)])


def summary() -> tuple[dict, str]:
    (folder,) = Path("runs/compare").iterdir()
    assert json.loads((folder / "run.json").read_text())["state"] == "done"
    return json.loads((folder / "compare.json").read_text()), (folder / "compare.md").read_text()


def test_a_run_that_is_as_good_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("runs=[base,same]", "require=iou/cell >= base - 0.005", FEW) == 0
    result, text = summary()
    assert result["gate"]["outcome"] == "pass"
    assert text.startswith("## segmeter: every requirement is met\n")
    assert "| iou/cell &gt;= base - 0.005 | 0.8725 | 0.8725 | +0.0000 | +0.0050 | [0.005, 0.005] | met |" in text
    assert "iou/cell >= base - 0.005" in capsys.readouterr().out


def test_a_run_that_is_worse_ends_with_4_and_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("runs=[base,worse]", "require=[iou/cell >= base - 0.005, recall/cell >= 0.5]", FEW) == 4
    result, text = summary()
    assert [entry["outcome"] for entry in result["gate"]["requirements"]] == ["regression", "pass"]
    assert text.startswith("## segmeter: regression\n")
    page = next(Path("runs/compare").glob("*/compare.html")).read_text()
    assert '<h2 id="required">' in page
    assert ">iou/cell &gt;= base - 0.005</a></b></td>" in page
    error = capsys.readouterr().err
    assert "segmeter: iou/cell >= base - 0.005: REGRESSION, margin -0.1" in error
    assert "]; new minus base -0.1" in error
    assert " worse\n" in error
    assert "recall/cell" not in error


def test_what_cannot_be_told_ends_with_5_and_names_the_cases_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("runs=[base,noisy]", "require=iou/cell >= base", FEW) == 5
    error = capsys.readouterr().err
    assert "can't be told from 24 cases" in error
    assert "cases like these would tell" in error
    _, text = summary()
    assert text.startswith("## segmeter: can't be told from these cases\n")
    assert "cases like these would tell" in text


def test_a_slice_can_be_required_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    slices = "metrics.slice_by=['-(.)']"
    assert code_of("runs=[base,noisy]", "require=iou/cell[-(.)=B] >= base - 0.02", slices, FEW) == 4
    printed = capsys.readouterr().out
    assert "IoU of cell by slice: noisy (new) minus base (base)" in printed
    result, text = summary()
    assert result["slices"][0]["by"]["-(.)"]["A"]["scores"]["iou/cell"]["difference"] > 0
    assert "**IoU of cell by slice: noisy (new) minus base (base)**" in text
    assert '<h2 id="slices">' in next(Path("runs/compare").glob("*/compare.html")).read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["require=iou/cell > base"], "to be METRIC >= BOUND"),
        (["require=iou/cel >= base"], "Did you mean 'iou/cell'?"),
        (["require=iou/cell <= base"], "as higher is better"),
        (["require='iou/cell[ward=A] >= base'"], "Set metrics.slice_by."),
    ],
)
def test_requirements_that_mean_nothing_end_with_2(arguments, message, capsys):
    assert code_of("runs=[base,same]", *arguments, FEW) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_names_of_runs_and_classes_cannot_write_markdown() -> None:
    evil = BINARY.replace(names=("background", "a|b <i> @all [x](y)"))
    for name in ("one", "two"):
        make_run(name, [1, 2, 3, 4, 5, 6], evil)
    assert code_of("runs=[one,two]", FEW) == 0
    _, text = summary()
    page = next(Path("runs/compare").glob("*/compare.html")).read_text()
    assert "<i>" not in page
    assert "a|b &lt;i&gt; @all [x](y)" in page
    assert "IoU of a\\|b &lt;i&gt; &#64;all \\[x\\](y)" in text
