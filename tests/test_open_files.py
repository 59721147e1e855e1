"""Files that stay open: lines that are whole, and room that is set aside."""

import os

import pytest

from segmeter.files import TEMPORARY
from segmeter.open_files import Lines, Reserved, open_lock


def test_lines_are_appended_and_what_comes_after_the_kept_bytes_is_cut(tmp_path):
    path = tmp_path / "history.jsonl"
    lines = Lines(path)
    lines.write(b'{"a": 1}\n')
    kept = lines.size
    lines.write(b'{"a": 2}\n')
    lines.close()
    lines.close()
    again = Lines(path, keep=kept)
    again.write(b'{"a": 3}\n')
    again.close()
    assert path.read_bytes() == b'{"a": 1}\n{"a": 3}\n'


def test_a_write_that_fails_half_way_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    lines = Lines(path)
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


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine").touch()
    (tmp_path / "rows").symlink_to("mine")
    for door in (Lines, open_lock):
        with pytest.raises(Exception, match="is a link"):
            door(tmp_path / "rows")


@pytest.mark.parametrize("content", [b"", b"short", b"longer than what was set aside"])
def test_what_is_published_has_its_content_and_no_more(tmp_path, content):
    room = Reserved(tmp_path / "run.json", 10)
    assert next(tmp_path.iterdir()).name.startswith(TEMPORARY)
    room.publish(content)
    room.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_bytes() == content


def test_room_that_is_not_used_is_given_back(tmp_path):
    Reserved(tmp_path / "run.json", 10).close()
    assert list(tmp_path.iterdir()) == []
