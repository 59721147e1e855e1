"""`benchmarks/gpu.py` on a CPU: the same code, with what needs a GPU skipped by name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--quick", "--work", str(folder / "work")]
    command += ["--output", str(folder / "gpu.json"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(folder):
    return json.loads((folder / "gpu.json").read_text(encoding="utf-8"))["parts"]


def test_parts_are_kept_and_what_needs_a_gpu_is_skipped_by_name(tmp_path):
    done = run(tmp_path, "--only", "memory,recipe")
    assert done.returncode == 0, done.stderr
    parts = read(tmp_path)
    assert {name: part["state"] for name, part in parts.items()} == {"memory": "done", "recipe": "done"}
    assert [row["note"] for part in parts.values() for row in part["rows"]] == ["needs a CUDA device"] * 2
    again = run(tmp_path, "--only", "memory,bridge")
    assert "memory:" not in again.stderr, "a part that is done is not run again"
    assert list(read(tmp_path)) == ["memory", "recipe", "bridge"]
    table = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "| bridge | benchmarks/bridge.py |  | skipped |  on a CPU: results/bridge.json |" in table
    assert "| tests | the tests that need a GPU | | **not run** | |" in table


def test_a_part_that_runs_out_of_time_costs_the_others_nothing(tmp_path):
    done = run(tmp_path, "--only", "resume,memory", "--minutes", "0.25")
    assert done.returncode == 0, done.stderr
    assert read(tmp_path)["resume"]["state"] == "ran out of time"
    assert read(tmp_path)["memory"]["state"] in ("done", "no time")


def test_unknown_parts_and_a_missing_gpu_are_refused(tmp_path):
    done = run(tmp_path, "--only", "brige")
    assert done.returncode == 2
    assert "got brige" in done.stderr


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    parts = read(tmp_path)
    assert {part["state"] for part in parts.values()} == {"done"}, parts
    assert not [row for part in parts.values() for row in part["rows"] if row["met"] is False]
