"""A training of several processes ends as one: whatever fails, in whichever process and when, and a resume goes on."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from itertools import product
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NamedTuple

import pytest

from segmeter.cli import engines
from segmeter.cli.main import main
from tests.cli.sharded import TRAIN, run
from tests.distributed.broken import FAULT, FAULTS, MOMENTS
from tests.fuzzing import record, sampled

LIMIT_S = 20  # that a process waits for another
WITHIN_S = 90  # of the fault, or of the end of the limit
SEED = 30  # the sample that it gives has most pairs of values
AGENTS_S = 60  # more: torchrun waits before it kills a process that does not leave
ARGUMENTS = [*TRAIN, "training.pictures=0", "inference.batch_size=1"]  # each process validates one case
SAID = {  # by a process that is not the one that failed
    "raise": r"RuntimeError(: |\(.)broken on purpose",
    "disk": "/a/full/disk: No space left on device",
    "kill": "process {} of 2 was lost, ended by SIGKILL|another process ended|SIGKILL|Signal 9",
    "hang": "another process ended, or did not answer|its process ended without a result|was lost, ended by",
}


class Row(NamedTuple):
    """One fault in one process of a training."""

    starter: str
    fault: str
    rank: int
    moment: str


PROCESSES, TORCHRUN = (
    [Row(name, *row) for row in product(FAULTS, (0, 1), MOMENTS)] for name in ("processes", "torchrun")
)


@pytest.fixture(scope="module")
def forks() -> ForkServerContext:
    """Processes that have imported everything already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.distributed.broken"])
    return context


def work(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    """A process that is the command, and forks those that train; what it says goes to a file."""
    os.chdir(folder)
    os.setsid()
    os.environ |= environment
    with (folder / "said.txt").open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    engines.START = "fork"
    main(arguments)


def fail(row: Row, folder: Path, forks: ForkServerContext) -> tuple[int, float]:
    """Train with a fault; give the exit code and the seconds from the fault to the end."""
    mark = folder / "mark"
    environment = {FAULT: f"{row.fault}:{row.rank}:{row.moment}:{mark}", "OMP_NUM_THREADS": "1"}
    arguments = ["train", *ARGUMENTS, "run.name=broken", "plugins=[tests.distributed.breaking]"]
    if row.fault == "hang":  # of which a process learns at the next step
        arguments.append(f"training.stall_minutes={LIMIT_S / 60}")
    if row.starter == "processes":
        arguments += ["launch=processes", "launch.devices=2"]
        job = forks.Process(target=work, args=(arguments, folder, environment))
        job.start()
        job.join(300)
        assert job.exitcode is not None, (row, (folder / "said.txt").read_text())
        return job.exitcode, time.time() - float(mark.read_text())
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with (folder / "said.txt").open("wb") as said:
        done = subprocess.run(
            [*command, "-m", "segmeter", *arguments],
            cwd=folder, env=os.environ | environment | {"PYTHONPATH": path}, stdout=said, stderr=said, timeout=300,
            check=False
        )  # fmt: skip
    codes = [int(code) for code in re.findall(r"exitcode +: (-?\d+)", (folder / "said.txt").read_text())]
    code = codes[-1] if codes else done.returncode  # torchrun lists the first process that failed last
    return 3 if code < 0 else code, time.time() - float(mark.read_text())


@pytest.mark.fuzz
def test_any_fault_ends_all_processes_and_a_resume_goes_on(tmp_path, forks, monkeypatch):
    """In time, and with the cause. The sample has every fault and every moment."""
    rows = [*sampled(PROCESSES, 9, seed=SEED), *sampled(TORCHRUN, 3, seed=SEED)]
    assert {row.fault for row in rows} == set(FAULTS)
    assert {row.moment for row in rows} == set(MOMENTS)
    ends = []
    for number, row in enumerate(rows):
        folder = tmp_path / str(number)
        folder.mkdir()
        code, seconds = fail(row, folder, forks)
        said = (folder / "said.txt").read_text()
        ends.append(seconds - (LIMIT_S + AGENTS_S if row.fault == "hang" else 0))
        assert (code, ends[-1] < WITHIN_S) == (3, True), (row, said)
        assert re.search(SAID[row.fault].format(row.rank + 1), said), (row, said)
        assert row.starter == "torchrun" or said.count("segmeter: ") == 1, (row, said)  # one process speaks for all
        monkeypatch.chdir(folder)
        assert run("train", *ARGUMENTS, "run.name=broken", "resume=auto") == 0, row
        records = [json.loads(path.read_text()) for path in Path("runs/train").glob("*broken*/run.json")]
        assert "done" in [each["state"] for each in records], (row, records)
    record("jobs that end together", jobs=len(rows), processes=2, slowest_end_s=round(max(ends), 1))
