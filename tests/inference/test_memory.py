"""The C library keeps freed memory or returns it, and errors of memory are told from others."""

import subprocess
import sys

import pytest
import torch

from segmeter.inference.device import is_out_of_memory

_PROBE = """
import resource
from segmeter.inference.device import keep_freed_memory
kept = {keep} and keep_freed_memory()
def touch():
    for _ in range(5):
        bytearray(b"x" * 2**26)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> tuple[bool, int]:
    command = [sys.executable, "-c", _PROBE.format(keep=keep)]
    kept, count = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return kept == "True", int(count)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's, on Linux")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    kept, few = faults(keep=True)
    if not kept:
        pytest.skip("this C library has no mallopt")
    assert few < 200
    assert faults(keep=False)[1] > 50 * few  # each 64 MiB is mapped anew


_THREADS = """
import re, threading, time
from pathlib import Path
from segmeter.inference.device import keep_freed_memory
def used():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
kept, before, turn, end, done = keep_freed_memory(), used(), threading.Lock(), threading.Event(), []
def work():
    with turn:
        bytearray(b"x") * 2**25
        done.append(1)
    end.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
while len(done) < len(threads):
    time.sleep(0.001)
end.set()
for thread in threads:
    thread.join()
print(kept, used() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's, on Linux")
def test_threads_use_what_others_freed() -> None:
    """Of eight threads, each of which takes 32 MiB in its turn, one takes it from the system."""
    command = [sys.executable, "-c", _THREADS]
    kept, grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    if kept != "True":
        pytest.skip("this C library has no mallopt")
    assert int(grown) < 64


_HOLES = """
import re
from pathlib import Path
from segmeter.inference.device import give_back_freed_memory, keep_freed_memory
def used():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
keep_freed_memory()
blocks = [bytearray(b"x") * 2**24 for _ in range(16)]
full = used()
del blocks[:-1]
kept = used()
print(give_back_freed_memory(), full - kept, kept - used())
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_trim is glibc's, on Linux")
def test_holes_below_a_block_that_stays_are_given_back() -> None:
    """Of 16 blocks of 16 MiB the last one stays: freed, the others are kept, until they are given back."""
    command = [sys.executable, "-c", _HOLES]
    could, freed, given = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    if could != "True":
        pytest.skip("this C library has no malloc_trim")
    assert int(freed) < 16
    assert int(given) > 220


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18.1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"), False),
        (RuntimeError("shapes differ"), False),
        (ValueError("can't allocate memory"), False),
    ],
    ids=range(10),
)
def test_only_errors_of_memory_are_recognised(error, expected):
    assert is_out_of_memory(error) == expected
