"""The folder of a run: one process holds its lock, and resume=RUN and resume=auto find it again."""

import errno
from pathlib import Path

import pytest

from segmeter.cli.config.command_configs import Launched, RunConfig
from segmeter.cli.folders import Job, find_resumed, take_lock
from segmeter.errors import ConfigError
from tests.data.crafted import put


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that says "locked" would outlive a killed process. Mutation seen to fail: the soft fallback left on."""

    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match=r"Function not implemented: '.*/\.lock'"):
        take_lock(tmp_path)


JOB = Job("score", (), None)
HOLDS = "manifest.json"


def put_run(root: Path, folder: str, start: str | None = None, *, holds: str | None = HOLDS) -> Path:
    path = root / "score" / folder
    path.mkdir(parents=True)
    if start is not None:
        put(path / "run.json", {"start": start})
    if holds:
        put(path / holds, "{}")
    return path


def resumed(root: Path, resume: str | Path | None, *, name: str | None = "x", job: Job = JOB, holds: str = HOLDS):
    given = None if resume is None else str(resume)
    config = Launched(run=RunConfig(root=root, name=name), resume=given, launch="local")
    return find_resumed(config, job, holds=holds)


@pytest.mark.usefixtures("in_tmp")
def test_a_run_is_named_by_its_folder_and_null_is_a_new_one(tmp_path, capsys):
    folder = put_run(tmp_path, "anything at all")
    assert resumed(tmp_path, str(folder)) == folder
    assert resumed(tmp_path, "score/anything at all") == Path("score/anything at all")
    assert resumed(tmp_path, None) is None
    assert capsys.readouterr().err == ""


def test_auto_is_the_run_that_started_last_whatever_its_name_says(tmp_path, capsys):
    """Their local time, of another zone, is a day ahead. Mutation seen to fail: the last one by name."""
    put_run(tmp_path, "2026-01-02_090000_x", "2026-01-01T20:00:00.000000+00:00")
    second = put_run(tmp_path, "2026-01-01_090000_x", "2026-01-01T21:00:00.000000+00:00")
    put_run(tmp_path, "2026-01-03_090000_x", holds=None)
    assert resumed(tmp_path, "auto") == second
    unsaid = [put_run(tmp_path / "unsaid", f"2026-01-01_090000_x{end}") for end in ("", "-2")]  # without a start
    assert resumed(tmp_path / "unsaid", "auto") == unsaid[1], "the last by name"
    assert capsys.readouterr().err == f"resuming {second}\nresuming {unsaid[1]}\n"


@pytest.mark.parametrize("name", ["x", "a.c", None])
def test_auto_starts_anew_where_no_run_of_the_whole_name_holds_anything(name, tmp_path, capsys):
    """Mutations seen to fail: a name that begins so; a name taken for a pattern."""
    shown = name or "score"
    for other in ("xy", "a_x", "abc", "x-", f"{shown}-b"):
        put_run(tmp_path, f"2026-01-01_000000_{other}")
    put_run(tmp_path, f"2026-01-01_000000_{shown}", holds=None)
    assert resumed(tmp_path, "auto", name=name) is None
    said = f"resume=auto: no run named {shown!r} with manifest.json in {tmp_path / 'score'}; starting a new run\n"
    assert capsys.readouterr().err == said


def test_auto_knows_a_second_run_of_a_name_from_a_name_with_a_number(tmp_path: Path) -> None:
    """Both folders end in x-2. Mutation seen to fail: told by the folder alone."""
    second = put_run(tmp_path, "2026-01-01_000000_x-2", "2026-01-01T00:00:00.000000+00:00")
    put(second / "config.yaml", {"run": {"name": None}, "data": {"name": "x"}})
    other = put_run(tmp_path, "2026-01-02_000000_x-2", "2026-01-02T00:00:00.000000+00:00")
    put(other / "config.yaml", {"run": {"name": "x-2"}, "data": {"name": "x"}})
    assert resumed(tmp_path, "auto") == second
    assert resumed(tmp_path, "auto", name="x-2") == other


def test_what_there_is_to_go_on_from_may_be_one_of_several(tmp_path: Path) -> None:
    holds = "checkpoints/step-*/manifest.json"
    folder = put_run(tmp_path, "2026-01-01_000000_x", holds="checkpoints/step-00000020/manifest.json")
    assert resumed(tmp_path, "auto", holds=holds) == folder
    with pytest.raises(ConfigError, match=r"a run folder with checkpoints/step-\*/manifest\.json"):
        resumed(tmp_path, put_run(tmp_path, "other", holds="checkpoints/last"), holds=holds)


def test_auto_in_a_sweep_is_the_folder_of_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_run(tmp_path, "2026-01-01_000000_x")
    job = Job("score", (), tmp_path / "sweep" / "3_seed-1")
    assert resumed(tmp_path, "auto", job=job) is None
    assert f"with manifest.json in {job.folder}; starting a new run" in capsys.readouterr().err
    put(job.folder / HOLDS, "{}")
    assert resumed(tmp_path, "auto", job=job) == job.folder
