"""A library that crashes, hangs or takes too much costs its reader process, and one line."""

import operator
import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest

from segmeter.data.files import reader_process
from segmeter.data.files.reader_process import need, read_apart
from segmeter.errors import DataError
from tests.data.files import apart

PATH = Path("some") / "file.mha"
ROOT = Path(__file__).parents[3]


def ask(work, *arguments, max_pixels=1000):
    return read_apart(PATH, work, *arguments, size=100, max_pixels=max_pixels)


def is_running(process):
    return psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE


def test_results_and_errors_come_back_and_the_process_is_kept():
    first = ask(os.getpid)
    values = np.arange(10**6, dtype=np.float32).reshape(10, -1)
    found = ask(operator.mul, values, 2)
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    assert np.array_equal(found, 2 * values)
    found[0] = 1  # as of an array that was decoded here
    with pytest.raises(DataError) as error:
        ask(apart.refuse, ["one", "two"])
    assert error.value.problems == ("one", "two")
    assert ask(apart.talk) == "quiet"
    assert ask(os.getpid) == first != os.getpid()


@pytest.mark.parametrize(
    ("work", "line"),
    [
        (apart.crash, r"complete, got .*its decoder ended by SIGSEGV.*Copy it again\.$"),
        (apart.hang, r"decoded within 0\.5 s of processor time, got none that ends"),
    ],
)
def test_a_crash_and_a_decoder_that_never_ends_are_one_line_with_the_files_name(work, line, monkeypatch):
    monkeypatch.setattr(reader_process, "SECONDS", 0.5)
    with pytest.raises(DataError, match=rf"^some/file.mha: expected `file` to be {line}"):
        ask(work)
    assert ask(operator.mul, 2, 2) == 4


def test_a_crash_counts_for_a_fresh_process_only():
    """Otherwise a sound file would be refused for what an earlier one did."""
    for _ in range(2):
        ask(apart.harm)
        assert ask(apart.crash_if_harmed) == "sound"


def test_the_memory_of_a_process_is_bounded(monkeypatch):
    pytest.importorskip("resource", reason="Windows limits no process so")
    monkeypatch.setattr(reader_process, "SPARE_BYTES", 1 << 28)
    assert ask(apart.take, 1 << 26) == 1
    with pytest.raises(MemoryError):
        ask(apart.take, 1 << 29)
    assert ask(apart.take, 1 << 29, max_pixels=1 << 25) == 1


def _of_other_process(queue):
    queue.put((ask(operator.mul, 21, 2), ask(os.getpid)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_worker_process_has_readers_of_its_own(method):
    own, context = ask(os.getpid), get_context(method)
    queue = context.SimpleQueue()
    worker = context.Process(target=_of_other_process, args=(queue,))
    worker.start()
    value, theirs = queue.get()
    worker.join(60)
    assert (value, worker.exitcode) == (42, 0)
    assert theirs != own == ask(os.getpid)
    assert ended(theirs)


def ended(process, seconds=20):
    until = time.monotonic() + seconds
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_running(process)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_a_reader_ends_with_a_parent_that_is_killed(busy, tmp_path):
    """One that hangs in native code ends after its processor time, which no parent has to watch."""
    code = (
        "from segmeter.data.files import reader_process\n"
        "from tests.data.files.test_reader_process import ask, apart, os\n"
        "reader_process.SECONDS = 3\n"
        "print(ask(os.getpid), flush=True)\n"
        f"ask(apart.hang) if {busy} else input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with parent:
        reader = int(parent.stdout.readline())
        until = time.monotonic() + 20
        while busy and sum(psutil.Process(reader).cpu_times()[:2]) < 1.5 and time.monotonic() < until:
            time.sleep(0.05)
        assert is_running(reader)
        parent.kill()
    assert ended(reader)


def test_relative_paths_are_those_of_the_caller(tmp_path, monkeypatch):
    process = ask(os.getpid)
    monkeypatch.chdir(tmp_path)
    assert (ask(os.getcwd), ask(os.getpid)) == (str(tmp_path), process)


def test_an_interrupted_wait_ends_the_process_that_nobody_reads(monkeypatch):
    process = ask(os.getpid)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(apart.hang)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not is_running(process)
    assert ask(operator.mul, 2, 2) == 4


def test_a_reader_loads_no_torch_nor_the_program_again_and_ends_with_it(tmp_path):
    (tmp_path / "torch.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(
        "print('started')\n"
        "import torch\n"
        "from tests.data.files.test_reader_process import ask, apart, os\n"
        "print(ask(apart.loaded, 'torch', 'numpy', 'hydra'))\n"
        "print(ask(os.getpid))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    *lines, reader = done.stdout.splitlines()
    assert (lines, done.stderr) == (["started", "['numpy']"], "")
    assert ended(int(reader))


def test_a_library_is_given_or_the_command_that_installs_it(tmp_path, monkeypatch):
    assert need("pickle", "itk", "MHA files") is pickle
    with pytest.raises(DataError) as error:
        need("no_such_library", "itk", "MHA files")
    assert error.value.problems == (
        "read: expected `no_such_library` to be installed for MHA files, got none. Run: pip install 'segmeter[itk]'",
    )
    (tmp_path / "half_there.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"`half_there` to be installed for DICOM"):
        need("half_there", "dicom", "DICOM segmentations")
