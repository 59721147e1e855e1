"""`segmeter suspects` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from segmeter.cli.main import main
from tests.evaluation.decisions.test_label_next import make_run as make_prediction
from tests.evaluation.decisions.test_suspects import NAMES, make_data, make_run

CODE = "import sys; from segmeter.cli.main import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"


def evaluation(root: Path, split: str = "test") -> Path:
    """A run of eval with a configuration that names its data."""
    run = make_run(root / "evaluated", make_data(root / "data"))
    (root / "data" / "test.txt").write_text("\n".join(NAMES))
    values = {"name": "folder", "root": str(root / "data"), "lists": ".", "split": split}
    values |= {"task": "binary", "classes": ["ground", "cell"], "in_channels": 3}
    config = {"checkpoint": "x", "data": values, "loss": {"name": "focal"}}
    config |= {name: {} for name in ("inference", "export", "postprocess", "metrics", "report")}
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"launch": {"name": "local"}}))
    return run


def test_suspects_are_listed_and_drawn(tmp_path: Path) -> None:
    run = evaluation(tmp_path)
    command = [sys.executable, "-W", "error", "-c", CODE, "suspects", f"runs=[{run}]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "missing cell" in done.stdout
    (folder,) = (tmp_path / "runs" / "suspects").iterdir()
    assert (folder / "crops" / "1.webp").is_file()
    page = (folder / "suspects.html").read_text()
    assert "missing cell in a" in page
    assert ">copy ids</button>" in page
    assert "not a verdict" in page
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_a_run_on_its_training_cases_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scored").mkdir()
    (tmp_path / "scored" / "run.json").write_text('{"command": "score", "state": "done"}')
    for runs, told in (
        (evaluation(tmp_path, "train"), "their model never saw"),
        (tmp_path, "to be runs of eval"),
        (tmp_path / "scored", "scored, of score. Give the folder"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["suspects", f"runs=[{runs}]"])
        assert left.value.code == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_images_to_label_next_have_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_prediction(tmp_path / "one", {"x": 0.5, "y": 0.1})
    make_prediction(tmp_path / "two", {"x": 0.5, "y": 0.9})
    main(["suspects", "runs=[one,two]", "order=label_next"])
    (folder,) = (tmp_path / "runs" / "suspects").iterdir()
    assert json.loads((folder / "label_next.json").read_text())["images"][0]["case_id"] == "y"
    assert np.char.find((folder / "label_next.html").read_text(), "not a random sample") > 0
