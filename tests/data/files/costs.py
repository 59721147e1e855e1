"""Reading files in a process of its own, whose memory and time are bounded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HUGE = 300 * 10**9  # bytes of a sparse file


MEASURE = """
import json, resource, sys
from pathlib import Path
from segmeter.data.sample import Reading
from segmeter.data.masks.reading import read_map
from segmeter.errors import DataError
from tests.data.crafted import THREE
import zarr, nibabel, tifffile, imagecodecs
reading = Reading(spec=THREE, label_map={}, max_pixels=200_000_000)
for path in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        read_map(Path(path), reading)
        message = "was read"
    except DataError as error:
        message = str(error)
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([path, message, (after.ru_maxrss - before.ru_maxrss) >> 10, seconds]))
"""


def refused_cheaply(*paths: Path) -> list[str]:
    """Read files in a process of its own, which each may cost 64 MB and 5 s: their refusals."""
    resource = pytest.importorskip("resource", reason="Windows limits no process so")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    )
    messages = []
    for path, message, megabytes, seconds in map(json.loads, done.stdout.splitlines()):
        assert (megabytes < 64, seconds < 5) == (True, True), (message, megabytes, seconds)
        assert message.startswith(path)
        assert "\n" not in message
        messages.append(message)
    return messages


def made_sparse(path: Path, size: int = HUGE) -> Path:
    with path.open("r+b") as file:
        file.truncate(size)
    return path
