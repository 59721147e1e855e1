"""`segmeter report` as a user types it."""

from functools import partial
from pathlib import Path

import pytest

from segmeter.files import write_json
from tests.cli.sharded import run as main_code

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
