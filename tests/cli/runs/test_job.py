"""One job: the command that runs it, here or where its `launch` says, and the folder of a sweep."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from segmeter.cli.runs.job import Job, run_job, sweep_folder

JOB = Job("score", ("seed=1",), None, ("segmeter", "score", "seed=1"))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Job]]:
    """What was called with which configuration, in place of the commands."""
    calls: list[tuple[str, Any, Job]] = []
    for name, function in (("commands.score", "run"), ("launched", "run_launched")):
        module = ModuleType(name)
        setattr(module, function, lambda config, job, name=name: (calls.append((name, config, job)), len(calls))[1])
        monkeypatch.setitem(sys.modules, f"segmeter.cli.{name}", module)
    return calls


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (SimpleNamespace(launch=SimpleNamespace(name="local")), "commands.score"),
        (SimpleNamespace(launch=SimpleNamespace(name="processes")), "launched"),
        (SimpleNamespace(launch=SimpleNamespace(name="slurm")), "launched"),
        (SimpleNamespace(), "commands.score"),
    ],
    ids=["local", "processes", "slurm", "a command that runs only here"],
)
def test_a_job_runs_where_its_configuration_says(config: Any, where: str, called: list[tuple[str, Any, Job]]) -> None:
    assert run_job("score", config, JOB) == 1
    assert called == [(where, config, JOB)]


def test_a_sweep_has_a_folder_of_its_time_and_process(tmp_path: Path) -> None:
    found = sweep_folder(tmp_path)
    assert found.parent == tmp_path / "multirun"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d{6}_\d+", found.name)
    assert not found.parent.exists(), "nothing is made before the first job"
