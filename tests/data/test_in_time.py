"""Reading within a limit: what comes out, what is said of a case that comes too late, and every way that is limited."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from segmeter.data.dataset import read_case
from segmeter.data.files.array import ArrayRows, FileArray
from segmeter.data.files.opened import TimeLimit
from segmeter.data.folder import build_folder
from segmeter.data.verification import verify
from segmeter.data.verification.splits import check_dataset
from segmeter.data.verification.verify import header_problems
from segmeter.errors import DataError, LateError
from segmeter.training.data import windows as parts
from segmeter.training.data.windows import PartReader
from tests.data.crafted import folder, noise, put
from tests.data.volumes import VOLUME, save_volume

ROOT = Path(__file__).parents[2]
LATE = r"^data: case 'b' \(index 1\) was not read within 0\.3 seconds: .*b\.\w+, .*b\.\w+\. Bring the disk or server "
STOPPED = """
import time
from segmeter.data.files.opened import TimeLimit
limit = TimeLimit(seconds=1.5, case_id="a", files=())
print("reading", flush=True)
print(limit(lambda: ([time.sleep(0.05) for _ in range(14)], "read")[1]), flush=True)
"""

IN_A_WORKER = """
from segmeter.parallel import map_in_processes
from tests.data.test_in_time import read_for_ever
list(map_in_processes(read_for_ever, [0], processes=1, describe=str))
"""
IN_A_COMMAND = """
from segmeter.cli import main
from tests.data.test_in_time import read_for_ever
main._dispatch = read_for_ever
main.main([])
"""


def limit(seconds=0.3):
    return TimeLimit(seconds=seconds, case_id="a", files=(Path("a.png"), Path("a mask.png")), index=4)


def test_what_is_read_comes_out():
    here = threading.current_thread
    assert limit(None)(here) is here()
    assert limit()(here) is not here()
    assert limit(None).lines(ArrayRows(np.zeros(3))).read(0, 2).shape == (2,)
    for error in (DataError("damaged"), TimeoutError("the reader's own")):
        with pytest.raises(type(error), match=str(error)):
            limit()(mock.Mock(side_effect=error))


def test_what_comes_too_late_is_named_in_time(released):
    begun = time.monotonic()
    with pytest.raises(LateError) as caught:
        limit()(released.wait)
    assert 0.3 <= time.monotonic() - begun < 5
    assert caught.value.exit_code == 3
    again = pickle.loads(pickle.dumps(caught.value))
    said = "was not read within 0.3 seconds: a.png, a mask.png. Bring the disk or server back, or raise data.timeout_s."
    assert str(again) == f"data: case 'a' (index 4) {said}"


@pytest.mark.slow
def test_a_time_in_which_the_process_was_stopped_does_not_count():
    """As a scheduler stops a job for another one."""
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "reading\n"
        time.sleep(0.2)  # until it waits
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(child.pid, signal.SIGCONT)
        assert child.stdout.readline() == "read\n"


def read_for_ever(_):
    """As zarr does, in a pool of its own, whose threads Python waits for when it ends."""
    limit()(lambda: ThreadPoolExecutor(1).submit(time.sleep, 10**6).result())


@pytest.mark.slow
@pytest.mark.parametrize(("script", "code"), [(IN_A_WORKER, 1), (IN_A_COMMAND, 3)])
def test_a_process_ends_though_a_library_reads_for_ever(script, code):
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code
    assert "case 'a' (index 4) was not read within 0.3 seconds" in ended.stderr


def test_a_read_that_was_interrupted_holds_up_no_other(released):
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        limit(9)(released.wait)
    assert limit()(lambda: "read") == "read"


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_that_was_read_is_kept_not_even_by_an_error(fails):
    kept = []

    def read():
        array = np.zeros(5)
        kept.append(weakref.ref(array))
        if fails:
            raise DataError("damaged")
        return array

    gc.disable()
    try:
        with suppress(DataError):
            limit()(read)
        until = time.monotonic() + 5
        while kept[0]() is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert kept[0]() is None
    finally:
        gc.enable()


def _rows(data):
    with data.open_rows(1) as (image, _):
        return image.read(0, 3)


WAYS = {
    "sample": lambda data: read_case(data, 1),
    "header": lambda data: data.header_of(1),
    "kinds": lambda data: data.kinds(),
    "headers": header_problems,
    "place": lambda data: data.locate("b"),
    "hashes": lambda data: data.contents(),
    "check": partial(check_dataset, use_cache=False),
    "rows": _rows,
    "window": lambda data: PartReader(data)(1).image[2:5, 3:6],
    "check by rows": lambda data: check_dataset(replace(data, streams=True, rows_above=1), use_cache=False),
}


@pytest.fixture
def images(tmp_path, monkeypatch):
    for seed, name in enumerate("abc"):
        put(tmp_path / "images" / f"{name}.tif", noise(seed=seed))
        put(tmp_path / "masks" / f"{name}.tif", noise(channels=None, seed=seed) % 2)
    monkeypatch.setattr(parts, "LEAST_PIXELS", 1)
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    return replace(build_folder(folder(tmp_path), split="all"), timeout_s=0.3)


@pytest.fixture
def released():
    """What every hanging read waits for, until the test ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def b_hangs(released, monkeypatch):
    """The files of case b are never opened."""

    def waiting(path, *more, then=os.open, **options):
        if isinstance(path, Path) and path.stem == "b":
            released.wait(9)
        return then(path, *more, **options)

    monkeypatch.setattr(os, "open", waiting)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_a_case_gives_the_same_with_a_limit(way, images):
    found, expected = (repr(WAYS[way](replace(images, timeout_s=seconds))) for seconds in (9, None))
    assert found.replace("timeout_s=9", "timeout_s=None") == expected


@pytest.mark.usefixtures("b_hangs")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_a_case_is_limited(way, images):
    with pytest.raises(LateError, match=LATE):
        WAYS[way](images)


def test_the_hash_of_a_volume_is_limited(tmp_path, released, monkeypatch):
    for kind in ("images", "masks"):
        save_volume(tmp_path / kind / "a.npy", VOLUME % 2)
    volumes = replace(build_folder(folder(tmp_path, in_channels=1, planes="k"), split="all"), timeout_s=1.0)
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verify, "hash_map", lambda path: released.wait(9))
    with pytest.raises(LateError, match=r"case 'a' \(index 0\) was not read within 1 seconds"):
        check_dataset(volumes, use_cache=False)


def test_rows_are_limited_each_time_they_are_read(images, released, monkeypatch):
    with images.open_rows(1) as (rows, _):
        monkeypatch.setattr(FileArray, "read", lambda self, start, stop: released.wait(9))
        with pytest.raises(LateError, match=LATE):
            rows.read(0, 3)
        released.set()  # for the end of the block


def test_windows_are_limited_each_time_they_are_read(images, released, monkeypatch):
    sample = PartReader(images)(1)
    monkeypatch.setattr(PartReader, "_read", lambda *given, **more: released.wait(9))
    for array in (sample.image, sample.target):
        with pytest.raises(LateError, match=LATE):
            array[2:5, 3:6]
