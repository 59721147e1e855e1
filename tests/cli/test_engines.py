"""Jobs as plain values that any process takes, outcomes that say what went wrong, and engines that map over them."""

import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch

from segmeter.cli import engines, launch
from segmeter.cli.config.model_command_configs import CheckConfig
from segmeter.cli.engines import JobOutcome, by_dask, by_submitit, in_processes, joint
from segmeter.cli.folders import Job
from segmeter.cli.launch import Shipped, _spread, attempt, ship
from segmeter.distributed.config import DaskConfig, SlurmConfig
from segmeter.errors import EXIT_FAULT, ConfigError, Interrupted, PeerError, Stopped
from segmeter.schema import as_plain
from tests.cli.deadly import Deadly

JOB = Job("check", ("data=cells",), None)
VALUES = {"data": {"name": "cells", "size": 96}, "splits": ["train"]}


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let every job end so: with a value, or with an error."""

    def end(how: Any) -> Mock:
        run = Mock(return_value=how, side_effect=how if isinstance(how, BaseException) else None)
        monkeypatch.setattr(launch, "run_job", run)
        return run

    return end


def ready(*path: str, **values: Any) -> Shipped:
    return Shipped(job=JOB, values=VALUES | values, path=path)


@pytest.mark.usefixtures("in_tmp")
def test_a_job_crosses_to_another_process_as_it_is(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("")
    config = CheckConfig.model_validate(VALUES)
    sent = ship(config, JOB)
    assert sent.values == as_plain(config)
    assert str(tmp_path) in sent.path, "where the command was typed, in full"
    run = ends(0.5)
    assert pickle.loads(pickle.dumps(sent))() == JobOutcome(job=JOB, value=0.5)
    assert run.call_args.args == (config, JOB)


def test_modules_are_found_where_the_job_came_from(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shipped_plugin.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    ends(None)
    missing = ready(plugins=["shipped_plugin"])()
    assert (missing.exit_code, "can't import the plugin 'shipped_plugin'" in missing.problems[0]) == (2, True)
    assert ready(str(tmp_path), plugins=["shipped_plugin"])().exit_code == 0
    assert sys.path.count(str(tmp_path)) == 1
    del sys.modules["shipped_plugin"]


@pytest.mark.parametrize("is_shard", [False, True], ids=["run", "shard"])
def test_only_a_shard_without_a_finished_case_is_removed(ends: Any, tmp_path: Path, *, is_shard: bool) -> None:
    ends(None)
    kept = tmp_path / "shards" / "0_training" / "checkpoints" / "last.pt"  # the user's own folder is called so too
    kept.parent.mkdir(parents=True)
    kept.touch()
    job = Job("check", (), kept.parents[1])
    assert Shipped(job=job, values=VALUES, path=(), is_shard=is_shard)().exit_code == 0
    assert kept.exists() is not is_shard


@pytest.mark.parametrize(("error", "problems", "code"), [
    (ConfigError(["config: one.", "config: two."]), ("config: one.", "config: two."), 2),
    (OSError(28, "No space left on device", "a.png"), ("a.png: No space left on device. Remove the cause",), 3),
    (ZeroDivisionError("by zero"), ("unexpected fault: ZeroDivisionError: by zero (SEGMETER_DEBUG=1",), 3),
], ids=["bad input", "the system", "a fault of ours"])  # fmt: skip
def test_whatever_goes_wrong_is_in_the_outcome(error, problems, code, ends):
    ends(error)
    for found in (attempt(None, JOB), ready()()):
        assert (found.exit_code, found.value, len(found.problems)) == (code, None, len(problems))
        assert all(line.startswith(start) for line, start in zip(found.problems, problems, strict=True))
    unknown = ready(splitz=["train"])()  # to this version
    assert (unknown.exit_code, unknown.value, "splitz" in unknown.problems[0]) == (2, None, True)


@pytest.mark.parametrize(
    ("values", "resume"), [({"resume": None}, {"resume": "auto"}), ({}, {})], ids=["train", "check"]
)
def test_a_preempted_job_is_queued_again_and_goes_on_where_it_can(values: Any, resume: Any) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed: it comes with `make test`")
    again = Shipped(job=JOB, values=values, path=("b",)).checkpoint().function
    assert again == Shipped(job=JOB, values=values | resume, path=("b",))


def test_a_signal_or_what_stops_the_program_is_told_elsewhere_with_its_code(ends: Any) -> None:
    for name, said, code in (("SIGTERM", "stopped by SIGTERM.", 143), ("SIGINT", "interrupted.", 130)):
        ends(Stopped(signal.Signals[name]))
        assert ready()() == JobOutcome(job=JOB, problems=(said,), exit_code=code)
    ends(Interrupted("train: saved.", exit_code=130))
    with pytest.raises(Interrupted):  # here
        attempt(None, JOB)
    assert ready()() == JobOutcome(job=JOB, problems=("train: saved.",), exit_code=130)


def test_of_several_processes_the_cause_of_a_failure_counts_else_the_one_with_a_value(ends: Any) -> None:
    """The first one hangs, the second one gives up waiting for it, and then the first one is stopped."""
    ends(Stopped(signal.SIGTERM))
    stopped = ready()()
    waited = JobOutcome.of(JOB, PeerError("training: another process ended, or did not answer."))
    failed = JobOutcome.of(JOB, OSError(28, "No space left on device", "a.png"))
    silent, best = JobOutcome(job=JOB), JobOutcome(job=JOB, value=0.0)
    assert joint([silent, best]) is best
    assert joint([silent, silent]) is silent
    assert joint([best, silent, failed]) is failed
    assert joint([stopped, waited]) is waited
    assert joint([stopped, waited, failed]) is failed


def job(number: int, **values: Any) -> Shipped:
    return Shipped(job=Job("train", (f"seed={number}",), None), values=values, path=())


def test_jobs_take_the_gpus_in_turn_where_they_may_run_on_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are not there. Mutation seen to fail: all on the first one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    given = [job(n, device=device) for n, device in enumerate(["auto", "cpu", "cuda", "cuda:1", "auto"])]
    assert [each.values["device"] for each in _spread(given)] == ["cuda:0", "cpu", "cuda:1", "cuda:1", "cuda:0"]


def test_without_gpus_or_a_device_or_torch_jobs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [job(0, device="auto"), job(1)]
    assert _spread(given) == given
    monkeypatch.setitem(sys.modules, "torch", None)  # as where only segmeter-score is installed
    assert _spread(given[1:]) == given[1:]


def test_a_killed_job_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: one pool for all, which breaks as a whole."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    jobs = [Deadly(job=job(n).job, values={"seed": s}, path=()) for n, s in enumerate(["a", "killed", "bb", "ccc"])]
    found = {each.job.overrides[0]: each for each in in_processes(jobs, 2, threads=7)}
    assert [found[f"seed={n}"].value for n in range(4)] == [8.0, None, 9.0, 10.0]
    said = "its process ended without a result, as it does when it is killed or memory runs out."
    assert (found["seed=1"].exit_code, found["seed=1"].problems) == (EXIT_FAULT, (said,))


@pytest.mark.parametrize(("tools", "said"), [
    ({}, "expected `launch` to have SLURM's srun and sbatch on the PATH, got none. Start it on a machine of the"),
    ({"srun": "exit 0"}, "expected `launch` to be a job that SLURM takes, got "),
    ({"srun": "exit 0", "sbatch": "echo invalid partition >&2; exit 1"}, "invalid partition"),
], ids=["no SLURM", "no sbatch", "refused"])  # fmt: skip
def test_without_a_slurm_that_takes_the_job_a_line_says_so(tools, said, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        list(by_submitit([job(0)], SlurmConfig(folder=tmp_path / "jobs"), name="segmeter-train"))
    (line,) = caught.value.problems
    assert said in line
    assert "\n" not in line


def test_the_script_that_slurm_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sbatch is told, by a stand-in for it: limits, and the signal ahead of the time limit, which requeues it."""
    submitit = pytest.importorskip("submitit")
    for name in ("sbatch", "srun", "sacct"):
        (tmp_path / name).write_text("#!/bin/sh\necho Submitted batch job 12\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", "")  # which is read once, when the first test imports submitit

    def lose(part: Any) -> None:
        raise submitit.core.utils.UncompletedJobError

    monkeypatch.setattr(submitit.SlurmJob, "result", lose)
    asked = {"partition": "gpu", "nodes": 2, "tasks_per_node": 4, "gpus_per_node": 4, "timeout_min": 30}
    launch = SlurmConfig(folder=tmp_path / "jobs", signal_delay_s=70, **asked)
    (outcome,) = by_submitit([job(0)], launch, name="train")
    assert re.search(r"ended without a result, .* memory runs out\. Its log is .*\.err\.$", outcome.problems[0])
    script = next(tmp_path.glob("jobs/*submission*.sh")).read_text()
    for line in ("partition=gpu", "nodes=2", "ntasks-per-node=4", "gpus-per-node=4", "time=30", "job-name=train"):
        assert f"#SBATCH --{line}\n" in script
    assert re.search(r"#SBATCH --signal=USR[12]@70\n", script)
    assert os.environ["SUBMITIT_PREEMPT_SIGNAL"] == "USR1"


FRESH = """
import signal, sys
from pathlib import Path
from segmeter.cli.engines import by_submitit
from segmeter.distributed.config import SlurmConfig
from tests.cli.test_engines import job

def handler(*given): ...

signal.signal(signal.SIGUSR1, handler)
assert "submitit" not in sys.modules
list(by_submitit([job(0)], SlurmConfig(folder=Path(sys.argv[1]), cluster="debug"), name="train"))
from submitit.core.job_environment import JobEnvironment
assert JobEnvironment._usr_sig() == signal.SIGUSR1
assert signal.getsignal(signal.SIGUSR1) is handler
"""


def test_submitit_hears_sigusr1_and_leaves_a_handler_set_before_its_import(tmp_path: Path) -> None:
    """In a fresh process. Mutation seen to fail: the signal named after the import, so that submitit hears SIGUSR2."""
    pytest.importorskip("submitit")
    command = [sys.executable, "-c", FRESH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cluster_without_a_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MagicMock(**{"Client.side_effect": OSError("no route")})
    made.LocalCluster.return_value.__exit__.return_value = False
    monkeypatch.setattr(engines, "needed", lambda name, extra: made)
    with pytest.raises(ConfigError, match="no route"):
        list(by_dask([], DaskConfig()))
    made.LocalCluster.return_value.__exit__.assert_called_once()
