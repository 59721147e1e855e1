import subprocess
import sys

import pytest

_PROBE = """
import resource
from segmeter.inference.allocator import keep_freed_memory
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's, on Linux")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    kept, few = faults(keep=True)
    if not kept:
        pytest.skip("this C library has no mallopt")
    assert few < 200
    assert faults(keep=False)[1] > 50 * few  # each 64 MiB is mapped anew
