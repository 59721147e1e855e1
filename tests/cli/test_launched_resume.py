"""launch=: a run that is resumed goes on as it was launched; a cluster that is not there is one line."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from segmeter.cli import launch as launching
from segmeter.cli.engines import Outcome
from segmeter.cli.launch import Shipped
from segmeter.distributed.config import SlurmConfig
from segmeter.records import read_yaml
from tests.cli.sharded import SCORE, TRAIN, newest, run

pytestmark = pytest.mark.usefixtures("in_here")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Path | None]]:
    """Where jobs were sent: they run here instead."""
    sent = list[tuple[str, Any, Path | None]]()

    def together(job: Shipped, count: int) -> Outcome:
        sent.append(("processes", count, job.job.folder))
        return job()

    def submit(jobs: Sequence[Shipped], launch: SlurmConfig, *, name: str) -> Iterator[Outcome]:
        for job in jobs:
            sent.append((launch.cluster, launch.partition, job.job.folder))
            yield job()

    monkeypatch.setattr(launching, "by_torchrun", together)
    monkeypatch.setattr(launching, "by_submitit", submit)
    return sent


@pytest.mark.parametrize(("launch", "saved", "place"), [
    (["launch=processes", "launch.devices=3"], {"name": "processes", "devices": 3}, ("processes", 3)),
    (["launch=slurm", "launch.partition=gpu"], {"name": "slurm", "partition": "gpu"}, ("slurm", "gpu")),
], ids=["processes", "slurm"])  # fmt: skip
def test_a_training_goes_on_as_it_was_launched(launch, saved, place, elsewhere):
    """Mutation seen to fail: the configuration saved as that of one process, in which a resume then went on."""
    assert run("train", *TRAIN, "training.epochs=1", f"run.name={saved['name']}", *launch) == 0
    folder = newest("runs/train").absolute()
    assert saved.items() <= read_yaml(folder / "config.yaml")["launch"].items()
    more = ["training.epochs=2", "allow_changes=[training.epochs]"]
    assert run("train", f"resume={folder}", *more) == 0
    assert [each[:2] for each in elsewhere] == [place, place]
    assert newest("runs/train").absolute() == folder
    assert saved.items() <= read_yaml(folder / "config.yaml")["launch"].items()
    if saved["name"] == "slurm":  # where a job that is queued again goes on
        assert elsewhere[1][2] == folder
    assert run("train", f"resume={folder}", "launch=local", "training.epochs=3", more[1]) == 0
    assert len(elsewhere) == 2
    assert read_yaml(folder / "config.yaml")["launch"] == {"name": "local"}


def test_a_merged_run_of_several_processes_keeps_its_launch() -> None:
    launch = ["launch=processes", "launch.devices=2"]
    assert run("score", *SCORE, "images=null", "run.name=merged", *launch) == 0
    folder = newest("runs/score")
    assert run("score", f"resume={folder}") == 0
    assert read_yaml(folder / "config.yaml")["launch"] == {"name": "processes", "devices": 2}


@pytest.mark.parametrize("given", ["hello", "tcp://127.0.0.1:{port}"], ids=["no address", "no answer"])
def test_a_dask_scheduler_that_is_not_there_is_one_line(given: str, refused) -> None:
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    before = set(Path("runs/score").glob("*"))
    with socket.socket() as taken, dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        taken.bind(("127.0.0.1", 0))  # and never listens
        address = given.format(port=taken.getsockname()[1])
        said = refused("score", *SCORE, "launch=dask", f"launch.address={address}")
    (line,) = [line for line in said.splitlines() if line.startswith("segmeter:")]
    assert f"expected `launch.address` to be the address of a Dask scheduler that answers, got '{address}'" in line
    assert set(Path("runs/score").glob("*")) == before
