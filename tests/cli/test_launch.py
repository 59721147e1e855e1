"""launch=: whatever runs a command, it leaves the bytes of one process, fails as one does, and goes on as launched."""

import gc
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from segmeter.cli import launch as launching
from segmeter.cli.engines import JobOutcome, by_torchrun
from segmeter.cli.folders import Job
from segmeter.cli.launch import Shipped
from segmeter.distributed.config import SlurmConfig
from segmeter.records import read_yaml
from tests.cli.sharded import EVAL, SCORE, TRAIN, contents, done, newest, run, whole

SLURM = ["launch=slurm", "launch.cluster=local", "launch.tasks_per_node=2"]
pytestmark = pytest.mark.usefixtures("in_here")


PROGRAMS = Path(sys.executable).parent


def beside(here: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command line in a process and a process group of its own."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    line = [sys.executable, "-m", "segmeter", *arguments]
    return subprocess.Popen(line, cwd=here, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload]


@pytest.mark.slow
def test_processes_leave_the_bytes_of_one() -> None:
    """Label maps, rows and metrics of a model; 11 cases of two sizes in 7 batches."""
    expected = whole("eval", EVAL)
    folder = done("eval", *EVAL, "launch=processes", "launch.devices=3")
    assert contents(folder) == expected
    assert not (folder / "shards").exists()


@pytest.mark.parametrize(("line", "said"), [
    (["score", *SCORE, "data.num_classes=2", "launch=processes", "launch.devices=2"], ["masks/case"]),
    (["train", "data=cells", "launch=dask"], ["`launch` to be local, processes or slurm for train"]),
    (["score", *SCORE, *SLURM], ["`nodes, tasks_per_node` to be 1 for score: only a", "nodes=1, tasks_per_node=2"]),
    (["score", "-m", *SCORE, *SLURM, "metrics.seed=1,2"], ["`nodes, tasks_per_node` to be 1 for score"]),
], ids=["a shard that fails", "train by dask", "several tasks", "several tasks in a sweep"])  # fmt: skip
def test_what_can_not_be_launched_is_said_with_its_code(line, said, refused):
    """Mutation seen to fail: each task does the whole job, in the same folder."""
    error = refused(*line)
    assert [each for each in said if each not in error] == []


@pytest.mark.slow
def test_dask_workers_leave_the_bytes_of_one_process_though_one_is_killed(here: Path) -> None:
    distributed = pytest.importorskip("distributed")
    expected = whole("score", SCORE)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        launch = ["launch=dask", "launch.shards=7", f"launch.address={cluster.scheduler_address}"]
        before = set(Path("runs/score").iterdir())
        process = beside(here, "score", *SCORE, *launch)
        victim = next(iter(client.run(os.getpid).values()))
        while process.poll() is None and not list(Path("runs/score").glob("*/shards/*/run.json")):
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    (folder,) = set(Path("runs/score").iterdir()) - before
    assert contents(folder) == expected


def start(*command: str | Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


WAYS = {"processes": ["launch=processes", "launch.devices=2"], "tasks": SLURM, "torchrun": None}


@pytest.mark.slow  # starts two processes with torch
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_what_one_does(way: str) -> None:
    """But for rounding; samples of a batch and validation cases are shared out. Seen to fail: one part for both."""
    one = done("train", *TRAIN, "run.name=one")
    if WAYS[way] is not None:
        assert run("train", *TRAIN, f"run.name={way}", *WAYS[way]) == 0
    elif (PROGRAMS / "torchrun").is_file() and (PROGRAMS / "segmeter").is_file():
        torchrun = [PROGRAMS / "torchrun", "--standalone", "--nproc-per-node", "2", "--no-python"]
        start(*torchrun, PROGRAMS / "segmeter", "train", *TRAIN, f"run.name={way}")
    else:
        pytest.skip(f"no torchrun or segmeter in {PROGRAMS}")
    (two,) = Path("runs/train").glob(f"*_{way}")
    found, expected = (load_file(each / "checkpoints/last/model.safetensors") for each in (two, one))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)
    rows = [[json.loads(line) for line in (each / "history.jsonl").read_text().splitlines()] for each in (one, two)]
    assert len(rows[0]) == len(rows[1])
    scores = [[row["val"]["mean_iou"] for row in each if "val" in row] for each in rows]
    assert len(scores[0]) > 0
    assert scores[1] == pytest.approx(scores[0], abs=0.02)
    assert json.loads((two / "run.json").read_text())["state"] == "done"


@pytest.mark.slow
def test_a_process_that_dies_is_named_and_none_outlives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: no SIGKILL for the one that outlives SIGTERM."""
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "1")
    began, before = time.monotonic(), set(multiprocessing.active_children())  # such as joblib's, of an earlier test
    task = Shipped(job=Job("train", (), None), values={"plugins": ["tests.cli.hanging"]}, path=())
    outcome = by_torchrun(task, 2)
    assert time.monotonic() - began < 300  # starting two processes takes over a minute of this on a busy machine
    assert outcome.exit_code == 3
    assert outcome.problems[0].startswith("process 2 of 2 was lost, ended by SIGKILL")
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_ctrl_c_saves_a_training_of_several_processes(here: Path) -> None:
    """It comes to all processes of a terminal. Mutation seen to fail: in one process group (two signals: not saved)."""
    arguments = [*TRAIN, "training.epochs=400", "run.name=stopped", "launch=processes", "launch.devices=2"]
    process = beside(here, "train", *arguments)
    while process.poll() is None and not steps_of("stopped"):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "was saved to resume from" in said
    assert "Warning" not in said


def steps_of(name: str) -> int:
    """Lines in the history of a training."""
    return sum(len(path.read_text().splitlines()) for path in Path("runs/train").glob(f"*_{name}/history.jsonl"))


def test_submitits_debug_executor_leaves_the_bytes_of_one_process() -> None:
    pytest.importorskip("submitit")
    expected = whole("score", SCORE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its log files to the garbage collector
        assert run("score", *SCORE, "launch=slurm", "launch.cluster=debug", "run.name=debugged") == 0
        gc.collect()
    assert contents(newest("runs/score")) == expected


def test_an_evaluation_that_torchrun_starts_is_refused(monkeypatch, refused):
    """Mutation seen to fail: each process does the whole of it."""
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    before = set(Path("runs/score").glob("*"))
    assert "got null in process 2/4. Set shard=2/4 in this one" in refused("score", *SCORE)
    assert set(Path("runs/score").glob("*")) == before


@pytest.mark.slow
def test_a_preempted_job_is_queued_again_and_goes_on_in_its_folder(here: Path) -> None:
    arguments = [*TRAIN, "training.epochs=40", "run.name=preempted", "launch=slurm", "launch.cluster=local"]
    process = beside(here, "train", *arguments)
    while process.poll() is None and steps_of("preempted") <= 2:
        time.sleep(0.1)
    (folder,) = Path("runs/train").glob("*_preempted")
    first = json.loads((folder / "run.json").read_text())
    os.kill(first["process"], signal.SIGUSR1)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    last = json.loads((folder / "run.json").read_text())
    assert last["state"] == "done"
    assert last["process"] != first["process"]
    assert "resumed" in last
    assert [*Path("runs/train").glob("*_preempted")] == [folder]


@pytest.mark.slow
def test_dask_on_its_own_leaves_the_bytes_of_one_process() -> None:
    """Two worker processes that the command starts and ends; an evaluation in batches of two images."""
    pytest.importorskip("distributed")
    expected = whole("eval", EVAL)
    launch = ["launch=dask", "launch.workers=2", "launch.shards=3", "run.name=dask"]
    start(sys.executable, "-m", "segmeter", "eval", *EVAL, *launch)
    (folder,) = Path("runs/eval").glob("*_dask")
    assert contents(folder) == expected
    assert not (folder / "shards").exists()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Path | None]]:
    """Where jobs were sent: they run here instead."""
    sent = list[tuple[str, Any, Path | None]]()

    def together(job: Shipped, count: int) -> JobOutcome:
        sent.append(("processes", count, job.job.folder))
        return job()

    def submit(jobs: Sequence[Shipped], launch: SlurmConfig, *, name: str) -> Iterator[JobOutcome]:
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
    folder = done("train", *TRAIN, "training.epochs=1", f"run.name={saved['name']}", *launch).absolute()
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
    folder = done("score", *SCORE, "images=null", "run.name=merged", *launch)
    assert run("score", f"resume={folder}") == 0
    assert read_yaml(folder / "config.yaml")["launch"] == {"name": "processes", "devices": 2}


def test_a_refused_resume_of_shards_changes_nothing(monkeypatch, refused):
    """One shard had not begun. Mutation seen to fail: it began with the other settings, and no resume fitted both."""
    monkeypatch.setattr(launching, "in_processes", lambda shards, count: [shard() for shard in shards])
    monkeypatch.setattr("segmeter.cli.run_folder.KEEP_SECONDS", -1.0)
    mask = Path("predictions/case01.png")
    whole_mask = mask.read_bytes()
    mask.write_bytes(b"damaged")
    line = [*SCORE, "images=null", "launch=processes", "launch.devices=2", "run.name=shared"]
    refused("score", *line)
    mask.write_bytes(whole_mask)
    (folder,) = Path("runs/score").glob("*_shared")
    shutil.rmtree(folder / "shards/2of2")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for resumed in ([f"resume={folder}", "metrics.seed=7"], [*line, "resume=auto", "metrics.seed=7"]):
        assert "resume: `metrics.seed` was 0 and is 7 now." in refused("score", *resumed)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert run("score", f"resume={folder}", "report.worst=1") == 0


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
