"""Sweeps in every launcher: a job that fails ends the command with its code and line, and the others' results stay."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.sharded import make_masks, run
from tests.cli.test_launched import TRAIN

SCORE = ["predictions=predictions", "references=masks", "data.num_classes=3", "data.ignore_index=255"]
FAST = ["metrics.bootstrap=10", "report.html=false", "hydra.sweep.dir=out"]
PLUGIN = """
import os, signal
from segmeter.cli.commands import score
before = score.run
def run(config, job):
    if config.run.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return before(config, job)
score.run = run
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    make_masks(root)
    (root / "sweep_plugin.py").write_text(PLUGIN)
    return root


@pytest.fixture(autouse=True)
def _in_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)


def folders(out: str) -> dict[str, dict[str, object]]:
    """The summary of each job that was done."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(Path(out).glob("*/metrics.json"))}


@pytest.mark.parametrize("launcher", ["basic", "joblib", pytest.param("submitit_local", marks=pytest.mark.slow)])
def test_a_failing_job_ends_the_command_and_leaves_the_others(
    launcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation seen to fail: outcomes of other processes dropped."""
    more = {"joblib": ["hydra.launcher.n_jobs=2"], "submitit_local": ["hydra.launcher.timeout_min=5"]}.get(launcher, [])
    broken = [f"hydra.sweep.dir={tmp_path / 'out'}", f"hydra/launcher={launcher}", *more]
    swept = ["data.num_classes=3,2", "missing=error,as_background"]  # of two classes, the third label is refused
    assert run("score", "-m", *SCORE[:2], *SCORE[3:], *FAST[:2], *broken, *swept) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("segmeter: sweep:")]
    assert any("sweep: job 2 (" in line and "data.num_classes=2" in line and "ended with 2: " in line for line in lines)
    assert lines[-1] == f"segmeter: sweep: 2 of 4 jobs failed; the results of the others are in {tmp_path / 'out'}."
    done = folders(str(tmp_path / "out"))
    assert [name.partition("_")[0] for name in done] == ["0", "1"]
    assert {one["n_cases"] for one in done.values()} == {11}


def test_plugins_load_in_the_child_and_a_killed_job_is_named(here: Path, tmp_path: Path) -> None:
    """The plugin kills the process of one job; without it in the child that job would end well."""
    arguments = [*SCORE, *FAST[:2], f"hydra.sweep.dir={tmp_path / 'out'}", "plugins=[sweep_plugin]"]
    arguments += ["hydra/launcher=submitit_local", "run.name=fine,killed"]
    code = "import sys; sys.path.insert(0, ''); from segmeter.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "score", "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 3, done.stderr
    assert "sweep: job 1 (" in done.stderr
    assert "its process ended without a result" in done.stderr
    assert len(folders(str(tmp_path / "out"))) == 1


OPTUNA = ["hydra/sweeper=optuna", "hydra.sweeper.seed=1", "metrics.seed=range(0,100)", "missing=error,as_background"]


def test_optuna_goes_on_from_its_storage_after_a_kill(here: Path, tmp_path: Path) -> None:
    """Mutation seen to fail: trials that a killed process left running counted as done."""
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    arguments = [*SCORE, *FAST[:2], *OPTUNA, f"hydra.sweep.dir={tmp_path / 'out'}", f"hydra.sweeper.storage={storage}"]
    command = [sys.executable, "-m", "segmeter", "score", "-m", *arguments, "hydra.sweeper.n_trials=200"]
    first = subprocess.Popen(command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(folders(str(tmp_path / "out"))) < 3 and first.poll() is None:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = optuna.load_study(study_name="segmeter", storage=storage).trials
    wanted = len(before) + 3
    assert run("score", "-m", *arguments, f"hydra.sweeper.n_trials={wanted}") == 0
    trials = optuna.load_study(study_name="segmeter", storage=storage).trials
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    assert len(complete) == wanted
    assert not [trial for trial in trials if trial.state.name in ("RUNNING", "WAITING")]
    again = {trial.user_attrs["lost"] for trial in trials if "lost" in trial.user_attrs}
    assert again == {trial.number for trial in trials if trial.state.name == "FAIL"}
    done = folders(str(tmp_path / "out"))
    assert len({trial.value for trial in complete}) == 1, "a seed of the bootstrap changes no score"
    assert {int(name.partition("_")[0]) for name in done} >= {trial.number for trial in complete}


def test_optuna_refuses_what_it_can_not_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("score", "-m", *SCORE, *FAST, "hydra/sweeper=optuna") == 2
    assert "to have values to search" in capsys.readouterr().err
    assert run("score", "-m", *SCORE, *FAST, *OPTUNA, "hydra.sweeper.direction=up", "hydra.sweeper.n_trials=0") == 2
    lines = capsys.readouterr().err
    assert "`hydra.sweeper.direction` to be null, maximize or minimize, got 'up'" in lines
    assert "`hydra.sweeper.n_trials` to be an integer >= 1, got 0" in lines


LOSS = ["hydra/sweeper=optuna", "training.monitor=loss", "optimizer.lr=1e-9,1e-2", "data=cells"]


def test_optuna_refuses_a_direction_that_the_monitor_has_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation seen to fail: any direction taken (the search looks for the highest loss)."""
    optuna = pytest.importorskip("optuna")
    assert run("train", "-m", *LOSS, "hydra.sweeper.direction=maximize") == 2
    assert "to be null or minimize for training.monitor=loss, got maximize" in capsys.readouterr().err
    assert run("train", "-m", LOSS[0], "data=cells", "training.monitor=loss,mean_iou") == 2
    assert "`training.monitor` to be one figure in all trials" in capsys.readouterr().err
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    optuna.create_study(storage=storage, study_name="old", direction="maximize")
    assert run("train", "-m", *LOSS, f"hydra.sweeper.storage={storage}", "hydra.sweeper.study_name=old") == 2
    assert "to be a study that has its score minimized, got 'old'" in capsys.readouterr().err
    assert not Path("runs/multirun").exists()


def test_optuna_looks_for_the_lowest_loss(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    options = ["hydra.sweeper.n_trials=2", "hydra.sweeper.seed=1", f"hydra.sweeper.storage={storage}"]
    options += [f"hydra.sweep.dir={tmp_path / 'out'}", "training.epochs=1"]
    training = [each for each in TRAIN if not each.startswith("training.epochs")]
    assert run("train", "-m", *training, LOSS[0], LOSS[1], "data.seed=1,2", *options) == 0
    study = optuna.load_study(study_name="segmeter", storage=storage)
    losses = [trial.value for trial in study.trials]
    assert study.direction.name == "MINIMIZE"
    assert study.best_value == min(losses)
