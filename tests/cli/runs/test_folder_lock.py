"""The lock of a run's folder, and what killed runs left."""

import fcntl
import os
from pathlib import Path

import pytest

from segmeter.cli.runs.folder_lock import clear_killed, cleared, owner_of, take_lock
from segmeter.errors import InputError


def test_a_lock_is_held_by_one_and_names_it(tmp_path: Path) -> None:
    lock = take_lock(tmp_path)
    assert lock is not None
    assert take_lock(tmp_path) is None
    assert owner_of(tmp_path) == f"process {os.getpid()} on {os.uname().nodename}"
    os.close(lock)


def test_a_lock_whose_file_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would hold the folder: one the file that was removed, and one the next. Mutation seen to fail."""
    flock = fcntl.flock

    def remove_first(handle: int, kind: int) -> None:
        (tmp_path / ".lock").unlink()
        (tmp_path / ".lock").touch()
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert take_lock(tmp_path) is None


def test_a_lock_that_is_a_pipe_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(InputError, match=r"\.lock: expected a regular file, got a FIFO"), cleared(tmp_path):
        pass


def test_leftovers_are_cleared_unless_another_process_has_the_run(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    left = tmp_path / ".tmp-1-ab.html"
    with (tmp_path / ".lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        left.touch()
        with cleared(tmp_path):
            assert left.exists()
    with cleared(tmp_path):
        assert not left.exists()


@pytest.mark.parametrize(
    ("owner", "held", "left"),
    [
        (f"process 1 on {os.uname().nodename}", False, False),
        (f"process 1 on {os.uname().nodename}", True, True),
        ("process 1 on another-machine", False, True),
        (None, False, True),
    ],
    ids=["killed", "running", "elsewhere", "unknown"],
)
def test_a_new_run_clears_what_killed_ones_beside_it_left(
    owner: str | None, held: bool, left: bool, tmp_path: Path
) -> None:
    """Mutations seen to fail: nothing cleared; the machine not looked at; the lock not taken."""
    folder = tmp_path / "train" / "killed"
    (folder / "checkpoints" / ".tmp-1-cd").mkdir(parents=True)
    (folder / ".tmp-1-ab.json").write_text("room")
    (tmp_path / "train" / "a file").touch()
    if owner is not None:
        (folder / ".lock").write_text(owner + "\n")
    with Path(os.devnull if owner is None else folder / ".lock").open("rb") as lock:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        clear_killed(tmp_path / "train")
    assert [(folder / ".tmp-1-ab.json").exists(), (folder / "checkpoints" / ".tmp-1-cd").exists()] == [left, left]
