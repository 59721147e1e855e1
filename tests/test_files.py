"""Files that are complete or absent, and what identifies them. `tests/faults` fails each operation in turn."""

import hashlib
import json
import os
import shutil
import stat
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest

from segmeter import files
from segmeter.errors import InputError
from segmeter.models.checkpoint import MANIFEST, find_checkpoint, point


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_under_its_name_or_the_old_one_stays_and_nothing_else(tmp_path):
    with files.atomic_write(tmp_path / "a.txt") as file:
        file.write(b"one ")
        assert not (tmp_path / "a.txt").exists()
        file.write(b"two")
    with suppress(KeyboardInterrupt), files.atomic_write(tmp_path / "a.txt") as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert (tmp_path / "a.txt").read_bytes() == b"one two"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_and_its_folder_reach_the_disk_before_and_after_it_has_its_name(tmp_path, monkeypatch):
    """A crash of the machine would leave an empty file. Mutation seen to fail: renamed before it is flushed."""
    done: list[str] = []
    monkeypatch.setattr(files, "watch", lambda operation, path: done.append(f"{operation} {path.name}"))
    files.write_bytes(tmp_path / "a", b"1")
    assert done == ["open a", "write a", "fsync a", "rename a", f"fsync {tmp_path.name}"]


def test_a_link_is_replaced_by_a_file_with_the_mode_of_any_new_file(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"mine")
    link.symlink_to("target")
    files.write_bytes(link, b"ours")
    assert target.read_bytes() == b"mine"
    assert not link.is_symlink()
    assert stat.S_IMODE(link.stat().st_mode) == stat.S_IMODE(target.stat().st_mode)


def test_json_comes_back_exactly_and_nan_is_refused(tmp_path):
    content = {"x": 0.1 + 0.2, "ä": [None, True]}
    files.write_json(tmp_path / "a.json", content)
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == content


def test_a_folder_is_published_whole_or_not_at_all(tmp_path):
    with files.fresh_folder(tmp_path / "in" / "side") as fresh:
        (fresh / "x").write_bytes(b"1")
        assert not (tmp_path / "in" / "side").exists()
    assert names(tmp_path / "in" / "side") == ["x"]
    assert [files.new_folder(tmp_path / "run") for _ in range(2)] == [True, False], "made by one only"

    with suppress(RuntimeError), files.fresh_folder(tmp_path / "in" / "other") as fresh:
        (fresh / "y").write_bytes(b"")
        raise RuntimeError("half")
    assert names(tmp_path / "in") == ["side"]


def test_removing_takes_files_folders_and_links_but_not_what_they_lead_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x.json").touch()
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "full" / "inner").mkdir(parents=True)
    for name in ("link", "full", "never there"):
        files.remove(tmp_path / name)
    (tmp_path / "kept" / f"{files.TEMPORARY}1-ab").mkdir()  # leftovers of a killed process
    (tmp_path / f"{files.TEMPORARY}1-cd.json").touch()
    files.clear_leftovers(tmp_path)
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["x.json"]


@pytest.mark.parametrize("system", ["POSIX", "Windows"])
@pytest.mark.parametrize("before", ["link", "copy"])
def test_a_pointer_replaces_a_link_of_another_system_and_a_copied_checkpoint(tmp_path, monkeypatch, system, before):
    """Windows replaces nothing that leads to a folder, and `cp -L` copies the checkpoint in place of the link."""
    step, last = tmp_path / "step-1", tmp_path / "last"
    step.mkdir()
    (step / MANIFEST).touch()
    if before == "link":
        last.symlink_to("step-1")
    else:
        shutil.copytree(step, last)
    if system == "POSIX" and not hasattr(os, "O_DIRECTORY"):
        pytest.skip("this is Windows")
    if system == "Windows":
        monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
        replace = os.replace
        monkeypatch.setattr(os, "replace", lambda old, new: replace(old, new) if not new.is_dir() else 1 / 0)
    point(last, "step-2")
    point(last, "step-1")
    assert find_checkpoint(last) == step
    assert last.is_symlink() == (system == "POSIX")
    assert (names(tmp_path), names(step)) == (["last", "step-1"], [MANIFEST])


def test_a_file_or_folder_is_whole_only_byte_for_byte(tmp_path):
    path, folder = tmp_path / "a", tmp_path / "x.zarr"
    path.write_bytes(b"abc")
    entry = files.describe_file(path)
    assert entry == {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert files.is_whole(path, entry)
    for content in (b"abd", b"ab", b""):
        path.write_bytes(content)
        assert not files.is_whole(path, entry)
    path.unlink()
    assert not files.is_whole(path, entry)
    (tmp_path / "b").write_bytes(b"abc")
    path.symlink_to("b")
    assert not files.is_whole(path, entry), "a link is not the file"
    (folder / "c").mkdir(parents=True)
    for name in ("c/0", "zarr.json"):
        (folder / name).write_bytes(b"12")
    entry = files.describe_file(folder)
    assert entry["bytes"] == 4
    assert files.is_whole(folder, entry)
    (folder / "c" / "0").rename(folder / "c" / "1")
    assert not files.is_whole(folder, entry), "a folder with another file"


def test_unsafe_names_become_safe_ones_that_differ_and_more_of_them_on_windows(monkeypatch):
    """Elsewhere, cases keep the names that runs of earlier versions know."""
    unsafe = ["../x", "..", "x/", "x ", ".x", "x\n", "ä", "", "a" * 129]
    safe = [files.safe_id(name) for name in unsafe]
    assert len(set(safe)) == len(unsafe)
    assert all(Path(name).name == name and not name.startswith(".") and len(name) < 128 for name in safe)
    refused, plain = ["aux", "CON.v2", "com1", "scan."], ["auxiliary", "a.con", "com", "v1.2", "case_01.a-b"]
    assert [files.safe_id(name) for name in (*refused, *plain)] == [*refused, *plain]
    monkeypatch.delattr(os, "O_DIRECTORY")
    changed = [files.safe_id(name) for name in refused]
    assert [name.rpartition("-")[0] for name in changed] == ["aux", "CON-v2", "com1", "scan"]
    assert not any(files.is_refused(name) for name in changed)
    assert [files.safe_id(name) for name in plain] == plain


def test_a_link_is_not_copied(tmp_path):
    """Neither one that is named nor one in a folder. Mutation seen to fail: what it leads to has a second name."""
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "secret")
    for source in (tmp_path / "folder", tmp_path / "folder" / "link"):
        with pytest.raises(InputError, match="folder/link: is a link"):
            files.link_or_copy(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_lines_are_appended_and_what_comes_after_the_kept_bytes_is_cut(tmp_path):
    path = tmp_path / "history.jsonl"
    with closing(files.Lines(path)) as lines:
        lines.write(b'{"a": 1}\n')
        kept = lines.size
        lines.write(b'{"a": 2}\n')
        lines.close()  # and again, which does nothing
    with closing(files.Lines(path, keep=kept)) as lines:
        lines.write(b'{"a": 3}\n')
    assert path.read_bytes() == b'{"a": 1}\n{"a": 3}\n'
    (tmp_path / "link").symlink_to(path.name)
    with pytest.raises(InputError, match="is a link"):
        files.Lines(tmp_path / "link")


def test_a_write_that_fails_half_way_is_taken_back(tmp_path, monkeypatch):
    write = os.write

    def fail_after_two_bytes(handle, data):
        if len(data) < 5:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(data[:2]))

    with closing(files.Lines(tmp_path / "rows")) as lines:
        lines.write(b"whole\n")
        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(os, "write", fail_after_two_bytes)
            lines.write(b"next\n\n")
        assert (tmp_path / "rows").read_bytes() == b"whole\n"
        lines.write(b"later\n")
    assert (tmp_path / "rows").read_bytes() == b"whole\nlater\n"


@pytest.mark.parametrize("times", [2, 99])
def test_a_file_that_another_program_has_open_on_windows_is_tried_again(tmp_path, monkeypatch, times):
    """Mutation seen to fail: without another try."""
    real, waited, left = os.replace, [], iter(range(times))

    def replace(source, target):
        if next(left, None) is not None:
            error = PermissionError(13, "Access is denied")
            error.winerror = 5
            raise error
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr("segmeter.files.time.sleep", waited.append)
    with nullcontext() if times == 2 else pytest.raises(PermissionError):
        files.write_bytes(tmp_path / "a", b"1")
    assert names(tmp_path) == (["a"] if times == 2 else [])
    assert len(waited) == min(times, 6)
