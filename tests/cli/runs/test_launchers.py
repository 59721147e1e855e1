"""Jobs of a sweep that run side by side on this machine."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from segmeter.cli.runs import launchers
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.shipped import Outcome, Shipped
from segmeter.errors import EXIT_FAULT, ConfigError


def job(number: int, **values: Any) -> Shipped:
    return Shipped(job=Job("train", (f"seed={number}",), None), values=values, plugins=(), path=())


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are not there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


class InTurn:
    """Stands for joblib, and for its pools: runs the jobs here."""

    BrokenProcessPool = RuntimeError

    def __init__(self) -> None:
        self.devices: dict[str, str] = {}
        self.externals = SimpleNamespace(loky=self)

    def effective_n_jobs(self, n_jobs: int) -> int:
        return n_jobs

    def ProcessPoolExecutor(self, **_: Any) -> Any:
        return self

    def submit(self, shipped: Shipped) -> Any:
        self.devices[shipped.job.overrides[0]] = shipped.values["device"]
        return SimpleNamespace(result=lambda timeout: Outcome(job=shipped.job))

    def shutdown(self, **_: Any) -> None:
        pass


@pytest.mark.usefixtures("gpus")
def test_jobs_take_the_gpus_in_turn_where_they_may_run_on_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: all on the first one."""
    given = [
        job(0, device="auto"),
        job(1, device="cpu"),
        job(2, device="cuda"),
        job(3, device="cuda:1"),
        job(4, device="auto"),
    ]
    joblib = InTurn()
    monkeypatch.setattr(launchers, "needed", lambda package, extra: joblib)
    found = list(launchers._by_joblib(launchers._spread(given), {"n_jobs": 2}))
    devices = [joblib.devices[each.job.overrides[0]] for each in given]
    assert devices == ["cuda:0", "cpu", "cuda:1", "cuda:1", "cuda:0"]
    assert {outcome.job for outcome in found} == {each.job for each in given}


class Deadly(Shipped):
    """A job that ends as its seed says: killed, late, or well."""

    def __call__(self) -> Outcome:
        time.sleep(0.5)  # so that another job runs beside it
        if self.values["seed"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.values["seed"] == "late":
            time.sleep(600)
        return Outcome(job=self.job, value=float(len(self.values["seed"])))


def test_a_killed_job_of_joblib_loses_no_other() -> None:
    """Mutation seen to fail: one pool for all, which breaks as a whole."""
    pytest.importorskip("joblib")
    seeds = ["a", "killed", "bb", "ccc", "killed", "dddd"]
    jobs = [
        Deadly(job=Job("train", (f"seed={n}",), None), values={"seed": seed}, plugins=(), path=())
        for n, seed in enumerate(seeds)
    ]
    found = {each.job.overrides[0]: each for each in launchers._by_joblib(jobs, {"n_jobs": 2})}
    assert [found[f"seed={n}"].value for n in range(6)] == [1.0, None, 2.0, 3.0, None, 4.0]
    for number in (1, 4):
        assert found[f"seed={number}"].exit_code == EXIT_FAULT
        assert found[f"seed={number}"].problems == (
            "its process ended without a result, as it does when it is killed or memory runs out.",
        )


def test_a_late_job_of_joblib_is_ended_and_says_so() -> None:
    pytest.importorskip("joblib")
    late = Deadly(job=Job("train", (), None), values={"seed": "late"}, plugins=(), path=())
    (found,) = launchers._by_joblib([late], {"n_jobs": 1, "timeout": 10})
    assert found.exit_code == EXIT_FAULT
    assert "It was ended after 10 seconds (hydra.launcher.timeout)." in found.problems[0]


def test_without_gpus_or_a_device_jobs_stay_as_they_are() -> None:
    given = [job(0, device="auto"), job(1)]
    assert launchers._spread(given) == given


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({}, "expected `launch` to have SLURM's srun and sbatch on the PATH, got none. Start it on a machine of the"),
        ({"srun": "exit 0"}, "expected `launch` to be a job that SLURM takes, got "),
        ({"srun": "exit 0", "sbatch": "echo invalid partition >&2; exit 1"}, "invalid partition"),
    ],
    ids=["no SLURM", "no sbatch", "refused"],
)
def test_without_a_slurm_that_takes_the_job_a_line_says_so(
    tools: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        list(launchers.by_submitit([job(0)], {"submitit_folder": tmp_path / "jobs"}, cluster="slurm"))
    (line,) = caught.value.problems
    assert said in line
    assert "\n" not in line
