"""Files that are complete or absent, and what identifies them. `tests/faults` fails each operation in turn."""

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from segmeter import files
from segmeter.errors import InputError
from segmeter.models.checkpoints.checkpoint import point, pointed


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_half(path: Path) -> None:
    with files.atomic_write(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt


def test_a_file_appears_whole_under_its_name(tmp_path):
    with files.atomic_write(tmp_path / "a.txt") as file:
        file.write(b"one ")
        assert not (tmp_path / "a.txt").exists()
        file.write(b"two")
    assert (tmp_path / "a.txt").read_bytes() == b"one two"
    assert names(tmp_path) == ["a.txt"]


def test_after_an_error_the_old_file_stays_and_nothing_else(tmp_path):
    files.write_bytes(tmp_path / "a.txt", b"old")
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_a_link_is_replaced_and_what_it_leads_to_is_untouched(tmp_path):
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("target")
    files.write_bytes(tmp_path / "link", b"ours")
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert not (tmp_path / "link").is_symlink()


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path):
    files.write_bytes(tmp_path / "a", b"")
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_json_comes_back_exactly_and_nan_is_refused(tmp_path):
    content = {"x": 0.1 + 0.2, "ä": [None, True]}
    files.write_json(tmp_path / "a.json", content)
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == content
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == content


def test_a_folder_is_published_whole_or_not_at_all(tmp_path):
    with files.fresh_folder(tmp_path / "in" / "side") as fresh:
        (fresh / "x").write_bytes(b"1")
        assert not (tmp_path / "in" / "side").exists()
    assert names(tmp_path / "in" / "side") == ["x"]

    def fail() -> None:
        with files.fresh_folder(tmp_path / "in" / "other") as fresh:
            (fresh / "y").write_bytes(b"")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert names(tmp_path / "in") == ["side"]


def test_a_new_folder_is_made_by_one_only(tmp_path):
    assert files.new_folder(tmp_path / "run")
    assert not files.new_folder(tmp_path / "run")


def test_removing_takes_files_folders_and_links_but_not_what_they_lead_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").touch()
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "full" / "inner").mkdir(parents=True)
    for name in ("link", "full", "never there"):
        files.remove(tmp_path / name)
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["x"]


def test_leftovers_of_a_killed_process_are_cleared(tmp_path):
    (tmp_path / "sub" / f"{files.TEMPORARY}1-ab").mkdir(parents=True)
    (tmp_path / f"{files.TEMPORARY}1-cd.json").touch()
    (tmp_path / "sub" / "kept.json").touch()
    files.clear_leftovers(tmp_path)
    assert names(tmp_path) == ["sub"]
    assert names(tmp_path / "sub") == ["kept.json"]


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="Windows has files in place of links")
def test_a_pointer_changes_its_target_in_one_step(tmp_path):
    point(tmp_path / "last", "step-1")
    point(tmp_path / "last", "step-2")
    assert os.readlink(tmp_path / "last") == "step-2"  # noqa: PTH115 - the text itself
    assert names(tmp_path) == ["last"]


@pytest.mark.parametrize("system", ["POSIX", "Windows"])
@pytest.mark.parametrize("before", ["link", "copy"])
def test_a_pointer_replaces_a_link_of_another_system_and_a_copied_checkpoint(tmp_path, monkeypatch, system, before):
    """Windows replaces nothing that leads to a folder, and `cp -L` copies the checkpoint in place of the link."""
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "model").touch()
    if before == "link":
        (tmp_path / "last").symlink_to("step-1")
    else:
        shutil.copytree(tmp_path / "step-1", tmp_path / "last")
    if system == "POSIX" and not hasattr(os, "O_DIRECTORY"):
        pytest.skip("this is Windows")
    if system == "Windows":
        monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
        replace = os.replace
        monkeypatch.setattr(os, "replace", lambda old, new: replace(old, new) if not new.is_dir() else 1 / 0)
    point(tmp_path / "last", "step-1")
    assert pointed(tmp_path / "last").resolve() == tmp_path / "step-1"
    assert (tmp_path / "last").is_symlink() == (system == "POSIX")
    assert names(tmp_path) == ["last", "step-1"]
    assert names(tmp_path / "step-1") == ["model"]


def test_a_file_is_whole_only_byte_for_byte(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    entry = files.describe_file(path)
    assert entry == {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert files.is_whole(path, entry)
    for content in (b"abd", b"ab", b""):
        path.write_bytes(content)
        assert not files.is_whole(path, entry)
    path.rename(tmp_path / "b")
    path.symlink_to("b")
    (tmp_path / "b").write_bytes(b"abc")
    assert not files.is_whole(path, entry), "a link is not the file"
    path.unlink()
    assert not files.is_whole(path, entry)


def test_a_folder_is_whole_only_with_all_its_files(tmp_path):
    folder = tmp_path / "x.zarr"
    (folder / "c").mkdir(parents=True)
    (folder / "c" / "0").write_bytes(b"12")
    (folder / "zarr.json").write_bytes(b"{}")
    entry = files.describe_file(folder)
    assert entry["bytes"] == 4
    assert files.is_whole(folder, entry)
    (folder / "c" / "0").rename(folder / "c" / "1")
    assert not files.is_whole(folder, entry)


def test_unsafe_names_become_safe_ones_that_differ():
    assert files.safe_id("case_01.a-b") == "case_01.a-b"
    unsafe = ["../x", "..", "x/", "x ", ".x", "x\n", "ä", "", "a" * 129]
    safe = [files.safe_id(name) for name in unsafe]
    assert len(set(safe)) == len(unsafe)
    assert all(Path(name).name == name and not name.startswith(".") and len(name) < 128 for name in safe)


def test_names_that_windows_refuses_change_on_windows_alone(monkeypatch):
    """Elsewhere, cases keep the names that runs of earlier versions know."""
    refused = ["aux", "CON.v2", "com1", "scan."]
    assert [files.safe_id(name) for name in refused] == refused
    monkeypatch.delattr(os, "O_DIRECTORY")
    changed = [files.safe_id(name) for name in refused]
    assert [name.rpartition("-")[0] for name in changed] == ["aux", "CON-v2", "com1", "scan"]
    assert not any(files.is_refused(name) for name in changed)
    plain = ["auxiliary", "a.con", "com", "v1.2"]
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
    lines = files.Lines(path)
    lines.write(b'{"a": 1}\n')
    kept = lines.size
    lines.write(b'{"a": 2}\n')
    lines.close()
    lines.close()
    again = files.Lines(path, keep=kept)
    again.write(b'{"a": 3}\n')
    again.close()
    assert path.read_bytes() == b'{"a": 1}\n{"a": 3}\n'


def test_a_write_that_fails_half_way_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    lines = files.Lines(path)
    lines.write(b"whole\n")
    write = os.write

    def fail_after_two_bytes(handle, data):
        if len(data) < 5:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(data[:2]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail_after_two_bytes)
        with pytest.raises(OSError, match="No space"):
            lines.write(b"next\n\n")
    assert path.read_bytes() == b"whole\n"
    lines.write(b"later\n")
    lines.close()
    assert path.read_bytes() == b"whole\nlater\n"


def test_lines_are_not_appended_through_a_link(tmp_path):
    (tmp_path / "mine").touch()
    (tmp_path / "rows").symlink_to("mine")
    with pytest.raises(InputError, match="is a link"):
        files.Lines(tmp_path / "rows")


@pytest.mark.parametrize("times", [2, 99])
def test_a_file_that_another_program_has_open_on_windows_is_tried_again(tmp_path, monkeypatch, times):
    """Mutation seen to fail: without another try."""
    replace, waited, left = os.replace, [], [times]

    def refuse(source, target):
        left[0] -= 1
        if left[0] >= 0:
            error = PermissionError(13, "Access is denied")
            error.winerror = 5
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr("segmeter.files.time.sleep", waited.append)
    if times == 2:
        files.write_bytes(tmp_path / "a", b"1")
        assert (tmp_path / "a").read_bytes() == b"1"
    else:
        with pytest.raises(PermissionError):
            files.write_bytes(tmp_path / "a", b"1")
        assert list(tmp_path.iterdir()) == []
    assert len(waited) == min(times, 6)
