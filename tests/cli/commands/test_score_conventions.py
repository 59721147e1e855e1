"""Conventions as a user asks for them: one by name, or all, with surfaces or without."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.metrics.config.conventions import CONVENTIONS
from tests.data.crafted import put

RUN = ["score", "predictions=predictions", "references=references", "data.num_classes=2", "data.task=binary"]
RUN += ["metrics.bootstrap=0", "report.html=false", "run.name=x"]


@pytest.fixture(autouse=True)
def _found_and_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, held in (("a", 1), ("b", 0)):
        target = np.zeros((12, 20), np.uint8)
        target[3:8, 3:9] = 1
        put(tmp_path / "references" / f"{name}.png", target)
        put(tmp_path / "predictions" / f"{name}.png", held * np.roll(target, 2, 1))


def run(*arguments: str) -> dict[str, Any]:
    main([*RUN, *arguments])
    (path,) = Path("runs").rglob("metrics.json")
    summary: dict[str, Any] = json.loads(path.read_text())
    return summary


def test_all_conventions_are_printed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    summary = run("metrics.convention=all", "metrics.measures=[surface]")
    entries = {entry["name"]: entry for entry in summary["conventions"]}
    assert list(entries) == list(CONVENTIONS)
    assert summary["convention"] == "segmeter"
    # the object shifted by 2 columns: 20 pixels in common of 30 + 30, its surfaces up to 2 apart; the other one missed
    assert entries["brats"]["figures"] == {
        "mean_dice": pytest.approx(2 * 20 / 60 / 2),
        "hd95": pytest.approx(187.56433),
    }
    assert entries["monai"]["figures"]["hd95"] == 2.0
    assert entries["monai"]["left_out"] == {"hd95": 1}
    assert entries["deepmind"]["figures"]["hd95"] == "inf"
    text = capsys.readouterr().out
    assert "nnunet differs from ours" in text
    assert "not copied from monai: 0.0 for the mean distance when every object was missed" in " ".join(text.split())


def test_one_convention_has_the_headline_and_ours_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    summary = run("metrics.convention=nnunet")
    assert summary["convention"] == "nnunet"
    assert summary["headline"] == {"mean_iou": pytest.approx(20 / 40 / 2), "mean_dice": pytest.approx(2 * 20 / 60 / 2)}
    assert [entry["name"] for entry in summary["conventions"]] == ["segmeter", "nnunet"]
    assert "HD95" not in capsys.readouterr().out


def test_a_misspelt_convention_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*RUN, "metrics.convention=nunet"])
    assert "Did you mean 'nnunet'" in capsys.readouterr().err
