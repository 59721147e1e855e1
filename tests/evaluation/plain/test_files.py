"""Cases from their two files: what is counted, and what is left to the usual way; `test_pairs` compares counts."""

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from segmeter.evaluation.plain import pairs
from segmeter.evaluation.plain.pairs import count_plain
from tests.data.files.test_png import encode
from tests.evaluation.plain.test_pairs import spec_of

LIMIT = 12


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def put(folder, name, samples, *, bits=8, **more):
    (folder / name).write_bytes(encode(np.asarray(samples), 0, bits, np.zeros(len(samples), int), **more))
    return folder / name


@pytest.mark.parametrize("kind", ["flat", "noisy"])
def test_the_hashes_are_those_of_the_files(kind, tmp_path):
    rng = np.random.default_rng(0)
    maps = [rng.integers(0, 100, (40, 50)) if kind == "noisy" else np.full((40, 50), value) for value in (1, 2)]
    files = tuple(put(tmp_path, f"{k}.png", each, parts=3) for k, each in enumerate(maps))
    (found,) = count_plain([files], spec_of(100), max_pixels=2000)
    assert found.sha256 == tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)


def test_each_case_of_a_group_has_its_own_counts(tmp_path):
    """The second of three has no second file."""
    files = [
        (put(tmp_path, f"{k}.png", np.full((3, 4), k)), put(tmp_path, f"{k}b.png", np.ones((3, 4)))) for k in range(3)
    ]
    files[1][1].unlink()
    first, second, third = count_plain(files, spec_of(3), max_pixels=LIMIT)
    assert second is None
    assert (first.counts[0, 1], third.counts[2, 1], first.counts.sum() + third.counts.sum()) == (12, 12, 24)
    assert first.target_crc32 != third.target_crc32


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "kind", ["16 bits", "4 bits", "too large", "another name", "cut", "grown", "empty", "folder", "pipe", "none", "nul"]
)
def test_what_is_not_a_plain_file_is_left_to_the_usual_way(kind, side, tmp_path):
    files = [put(tmp_path, f"{name}.png", np.ones((3, 4))) for name in "ab"]
    assert count_plain([tuple(files)], spec_of(2), max_pixels=LIMIT)[0] is not None
    content = files[side].read_bytes()
    files[side].unlink()
    if kind in ("16 bits", "4 bits"):
        put(tmp_path, files[side].name, np.ones((3, 4), int), bits=int(kind[:2]))
    elif kind == "folder":
        files[side].mkdir()
    elif kind == "pipe":
        os.mkfifo(files[side])
    elif kind != "none":
        changed = {"cut": content[:-5], "grown": content + b"\0", "empty": b""}
        files[side].write_bytes(changed.get(kind, content))
    if kind == "another name":
        files[side] = files[side].rename(tmp_path / "a.PNG")
    if kind == "nul":
        files[side] = files[side].with_name(files[side].name + "\0.png")
    most = LIMIT - 1 if kind == "too large" else LIMIT
    assert count_plain([tuple(files)], spec_of(2), max_pixels=most) == [None]


def test_a_pipe_is_not_read(tmp_path):
    pipe, other = tmp_path / "a.png", put(tmp_path, "b.png", np.ones((3, 4)))
    os.mkfifo(pipe)
    handle = os.open(pipe, os.O_RDWR)
    try:
        os.write(handle, other.read_bytes())
        assert count_plain([(pipe, other)], spec_of(2), max_pixels=LIMIT) == [None]
        assert os.read(handle, 10**6) == other.read_bytes()
    finally:
        os.close(handle)


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_or_rows_over_the_room_that_is_kept_are_left_alone(more, tmp_path, monkeypatch):
    """Rows of 15 bytes, in a file of more; and in room for as much as the file, which must be left over by one byte."""
    files = tuple(put(tmp_path, f"{name}.png", np.ones((3, 4))) for name in "ab")
    monkeypatch.setattr(pairs, "_LOCAL", threading.local())
    monkeypatch.setattr(pairs._LOCAL, "memory", None, raising=False)
    monkeypatch.setattr(pairs, "_MOST_BYTES", files[0].stat().st_size + more)
    found = count_plain([files], spec_of(2), max_pixels=LIMIT)
    assert (found[0] is not None) == bool(more)


def test_no_handle_stays_open(tmp_path):
    files = tuple(put(tmp_path, f"{name}.png", np.ones((3, 4))) for name in "ab")
    (tmp_path / "c.png").write_bytes(b"no picture")
    before = open_handles()
    for each in (files, (files[0], tmp_path / "c.png"), (tmp_path / "c.png", files[0])):
        count_plain([each] * 20, spec_of(2), max_pixels=LIMIT)
    assert open_handles() == before


def test_the_usual_way_takes_all_where_the_libraries_are_out_of_reach(tmp_path, monkeypatch):
    files = tuple(put(tmp_path, f"{name}.png", np.ones((3, 4))) for name in "ab")
    monkeypatch.setitem(sys.modules, "segmeter.evaluation.plain._files", None)
    pairs._compiled.cache_clear()
    try:
        assert count_plain([files], spec_of(2), max_pixels=LIMIT) == [None]
    finally:
        pairs._compiled.cache_clear()


def test_a_case_whose_hash_fails_is_left_to_the_usual_way(tmp_path):
    """As without memory, or where Python's own is interrupted; only a new process links anew."""
    files = [str(put(tmp_path, f"{name}.png", np.ones((3, 4)))) for name in "ab"]
    code = f"""if True:
        import ctypes
        from pathlib import Path
        from segmeter.data.files.deflate import linked
        from segmeter.evaluation.plain.pairs import count_plain
        from tests.evaluation.plain.test_pairs import spec_of

        address = ctypes.cast(linked._hash_by_python, ctypes.c_void_p).value
        linked.binding.add_symbol("segmeter_SHA256", address)
        files = tuple(map(Path, {files}))
        (found,) = count_plain([files], spec_of(2), max_pixels=12)
        linked.hashlib = None  # its use fails
        print(found is not None, count_plain([files], spec_of(2), max_pixels=12))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True [None]\n"
