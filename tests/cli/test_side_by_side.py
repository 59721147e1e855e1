"""Jobs of a sweep that run side by side on this machine, and those that SLURM does not take."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from segmeter.cli.engines import Outcome, by_submitit, in_processes
from segmeter.cli.folders import Job
from segmeter.cli.launch import Shipped, _spread, check_gpus
from segmeter.distributed.config import SlurmConfig
from segmeter.errors import EXIT_FAULT, ConfigError


def job(number: int, **values: Any) -> Shipped:
    return Shipped(job=Job("train", (f"seed={number}",), None), values=values, plugins=(), path=())


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are not there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("gpus")
def test_jobs_take_the_gpus_in_turn_where_they_may_run_on_any() -> None:
    """Mutation seen to fail: all on the first one."""
    given = [job(n, device=device) for n, device in enumerate(["auto", "cpu", "cuda", "cuda:1", "auto"])]
    assert [each.values["device"] for each in _spread(given)] == ["cuda:0", "cpu", "cuda:1", "cuda:1", "cuda:0"]


def test_without_gpus_or_a_device_jobs_stay_as_they_are() -> None:
    given = [job(0, device="auto"), job(1)]
    assert _spread(given) == given


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_each_shard_has_a_gpu_of_its_own(device: str) -> None:
    """Mutation seen to fail: the third shard beside the first one."""
    check_gpus(2, device)
    check_gpus(3, "cpu")
    with pytest.raises(ConfigError, match=r"`launch\.devices` to be at most 2 here, .*got 3"):
        check_gpus(3, device)


class Deadly(Shipped):
    """A job that ends as its seed says: killed or well."""

    def __call__(self) -> Outcome:
        time.sleep(0.5)  # so that another job runs beside it
        if self.values["seed"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome(job=self.job, value=float(len(self.values["seed"])) + int(os.environ["OMP_NUM_THREADS"]))


def test_a_killed_job_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: one pool for all, which breaks as a whole."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    seeds = ["a", "killed", "bb", "ccc"]
    jobs = [
        Deadly(job=Job("train", (f"seed={n}",), None), values={"seed": seed}, plugins=(), path=())
        for n, seed in enumerate(seeds)
    ]
    found = {each.job.overrides[0]: each for each in in_processes(jobs, 2, threads=7)}
    assert [found[f"seed={n}"].value for n in range(4)] == [8.0, None, 9.0, 10.0]
    assert found["seed=1"].exit_code == EXIT_FAULT
    assert found["seed=1"].problems == (
        "its process ended without a result, as it does when it is killed or memory runs out.",
    )


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
    launch = SlurmConfig(folder=tmp_path / "jobs")
    with pytest.raises(ConfigError) as caught:
        list(by_submitit([job(0)], launch, name="segmeter-train"))
    (line,) = caught.value.problems
    assert said in line
    assert "\n" not in line
