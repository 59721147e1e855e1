"""The lock of a run's folder, the room for its last record, and what killed runs left."""

import errno
import os
import platform
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import filelock
import pytest
from filelock import FileLock

from segmeter.cli.runs.folder_lock import LOCK, OWNER, Reserved, clear_killed, cleared, owner_of, take_lock
from segmeter.errors import InputError
from segmeter.files import TEMPORARY


@pytest.fixture
def held(tmp_path: Path) -> Iterator[FileLock]:
    """The folder's lock, as another process would hold it."""
    with FileLock(tmp_path / LOCK) as lock:
        yield lock


def test_a_lock_is_held_by_one_and_names_it(tmp_path: Path) -> None:
    lock = take_lock(tmp_path)
    assert lock is not None
    assert take_lock(tmp_path) is None
    assert owner_of(tmp_path) == f"process {os.getpid()} on {platform.node()}"
    lock.release()
    again = take_lock(tmp_path)
    assert again is not None
    again.release()


def test_the_owner_of_a_held_folder_stays(tmp_path: Path, held: FileLock) -> None:
    (tmp_path / OWNER).write_text("process 7 on another-machine\n")
    assert take_lock(tmp_path) is None
    assert owner_of(tmp_path) == "process 7 on another-machine"


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that says "locked" would outlive a killed process. Mutation seen to fail: the soft fallback left on."""

    def refuse(handle: int) -> bool:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(filelock._unix, "lock_fd_nonblocking", refuse)
    with pytest.raises(OSError, match=r"Function not implemented: '.*/\.lock'"):
        take_lock(tmp_path)


def test_a_link_or_a_pipe_in_the_place_of_the_lock_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    with cleared(tmp_path):
        pass
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"\.lock: is a link"):
        take_lock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_leftovers_are_cleared_unless_another_process_has_the_run(tmp_path: Path, held: FileLock) -> None:
    left = tmp_path / ".tmp-1-ab.html"
    left.touch()
    with cleared(tmp_path):
        assert left.exists()
    held.release()
    with cleared(tmp_path):
        assert not left.exists()


@pytest.mark.parametrize(
    ("owner", "held", "left"),
    [
        (f"process 1 on {platform.node()}", False, False),
        (f"process 1 on {platform.node()}", True, True),
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
        (folder / LOCK).touch()
        (folder / OWNER).write_text(owner + "\n")
    lock = FileLock(folder / LOCK)
    if held:
        lock.acquire()
    clear_killed(tmp_path / "train")
    lock.release()
    assert [(folder / ".tmp-1-ab.json").exists(), (folder / "checkpoints" / ".tmp-1-cd").exists()] == [left, left]


@pytest.mark.parametrize("content", [b"", b"short", b"longer than what was set aside"])
def test_what_is_published_has_its_content_and_no_more(tmp_path, content):
    room = Reserved(tmp_path / "run.json", 10)
    assert next(tmp_path.iterdir()).name.startswith(TEMPORARY)
    with closing(room):
        room.publish(content)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_bytes() == content


def test_room_that_is_not_used_is_given_back(tmp_path):
    Reserved(tmp_path / "run.json", 10).close()
    assert list(tmp_path.iterdir()) == []
