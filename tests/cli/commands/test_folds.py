"""`segmeter train folds=...`: every fold is trained and evaluated, and the rows are joined."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from segmeter.cli import launch
from segmeter.cli.commands import _folds as folds
from segmeter.cli.config.schema import RunConfig
from segmeter.cli.folders import Job
from segmeter.cli.main import main
from segmeter.data.config import CellsConfig, FolderConfig
from segmeter.distributed.config import DaskConfig, LocalConfig, ProcessesConfig, SlurmConfig
from segmeter.distributed.shards import Rank
from segmeter.errors import ConfigError
from segmeter.inference.config import InferenceConfig
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
        (folder / "checkpoints" / "step-1").mkdir(parents=True, exist_ok=True)
        for file in ("metrics.json", "checkpoints/step-1/manifest.json"):
            (folder / file).write_text("{}")

    monkeypatch.setattr(folds, "_run", run)
    return found


def config(tmp_path: Path, **values: Any) -> Any:
    usual = {"data": DATA, "run": RunConfig(root=tmp_path, name="eyes"), "resume": None, "launch": LocalConfig()}
    model = {"device": "cpu", "plugins": (), "inference": InferenceConfig(tile=64)}
    return SimpleNamespace(**{**usual, **model, **values})


def test_each_fold_is_trained_and_evaluated_and_all_are_joined(tmp_path, started):
    job = Job("train", ("data=folder", "folds=2", "device=cpu", "inference.tile=64", "run.name=eyes"), None)
    folds.run_folds(config(tmp_path), job, 2)
    assert [each[0] for each in started] == ["train", "eval", "train", "eval", "merge"]
    assert started[0][1:5] == ["data=folder", "device=cpu", "inference.tile=64", 'data.fold="1/2"']
    assert started[3][2:5] == ['data.split="val"', 'device="cpu"', "inference.tile=64"]
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


def test_a_fold_that_was_killed_before_its_first_checkpoint_starts_anew(tmp_path, started):
    root = tmp_path / "folds" / "mine"
    (root / "train" / "2025_fold1" / "checkpoints").mkdir(parents=True)
    folds.run_folds(config(tmp_path, resume=str(root)), Job("train", (), None), 2)
    assert [each[0] for each in started] == ["train", "eval", "train", "eval", "merge"]
    assert started[0][-1] == "resume=null"
    assert started[1][1].endswith('2026_fold1"'), "the run that has a checkpoint"


def test_folds_that_can_not_be_run_or_resumed_are_refused(tmp_path, started, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("auto", "a_run/checkpoints"):
        (tmp_path / folder).mkdir(parents=True)
    resumed = "expected `resume` with folds to name the folder of a cross-validation"
    for values, said in (
        ({"data": DATA.replace(fold="1/5")}, "expected `folds` to be null"),
        ({"data": CellsConfig()}, "expected `folds` to be null"),
        ({"launch": SlurmConfig()}, "expected `folds` to be null with launch=slurm"),
        ({"launch": DaskConfig()}, "expected `folds` to be null with launch=dask"),
        *(({"resume": name}, resumed) for name in ("auto", "missing", "a_run")),
    ):
        with pytest.raises(ConfigError, match=said):
            folds.run_folds(config(tmp_path, **values), Job("train", (), None), 2)
    monkeypatch.setattr(folds, "find_rank", lambda: Rank(0, 2, 0))
    with pytest.raises(ConfigError, match="expected `folds` to be null where torchrun"):
        folds.run_folds(config(tmp_path), Job("train", (), None), 2)
    assert started == []


def test_files_of_the_users_own_reach_the_trainings_and_the_evaluation_reads_data_as_they_did(tmp_path, started):
    """A file may also set folds and resume, which would start the whole again."""
    argv = ("segmeter", "train", "--config-name", "mine", "folds=2", "-cd", "conf")
    values = {"data": DATA.replace(max_pixels=7, allow_links=True, timeout_s=5), "plugins": ("one", "größe")}
    folds.run_folds(config(tmp_path, **values), Job("train", ("folds=2",), None, argv), 2)
    assert started[0][1:3] == ["--config-name=mine", "--config-dir=conf"]
    assert started[0][-2:] == ["folds=null", "resume=null"]
    evaluated = {'plugins=["one","größe"]', "data.max_pixels=7", "data.allow_links=true", "data.timeout_s=5.0"}
    assert evaluated <= set(started[1])


def test_a_signal_is_passed_on_once(monkeypatch):
    """The terminal sends Ctrl-C to a whole group, so a command in ours would hear two signals."""
    heard: list[Any] = []

    class Child:
        def __init__(self, arguments: list[str], *, process_group: int) -> None:
            heard.append(process_group)

        def wait(self) -> int:
            heard.append("waited")
            if heard.count("waited") == 1:
                raise KeyboardInterrupt
            return 143

        def terminate(self) -> None:
            heard.append("terminated")

    monkeypatch.setattr(folds.subprocess, "Popen", Child)
    with pytest.raises(KeyboardInterrupt):
        folds._run(["train"])
    assert heard == [0, "waited", "terminated", "waited"]


def test_folds_in_a_sweep_are_refused(tmp_path, capsys):
    data = ["data=folder", f"data.root={tmp_path}", "data.classes=[background,cell]", f"run.root={tmp_path}"]
    with pytest.raises(SystemExit) as leaving:
        main(["train", "--multirun", "folds=2", "optimizer.lr=0.1,0.01", *data])
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "segmeter: config: expected `folds` to be null with --multirun, got 2.\n"
    assert not any(tmp_path.iterdir())


def test_the_trainings_are_launched_and_not_the_whole(tmp_path, started, monkeypatch):
    monkeypatch.setattr(launch, "find_command", lambda name: lambda config, job: folds.run_folds(config, job, 2))
    job = Job("train", ("folds=2", "launch=processes"), None)
    launch.run_job(config(tmp_path, folds=2, launch=ProcessesConfig()), job)
    assert ["launch=processes" in each for each in started] == [True, False, True, False, False]


class Cases(list):
    """As much of a data set as advice needs."""

    case_ids = property(tuple)


def test_few_images_pairs_and_a_small_validation_are_pointed_out(capsys, caplog):
    names = [f"Image_{number:02}{side}" for number in range(4) for side in "LR"]
    folds.advise(DATA, Cases(names[:6]), Cases(names[6:]))
    out = capsys.readouterr().out
    assert "8 images: `segmeter train folds=5" in out
    assert "4 names with a left and a right side: data.group_by=pair" in out
    assert "validation on two images" in caplog.text


@pytest.mark.slow
def test_a_whole_cross_validation_has_each_case_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    root = make_folder(tmp_path / "set", tuple(f"eye{i}{side}" for i in range(2) for side in "LR"))
    data = ["data=folder", f"data.root={root}", "data.task=binary", "data.classes=[background,cell]"]
    short = ["model.encoder=resnet18", "training.steps=1", "training.batch_size=2", "training.workers=0", "device=cpu"]
    main(["train", "folds=2", *data, *short, f"run.root={tmp_path / 'runs'}", "data.group_by=pair", "run.name=eyes"])
    (merged,) = (tmp_path / "runs" / "folds").glob("*/merge/*/metrics.json")
    assert json.loads(merged.read_text())["n_cases"] == 4
