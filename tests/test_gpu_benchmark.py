"""`benchmarks/gpu.py` on a CPU: the same code, with what needs a GPU skipped by name."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--quick", "--work", str(folder / "work")]
    command += ["--output", str(folder / "gpu.json"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(folder):
    return json.loads((folder / "gpu.json").read_text(encoding="utf-8"))["parts"]


@pytest.fixture
def module(monkeypatch):
    """The script as a module; its folder has the others that it imports."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("gpu")


def test_parts_are_kept_and_what_needs_a_gpu_is_skipped_by_name(tmp_path):
    done = run(tmp_path, "--only", "memory,overlap")
    assert done.returncode == 0, done.stderr
    assert {name: part["state"] for name, part in read(tmp_path).items()} == {"memory": "done", "overlap": "done"}
    again = run(tmp_path, "--only", "memory,recipe", "--minutes", "0")
    assert "memory:" not in again.stderr, "a part that is done is not run again"
    assert read(tmp_path)["recipe"]["state"] == "no time left"
    table = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "| overlap | copies beside kernels in a prediction |  | skipped | needs a CUDA device |" in table
    assert "batches uploaded | none waits | 3 steps | met; " in table
    assert "| tests | the tests that need a GPU | | **not run** | |" in table


def test_a_part_that_runs_out_of_time_costs_the_others_nothing(tmp_path):
    done = run(tmp_path, "--only", "resume,memory,recipe", "--minutes", "0.1")
    assert done.returncode == 0, done.stderr
    parts = read(tmp_path)
    assert parts["resume"]["state"] == "ran out of time"
    assert parts["recipe"]["state"] == "no time left"
    assert parts["resume"]["date"] in (tmp_path / "gpu.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("changed", ["versions", "driver", "quick"])
def test_figures_of_another_machine_are_not_kept_in_one_table(module, tmp_path, capsys, changed):
    record = {"versions": {"torch": "2.15"}, "driver": None, "quick": False, "parts": {"memory": {"state": "done"}}}
    (tmp_path / "gpu.json").write_text(json.dumps(record), encoding="utf-8")
    assert module.read_kept(tmp_path / "gpu.json", record) == record["parts"]
    assert module.read_kept(tmp_path / "gpu.json", record | {changed: "another"}) == {}
    assert f"of other {changed}, so every part is run anew" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "said"), [("--only=brige", "got brige"), ("--device=cuda", "shows no CUDA device")])
def test_unknown_parts_and_a_missing_gpu_are_refused(module, monkeypatch, capsys, given, said):
    monkeypatch.setattr(sys, "argv", ["gpu.py", given])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        module.parse()
    assert said in capsys.readouterr().err


def test_what_python_lacks_is_named_before_anything_runs():
    """As where only some packages are carried to the machine."""
    command = [sys.executable, "-S", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": ""})
    assert done.returncode == 1
    assert "can't import torch, torchvision," in done.stderr
    assert "hydra, omegaconf, antlr4, pydantic" in done.stderr


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    parts = read(tmp_path)
    assert {part["state"] for part in parts.values()} == {"done"}, parts
    assert not [row for part in parts.values() for row in part["rows"] if row["met"] is False]
