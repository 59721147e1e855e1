"""`segmeter plan` as a user types it."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.main import main
from tests.cli.commands.test_compare import make_run


def plan(*arguments: str) -> Path:
    main(["plan", *arguments, "metrics.bootstrap=1000", "run.root=out", "run.name=x"])
    return max(Path("out/plan").iterdir())


def test_a_run_is_planned_for_and_its_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "pilot", wrong=2, cases=24)
    folder = plan("run=pilot", "width=0.02")
    printed = capsys.readouterr().out
    assert "95 % interval of width 0.02: cases needed" in printed
    written = json.loads((folder / "plan.json").read_text())
    assert f"{written['rows'][0]['width']['units']:,}" in printed
    ElementTree.fromstring((folder / "plan.svg").read_text())
    drawn = np.asarray(Image.open(folder / "plan.png"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 10
    page = (folder / "report.html").read_text()
    assert "What a statistician would object" in page
    assert "<polyline" in page


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["width=0.05"], "config: expected `runs` to be given, or else sd"),
        (["sd=0.1"], "config: expected `width` to be given, or else detect"),
        (["run=pilot", "detect=0.01"], "`runs` to be [BASE,NEW] for detect"),
        (["run=pilot", "sd=0.1", "width=0.05"], "`runs` to be given, or else sd"),
        (["run=pilot", "width=0"], "`width`"),
        (["run=gone", "width=0.05"], "gone"),
    ],
    ids=["no pilot", "no aim", "one run", "two pilots", "no width", "no run"],
)
def test_a_plan_without_pilot_or_aim_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "pilot", wrong=2)
    with pytest.raises(SystemExit) as ended:
        plan(*arguments)
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
    assert not Path("out").exists()


def test_the_schema_of_the_file_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "plan.json"])
    schema = json.loads(capsys.readouterr().out)
    assert {"rows", "width", "detect"} <= schema["properties"].keys()
