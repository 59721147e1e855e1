"""`segmeter train folds=...`: every fold is trained and evaluated, and the rows are joined."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from segmeter.cli.commands import _folds as folds
from segmeter.cli.config.schema import RunConfig
from segmeter.cli.main import main
from segmeter.cli.runs.run_folder import Job
from segmeter.data.config import CellsConfig, FolderConfig
from segmeter.errors import ConfigError
from segmeter.training.config import TrainingConfig
from tests.data.crafted import make_folder

DATA = FolderConfig(root="eyes", classes=("background", "cell"))


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run; each leaves the folder that it would."""
    found: list[list[str]] = []

    def run(arguments: list[str]) -> None:
        found.append(arguments)
        root, name = (
            next(line.partition("=")[2].strip('"') for line in arguments if line.startswith(key))
            for key in ("run.root", "run.name")
        )
        folder = Path(root) / arguments[0] / f"2026_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text("{}")

    monkeypatch.setattr(folds, "_run", run)
    return found


def config(tmp_path: Path, **values: Any) -> Any:
    return SimpleNamespace(**{"data": DATA, "run": RunConfig(root=tmp_path, name="eyes"), "resume": None, **values})


def test_each_fold_is_trained_and_evaluated_and_all_are_joined(tmp_path, started):
    job = Job("train", ("data=folder", "folds=2", "device=cpu", "inference.tile=64", "run.name=eyes"), None)
    folds.run_folds(config(tmp_path), job, 2)
    assert [each[0] for each in started] == ["train", "eval", "train", "eval", "merge"]
    assert started[0][1:5] == ["data=folder", "device=cpu", "inference.tile=64", 'data.fold="1/2"']
    assert started[3][2:5] == ['data.split="val"', "device=cpu", "inference.tile=64"]
    assert "2026_fold2" in started[3][1]
    assert started[4][1].count("2026_fold") == 2
    assert 'kind="folds"' in started[4]


def test_a_cross_validation_that_was_stopped_goes_on(tmp_path, started):
    """Mutation seen to fail: an evaluation that is done, done again."""
    job = Job("train", ("data=folder",), None)
    folds.run_folds(config(tmp_path), job, 3)
    (root,) = (tmp_path / "folds").iterdir()
    (root / "eval" / "2026_fold2" / "metrics.json").unlink()
    started.clear()
    folds.run_folds(config(tmp_path, resume=str(root)), job, 3)
    assert [each[0] for each in started] == ["train", "train", "eval", "train", "merge"]
    assert f'resume="{root / "train" / "2026_fold1"}"' in started[0]


@pytest.mark.parametrize("data", [DATA.replace(fold="1/5"), CellsConfig()], ids=["a fold", "drawn cells"])
def test_folds_of_one_fold_or_of_drawn_data_are_refused(tmp_path, started, data):
    with pytest.raises(ConfigError, match="expected `folds` to be null"):
        folds.run_folds(config(tmp_path, data=data), Job("train", (), None), 5)
    assert started == []


def test_few_images_pairs_and_a_small_validation_are_pointed_out(capsys, caplog):
    names = [f"Image_{number:02}{side}" for number in range(4) for side in "LR"]
    given: Any = SimpleNamespace(data=DATA, training=TrainingConfig())
    folds.advise(given, Cases(names[:6]), Cases(names[6:]))
    out = capsys.readouterr().out
    assert "8 images: `segmeter train folds=5" in out
    assert "4 names with a left and a right side: data.group_by=pair" in out
    assert "validation on two images" in caplog.text


class Cases:
    """As much of a data set as advice needs."""

    def __init__(self, names: list[str]) -> None:
        self.case_ids = tuple(names)

    def __len__(self) -> int:
        return len(self.case_ids)


@pytest.mark.slow
def test_a_whole_cross_validation_has_each_case_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    root = make_folder(tmp_path / "set", tuple(f"eye{i}{side}" for i in range(2) for side in "LR"))
    data = ["data=folder", f"data.root={root}", "data.task=binary", "data.classes=[background,cell]"]
    short = ["model.encoder=resnet18", "training.steps=1", "training.batch_size=2", "training.workers=0", "device=cpu"]
    main(["train", "folds=2", *data, *short, f"run.root={tmp_path / 'runs'}", "data.group_by=pair", "run.name=eyes"])
    (merged,) = (tmp_path / "runs" / "folds").glob("*/merge/*/metrics.json")
    assert json.loads(merged.read_text())["n_cases"] == 4
