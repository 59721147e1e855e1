"""Jobs as plain values that any process takes, and outcomes that say whatever went wrong."""

import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from segmeter.cli import launch
from segmeter.cli.engines import Outcome, joint
from segmeter.cli.folders import Job
from segmeter.cli.launch import Shipped, attempt, ship
from segmeter.errors import ConfigError, Interrupted, PeerError, Stopped
from segmeter.schema import as_plain

JOB = Job("check", ("data=cells",), None)
VALUES = {"data": {"name": "cells", "size": 96}, "splits": ["train"]}


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let every job end so: with a value, or with an error."""

    def end(how: Any) -> list[Any]:
        given: list[Any] = []

        def run(config: Any, job: Job) -> Any:
            given.append(config)
            if isinstance(how, BaseException):
                raise how
            return how

        monkeypatch.setattr(launch, "run_job", run)
        return given

    return end


def ready(**values: Any) -> Shipped:
    return Shipped(job=JOB, values=VALUES | values, plugins=(), path=())


def test_a_job_crosses_to_another_process_as_it_is(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmeter.cli.config.model_schema import CheckConfig

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    config = CheckConfig.model_validate(VALUES)
    sent = ship(config, JOB)
    assert sent.values == as_plain(config)
    assert str(tmp_path) in sent.path, "where the command was typed, in full"
    given = ends(0.5)
    assert pickle.loads(pickle.dumps(sent))() == Outcome(job=JOB, value=0.5)
    assert given == [config]


def test_modules_are_found_where_the_job_came_from(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shipped_plugin.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    ends(None)
    missing = Shipped(job=JOB, values=VALUES, plugins=("shipped_plugin",), path=())()
    assert (missing.exit_code, "can't import the plugin 'shipped_plugin'" in missing.problems[0]) == (2, True)
    there = Shipped(job=JOB, values=VALUES, plugins=("shipped_plugin",), path=(str(tmp_path),))
    assert there().exit_code == 0
    assert sys.path.count(str(tmp_path)) == 1
    del sys.modules["shipped_plugin"]


@pytest.mark.parametrize("is_shard", [False, True], ids=["run", "shard"])
def test_only_a_shard_without_a_finished_case_is_removed(ends: Any, tmp_path: Path, *, is_shard: bool) -> None:
    ends(None)
    kept = tmp_path / "shards" / "0_training" / "checkpoints" / "last.pt"  # the user's own folder is called so too
    kept.parent.mkdir(parents=True)
    kept.touch()
    job = Job("check", (), kept.parents[1])
    assert Shipped(job=job, values=VALUES, plugins=(), path=(), is_shard=is_shard)().exit_code == 0
    assert kept.exists() is not is_shard


@pytest.mark.parametrize(
    ("error", "problems", "code"),
    [
        (ConfigError(["config: one.", "config: two."]), ("config: one.", "config: two."), 2),
        (OSError(28, "No space left on device", "a.png"), ("a.png: No space left on device. Remove the cause",), 3),
        (ZeroDivisionError("by zero"), ("unexpected fault: ZeroDivisionError: by zero (SEGMETER_DEBUG=1",), 3),
    ],
    ids=["bad input", "the system", "a fault of ours"],
)
def test_whatever_goes_wrong_is_in_the_outcome(
    error: Exception, problems: tuple[str, ...], code: int, ends: Any
) -> None:
    ends(error)
    for found in (attempt(None, JOB), ready()()):
        assert (found.exit_code, found.value, len(found.problems)) == (code, None, len(problems))
        assert all(line.startswith(start) for line, start in zip(found.problems, problems, strict=True))


def test_values_that_this_version_does_not_know_are_refused_here() -> None:
    found = ready(splitz=["train"])()
    assert (found.exit_code, found.value) == (2, None)
    assert "splitz" in found.problems[0]


@pytest.mark.parametrize(
    ("name", "said", "code"), [("SIGTERM", "stopped by SIGTERM.", 143), ("SIGINT", "interrupted.", 130)]
)
def test_a_signal_ends_the_job_with_its_code(name: str, said: str, code: int, ends: Any) -> None:
    ends(Stopped(signal.Signals[name]))
    assert ready()() == Outcome(job=JOB, problems=(said,), exit_code=code)


def test_what_stops_the_whole_program_is_raised_here_and_told_elsewhere(ends: Any) -> None:
    ends(Interrupted("train: saved.", exit_code=130))
    with pytest.raises(Interrupted):
        attempt(None, JOB)
    assert ready()() == Outcome(job=JOB, problems=("train: saved.",), exit_code=130)


@pytest.mark.parametrize(
    ("values", "resume"), [({"resume": None}, {"resume": "auto"}), ({}, {})], ids=["train", "check"]
)
def test_a_preempted_job_is_queued_again_and_goes_on_where_it_can(values: Any, resume: Any) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed: it comes with `make test`")
    again = Shipped(job=JOB, values=values, plugins=("a",), path=("b",)).checkpoint().function
    assert again == Shipped(job=JOB, values=values | resume, plugins=("a",), path=("b",))


def test_of_several_processes_the_failed_one_counts_else_the_one_with_a_value() -> None:
    job = Job("train", (), None)
    silent, best, failed = Outcome(job=job), Outcome(job=job, value=0.5), Outcome(job=job, exit_code=2)
    assert joint([silent, best]) is best
    assert joint([best, silent, failed]) is failed
    assert joint([silent, silent]) is silent


def test_the_cause_speaks_for_a_process_that_hung_and_was_stopped(ends: Any) -> None:
    """The first one hangs, the second one gives up waiting for it, and then the first one is stopped."""
    ends(Stopped(signal.SIGTERM))
    stopped = ready()()
    waited = Outcome.of(JOB, PeerError("training: another process ended, or did not answer."))
    failed = Outcome.of(JOB, OSError(28, "No space left on device", "a.png"))
    assert joint([stopped, waited]) is waited
    assert joint([stopped, waited, failed]) is failed
