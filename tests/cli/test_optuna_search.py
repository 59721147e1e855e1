"""hydra/sweeper=optuna: what is searched and in which direction, searches that go on, and what is refused."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from segmeter.cli.config.hydra_rules import SearchConfig
from segmeter.cli.engines import JobOutcome
from segmeter.cli.folders import Job
from segmeter.cli.optuna_search import search
from segmeter.errors import ConfigError, SweepError
from tests.cli.sharded import PLAIN as SCORE
from tests.cli.sharded import folders, run

optuna = pytest.importorskip("optuna", reason="optuna is not installed: it comes with `make test`")

FAST = ["metrics.bootstrap=10", "report.html=false"]
pytestmark = pytest.mark.usefixtures("in_here")


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """A database of trials, whose connections are closed at the end."""
    store = optuna.storages.RDBStorage(address)
    yield store
    store.engine.dispose()


class Plan:
    """Stands for a multirun: gives each job the score that a function has at its values."""

    def __init__(self, folder: Path, score: Callable[[dict[str, str]], float | None], **options: Any) -> None:
        self.folder, self.score = folder, score
        self.options = SearchConfig(**{"seed": 1, "direction": "maximize", **options})
        self.tried: list[dict[str, str]] = []
        self.lines: list[tuple[str, ...]] = []
        self.sizes: list[int] = []

    def job(self, number: int, lines: Sequence[str], chosen: dict[str, str]) -> Job:
        self.tried.append(chosen)
        self.lines.append(tuple(lines))
        return Job("score", tuple(lines), self.folder / str(number))

    def run(self, asked: Sequence[tuple[Any, Job]]) -> list[JobOutcome]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sizes.append(len(asked))
        given = [dict(line.split("=", 1) for line in job.overrides) for _, job in asked]
        return [JobOutcome(job=job, value=self.score(values)) for (_, job), values in zip(asked, given, strict=True)]


OWN = SimpleNamespace(objective="own")  # a metric whose direction nobody knows


def searched(plan: Plan, *overrides: str, config: Any = OWN) -> Plan:
    search(plan, config, overrides, lambda lines: None)  # type: ignore[arg-type]
    return plan


def test_values_are_those_that_the_overrides_name(tmp_path: Path) -> None:
    """Mutation seen to fail: the end of a range included."""
    given = ["a=int(interval(1,3))", "b=interval(0.5,0.75)", "c=range(0,6,2)", "d=x,y"]
    given += ["e=tag(log, interval(1e-4,1e-1))", "fixed=3", "hydra.mode=X"]
    plan = searched(Plan(tmp_path, lambda values: float(values["b"]), n_trials=25), *given)
    tried = plan.tried
    assert len(tried) == 25
    assert {each["a"] for each in tried} == {"1", "2", "3"}
    assert all(0.5 <= float(each["b"]) <= 0.75 for each in tried)
    assert {each["c"] for each in tried} == {"0", "2", "4"}
    assert {each["d"] for each in tried} == {"x", "y"}
    assert sum(float(each["e"]) < 1e-2 for each in tried) >= 5, "a third of the values, were they not logarithmic"
    assert all("fixed=3" in lines and "hydra.mode=X" not in lines for lines in plan.lines)


@pytest.mark.parametrize(("line", "wanted"), [
    ("a=range(0,5,2)", ["0", "2", "4"]),
    ("a=range(5,0,-2)", ["1", "3", "5"]),
    ("a=range(0.2,0.8,0.2)", ["0.2", "0.4", "0.6"]),
    ("a=range(0.5,3)", ["0.5", "1.5", "2.5"]),
])  # fmt: skip
def test_the_stop_of_a_range_is_not_tried(line: str, wanted: list[str], tmp_path: Path) -> None:
    """As a sweep over all of its values has it. Mutation seen to fail: floats up to and with their stop."""
    plan = searched(Plan(tmp_path, lambda values: 1.0, n_trials=20), line)
    assert sorted({f"{float(each['a']):g}" for each in plan.tried}) == wanted


def test_a_seed_decides_what_is_tried_by_as_many_at_once_as_are_left(tmp_path: Path) -> None:
    plans = [Plan(tmp_path, lambda values: 1.0, n_trials=5, n_jobs=3, seed=seed) for seed in (5, 5, 6)]
    tried = [searched(plan, "a=interval(0,1)").tried for plan in plans]
    assert tried[0] == tried[1] != tried[2]
    assert plans[0].sizes == [3, 2]
    for line in ("a=tag(log, range(1,9))", "a=tag(log, choice(1,2))"):
        with pytest.raises(ConfigError, match="`hydra/sweeper` to have log on an interval alone, got 'a=tag"):
            searched(plans[0], line)


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_a_job_without_a_score_failed(nothing: float | None, tmp_path: Path) -> None:
    plan = Plan(tmp_path, lambda values: nothing if values["a"] == "1" else 0.5, n_trials=6)
    with pytest.raises(SweepError) as error:
        searched(plan, "a=0,1")
    lines = error.value.problems
    count = sum(each["a"] == "1" for each in plan.tried)
    assert 0 < count < 6
    assert sum(f"ended with 3: it gave no score to optimise, but {nothing}." in line for line in lines) == count
    assert lines[-1].startswith(f"sweep: {count} of {count} jobs failed")


def test_the_direction_of_a_metric_of_the_users_own_must_be_said(tmp_path: Path) -> None:
    told = r"`hydra\.sweeper\.direction` to be maximize or minimize for objective=own, got None"
    with pytest.raises(ConfigError, match=told):
        searched(Plan(tmp_path, lambda values: 1.0, direction=None), "a=0,1")


OPTUNA = ["hydra/sweeper=optuna", "hydra.sweeper.seed=1", "metrics.seed=range(0,100)", "missing=error,as_background"]


@pytest.mark.slow
def test_optuna_goes_on_from_its_storage_after_a_kill(here: Path, tmp_path: Path) -> None:
    """Mutation seen to fail: trials that a killed process left running counted as done."""
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    arguments = [*SCORE, *FAST, *OPTUNA, f"hydra.sweep.dir={tmp_path / 'out'}", f"hydra.sweeper.storage={storage}"]
    command = [sys.executable, "-m", "segmeter", "score", "-m", *arguments, "hydra.sweeper.n_trials=200"]
    first = subprocess.Popen(command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(folders(tmp_path / "out")) < 3 and first.poll() is None:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    with opened(storage) as store:
        before = optuna.load_study(study_name="segmeter", storage=store).trials
    wanted = len(before) + 3
    assert run("score", "-m", *arguments, f"hydra.sweeper.n_trials={wanted}") == 0
    with opened(storage) as store:
        trials = optuna.load_study(study_name="segmeter", storage=store).trials
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    assert len(complete) == wanted
    done = folders(tmp_path / "out")
    assert len({trial.value for trial in complete}) == 1, "a seed of the bootstrap changes no score"
    assert {int(name.partition("_")[0]) for name in done} >= {trial.number for trial in complete}


def test_optuna_refuses_what_it_can_not_search(refused) -> None:
    assert "to have values to search" in refused("score", "-m", *SCORE, *FAST, "hydra/sweeper=optuna")
    wrong = ["hydra.sweeper.direction=up", "hydra.sweeper.n_trials=0"]
    lines = refused("score", "-m", *SCORE, *FAST, *OPTUNA, *wrong)
    assert "`hydra.sweeper.direction` to be one of maximize, minimize or null, got 'up'" in lines
    assert "`hydra.sweeper.n_trials` to be an integer >= 1, got 0" in lines


LOSS = ["hydra/sweeper=optuna", "training.monitor=loss", "optimizer.lr=1e-9,1e-2", "data=cells"]


def test_optuna_refuses_a_direction_that_the_monitor_has_not(tmp_path, refused):
    """Mutation seen to fail: any direction taken (the search looks for the highest loss)."""
    said = refused("train", "-m", *LOSS, "hydra.sweeper.direction=maximize")
    assert "to be null or minimize for training.monitor=loss, got maximize" in said
    said = refused("train", "-m", LOSS[0], "data=cells", "training.monitor=loss,mean_iou")
    assert "`training.monitor` to be one metric in all trials" in said
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    with opened(storage) as store:
        optuna.create_study(storage=store, study_name="old", direction="maximize")
    said = refused("train", "-m", *LOSS, f"hydra.sweeper.storage={storage}", "hydra.sweeper.study_name=old")
    assert "to be a study that has its score minimized, got 'old'" in said
    for wrong in ("search.db", f"sqlite:///{tmp_path}/missing/search.db"):
        said = refused("train", "-m", *LOSS, f"hydra.sweeper.storage={wrong}")
        assert f"hydra.sweeper.storage '{wrong}' can't be opened" in said
    assert not Path("runs/multirun").exists()


def test_optuna_searches_in_the_direction_of_the_objective(tmp_path: Path, refused, capsys) -> None:
    """Distances in two spacings, the smaller of which is the better score. Mutation seen to fail: always maximize."""
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    line = ["score", "-m", *SCORE, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.seed=1", *FAST]
    line += ["metrics.measures=[surface]", "objective=masd/class_1", f"hydra.sweeper.storage={storage}"]
    line += ["metrics.spacing=choice([1.0,1.0],[2.0,2.0])"]
    said = refused(*line, "hydra.sweeper.direction=maximize")
    assert "to be null or minimize for objective=masd/class_1, got maximize" in said
    said = refused("score", "-m", *SCORE, "hydra/sweeper=optuna", "objective=mean_iou,mean_dice")
    assert "`objective` to be one metric in all trials" in said
    assert run(*line) == 0
    with opened(storage) as store:
        assert optuna.load_study(study_name="segmeter", storage=store).direction.name == "MINIMIZE"
    assert "masd/class_1" in capsys.readouterr().out
