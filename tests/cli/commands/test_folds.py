"""`segmeter train folds=...`: every fold is trained and evaluated, and the rows are joined."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from segmeter.cli import launch
from segmeter.cli.commands import _folds as folds
from segmeter.cli.config.command_configs import RunConfig
from segmeter.cli.folders import Job
from segmeter.data.config import CellsConfig, FolderConfig
from segmeter.distributed.config import DaskConfig, LocalConfig, ProcessesConfig, SlurmConfig
from segmeter.distributed.shards import Rank
from segmeter.errors import ConfigError
from segmeter.inference.config import InferenceConfig
from tests.cli.sharded import run
from tests.data.crafted import make_folder, put

DATA = FolderConfig(root="eyes", classes=("background", "cell"))


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run; each leaves the folder that it would."""
    found: list[list[str]] = []

    def leave(arguments: list[str]) -> None:
        found.append(arguments)
        given = {key: value.strip('"') for key, _, value in (line.partition("=") for line in arguments)}
        folder = Path(given["run.root"]) / arguments[0] / f"2026_{given['run.name']}"
        for file in ("metrics.json", "checkpoints/step-1/manifest.json"):
            put(folder / file, "{}")

    monkeypatch.setattr(folds, "_run", leave)
    return found


def config(tmp_path: Path, **values: Any) -> Any:
    usual = {"data": DATA, "run": RunConfig(root=tmp_path, name="eyes"), "resume": None, "launch": LocalConfig()}
    usual |= {"device": "cpu", "plugins": (), "inference": InferenceConfig(tile=64)}
    return SimpleNamespace(**(usual | values))


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


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize(("values", "said"), [
    ({"data": DATA.replace(fold="1/5")}, "expected `folds` to be null"),
    ({"data": CellsConfig()}, "expected `folds` to be null"),
    ({"launch": SlurmConfig()}, "expected `folds` to be null with launch=slurm"),
    ({"launch": DaskConfig()}, "expected `folds` to be null with launch=dask"),
    ({"rank": Rank(0, 2, 0)}, "expected `folds` to be null where torchrun"),
    *(({"resume": name}, "expected `resume` with folds to name the folder") for name in ("auto", "missing", "a_run")),
], ids=["fold", "cells", "slurm", "dask", "torchrun", "auto", "missing", "a run"])  # fmt: skip
def test_folds_that_can_not_be_run_or_resumed_are_refused(values, said, tmp_path, started, monkeypatch):
    for folder in ("auto", "a_run/checkpoints"):
        Path(folder).mkdir(parents=True)
    monkeypatch.setattr(folds, "find_rank", lambda: values.get("rank"))
    with pytest.raises(ConfigError, match=said):
        folds.run_folds(config(tmp_path, **values), Job("train", (), None), 2)
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
    child = Mock()
    child.wait.side_effect = [KeyboardInterrupt, 143]
    started = Mock(return_value=child)
    monkeypatch.setattr(folds.subprocess, "Popen", started)
    with pytest.raises(KeyboardInterrupt):
        folds._run(["train"])
    assert started.call_args.kwargs == {"process_group": 0}
    assert [name for name, *_ in child.method_calls] == ["wait", "terminate", "wait"]


def test_folds_in_a_sweep_are_refused(tmp_path, refused):
    data = ["data=folder", f"data.root={tmp_path}", "data.classes=[background,cell]", f"run.root={tmp_path}"]
    said = refused("train", "--multirun", "folds=2", "optimizer.lr=0.1,0.01", *data)
    assert said == "segmeter: config: expected `folds` to be null with --multirun, got 2.\n"
    assert not any(tmp_path.iterdir())


def test_the_trainings_are_launched_and_not_the_whole(tmp_path, started, monkeypatch):
    monkeypatch.setattr(launch, "load_command", lambda name: lambda config, job: folds.run_folds(config, job, 2))
    job = Job("train", ("folds=2", "launch=processes"), None)
    launch.run_job(config(tmp_path, folds=2, launch=ProcessesConfig()), job)
    assert ["launch=processes" in each for each in started] == [True, False, True, False, False]


@pytest.mark.slow
def test_a_whole_cross_validation_has_each_case_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    root = make_folder(tmp_path / "set", tuple(f"eye{i}{side}" for i in range(2) for side in "LR"))
    data = ["data=folder", f"data.root={root}", "data.task=binary", "data.classes=[background,cell]"]
    short = ["model.encoder=resnet18", "training.steps=1", "training.batch_size=2", "training.workers=0", "device=cpu"]
    more = [f"run.root={tmp_path / 'runs'}", "data.group_by=pair", "run.name=eyes"]
    assert run("train", "folds=2", *data, *short, *more) == 0
    (merged,) = (tmp_path / "runs" / "folds").glob("*/merge/*/metrics.json")
    assert json.loads(merged.read_text())["n_cases"] == 4
