"""Free memory: of the machine, its control groups and the process's own limit."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from segmeter import free_memory
from segmeter.free_memory import free_bytes

LIMITED = """
import resource, sys
from segmeter.free_memory import free_bytes
most = 3 << 30
resource.setrlimit(resource.RLIMIT_AS, (most, most))
assert free_bytes() < most, free_bytes()
"""


def test_free_memory_is_no_more_than_the_machine_and_the_process_may_have() -> None:
    free = free_bytes()
    assert free is not None
    assert 0 < free < 1 << 50
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    subprocess.run([sys.executable, "-c", LIMITED], check=True)


def test_a_control_group_limits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = next(
        (line[4:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")), None
    )
    if own is None:
        pytest.skip("no control groups of version 2 here")
    folder = tmp_path / own
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text("5000\n")
    (folder / "memory.current").write_text("2000\n")
    monkeypatch.setattr(free_memory, "_CGROUPS", tmp_path)
    assert free_bytes() == 3000
    (folder / "memory.stat").write_text("active_file 700\ninactive_file 900\ninactive_file_x 5\n")
    assert free_bytes() == 3900  # the cache of files that were read is given back
    (folder / "memory.max").write_text("max\n")
    assert (free_bytes() or 0) > 5000
