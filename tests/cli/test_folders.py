"""The lock of a run's folder: one process holds it, and its name is known."""

import errno
import os
import platform
from pathlib import Path

import pytest

from segmeter.cli.folders import LOCK, owner_of, take_lock
from segmeter.errors import InputError


def test_a_lock_is_held_by_one_and_names_it(tmp_path: Path) -> None:
    lock = take_lock(tmp_path)
    assert lock is not None
    assert take_lock(tmp_path) is None
    assert owner_of(tmp_path) == f"process {os.getpid()} on {platform.node()}"
    lock.release()
    again = take_lock(tmp_path)
    assert again is not None
    again.release()


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that says "locked" would outlive a killed process. Mutation seen to fail: the soft fallback left on."""

    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match=r"Function not implemented: '.*/\.lock'"):
        take_lock(tmp_path)


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"\.lock: is a link"):
        take_lock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
