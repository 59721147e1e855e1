"""`benchmarks/gpu.py` on a CPU: the same code, with what needs a GPU skipped by name."""

import ast
import importlib
import json
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from tests.fuzzing import sampled
from tests.sources import MODULES, nodes

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "gpu.py"
OPTIONAL = {  # of src, lazily
    *("tensorboard", "onnx", "onnxruntime", "transformers", "nibabel", "submitit", "optuna", "torchmetrics", "monai")
}
BROUGHT = {"huggingface_hub": "timm", "pydantic_core": "pydantic", "annotated_types": "pydantic", "triton": "torch"}


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--quick", "--work", str(folder / "work")]
    command += ["--out", str(folder / "out"), "--minutes", "60", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(folder):
    return json.loads((folder / "out" / "gpu-cpu-quick.json").read_text(encoding="utf-8"))["parts"]


@pytest.fixture
def module(monkeypatch):
    """The script as a module; its folder has the others that it imports."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("gpu")


@pytest.fixture
def stage(module, monkeypatch, tmp_path):
    """Run a stage in which every part is done at once; the parts that it ran, in their order."""

    def stage(*arguments):
        ran = []

        def run_part(name, part, arguments, *, seconds, before):
            ran.append(name)
            return module.Result(state="done")

        monkeypatch.setattr(module, "run_part", run_part)
        given = ["--device=cpu", "--quick", f"--work={tmp_path / 'work'}", f"--out={tmp_path / 'out'}", *arguments]
        monkeypatch.setattr(sys, "argv", ["gpu.py", *given])
        monkeypatch.setattr(module, "START", time.monotonic())
        module.main()
        return ran

    return stage


@pytest.mark.slow
def test_parts_are_kept_and_what_needs_a_gpu_is_skipped_by_name(tmp_path):
    done = run(tmp_path, "--only", "memory,overlap")
    assert done.returncode == 0, done.stderr
    assert {name: part["state"] for name, part in read(tmp_path).items()} == {"memory": "done", "overlap": "done"}
    again = run(tmp_path, "--only", "memory,recipe", "--minutes", "0")
    assert "memory:" not in again.stderr, "a part that is done is not run again"
    assert read(tmp_path)["recipe"]["state"] == "not run: this stage had less than 90 s left"
    assert "Not done yet: recipe." in again.stdout
    table = (tmp_path / "out" / "gpu-cpu-quick.md").read_text(encoding="utf-8")
    assert "| overlap | copies beside kernels in a prediction |  | skipped | needs a CUDA device |" in table
    assert "batches uploaded | none waits | 3 steps | met; " in table
    assert "| tests | the tests that need a GPU | | **not run** | |" in table


def test_a_stage_runs_what_is_left_and_what_failed_after_all_else(module, stage, tmp_path):
    seconds = module.PARTS["bridge"].limit_s - 1  # too few for a part that is run whole
    assert stage("--only=tests,bridge", f"--minutes={seconds / 60}") == ["tests"]
    assert stage("--only=tests,bridge") == ["bridge"]
    path = tmp_path / "out" / "gpu-cpu-quick.json"
    record = json.loads(path.read_text("utf-8"))
    (tmp_path / "work" / path.name).unlink()
    record["parts"]["tests"]["state"] = "failed with exit code 1"
    record["parts"]["memory"] = asdict(module.Result(state=module.CUT))
    path.write_text(json.dumps(record), "utf-8")
    left = [name for name in module.PARTS if name not in ("tests", "bridge")]
    assert stage() == [*left, "tests"]
    assert stage() == []
    parts = module.PARTS.values()
    assert sum(part.limit_s for part in parts) <= 40 * 60
    assert all(part.least_s <= part.limit_s for part in parts)
    assert all(part.limit_s <= 8 * 60 for part in parts if not part.goes_on), "a part fits a stage of nine minutes"


@pytest.mark.parametrize("changed", ["code", "versions", "driver", "quick", "machine"])
def test_figures_of_another_machine_or_code_are_not_kept_in_one_table(module, tmp_path, capsys, changed):
    record = {"code": "abc", "machine": {"cores": 2}, "versions": {"torch": "2.15"}, "driver": None, "quick": False}
    path, parts = tmp_path / "gpu.json", {"memory": {"state": "done"}}
    path.write_text(json.dumps(record | {"parts": parts}), encoding="utf-8")
    assert module.read_kept([tmp_path / "none.json", path], record) == parts
    assert module.read_kept([path], record | {changed: "another"}) == {}
    assert f"of other {changed}, so every part is run anew" in capsys.readouterr().err
    cut, done = {"memory": {"state": module.CUT}}, {"memory": {"state": "done"}, "focal": {"state": "done"}}
    paths = [path, tmp_path / "work.json"]  # where a stage before left it, and where this one writes
    for kept, place in zip((cut, done), paths, strict=True):
        place.write_text(json.dumps(record | {"parts": kept}), encoding="utf-8")
    assert module.read_kept(paths, record) == module.read_kept(paths[::-1], record) == done


@pytest.mark.parametrize(("given", "said"), [("--only=brige", "got brige"), ("--device=cuda", "shows no CUDA device")])
def test_unknown_parts_and_a_missing_gpu_are_refused(module, monkeypatch, capsys, given, said):
    monkeypatch.setattr(sys, "argv", ["gpu.py", given])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        module.parse()
    assert said in capsys.readouterr().err


def test_what_python_lacks_is_named_before_anything_runs(tmp_path):
    """As where only some packages are carried to the machine, one of which lacks another."""
    (tmp_path / "zarr.py").write_text("import msgspec_of_zarr")
    command = [sys.executable, "-S", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "can't import torch (No module named 'torch'), torchvision (" in done.stderr
    assert "zarr (No module named 'msgspec_of_zarr')" in done.stderr


def test_all_that_src_imports_is_looked_for(module):
    every = [node for path in MODULES for node in nodes(path)]
    found = {alias.name for node in every if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in every if isinstance(node, ast.ImportFrom) and not node.level}
    packages = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"segmeter"}
    assert packages - OPTIONAL - set(BROUGHT) <= set(module.NEEDED)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert len(module.NEEDED) >= len(declared)


FILE = "import os, pytest\n@pytest.mark.gpu\ndef test_it():\n    open('calls', 'a').write('{name}')\n    {then}\n"


@pytest.mark.slow
def test_a_file_of_tests_that_crashes_costs_the_others_nothing_and_is_run_once(module, tmp_path, monkeypatch):
    jobs = importlib.import_module("gpu_jobs")
    monkeypatch.setattr(jobs, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    for name, then in {"a": "os._exit(3)", "b": "pass"}.items():
        (tmp_path / "tests" / f"test_{name}.py").write_text(FILE.format(name=name, then=then))
    (tmp_path / "tests" / "test_c.py").write_text("raise ImportError('has no test for a GPU')")
    context = jobs.Context(device="cuda", quick=True, folder=tmp_path, camvid=tmp_path)
    found = []
    for _ in range(2):
        jobs.tests(context)
        found.append([json.loads(line) for line in (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()])
        (tmp_path / "rows.jsonl").unlink()
    said = [(row["measured"], row["met"]) for row in found[0]]
    assert said == [("ended with exit code 3", False), ("1 passed, 0 failed, 0 skipped", True)]
    assert found[1] == found[0]
    assert (tmp_path / "calls").read_text() == "ab"


@pytest.mark.fuzz
def test_every_part_runs_on_a_cpu(module, tmp_path):
    """Outside of `make fuzz` only a few of them, as all take five minutes."""
    chosen = sampled(sorted(module.PARTS), 2, seed=1)
    done = run(tmp_path, "--only", ",".join(chosen))
    assert done.returncode == 0, done.stderr
    parts = {name: part for name, part in read(tmp_path).items() if name in chosen}
    assert {part["state"] for part in parts.values()} == {"done"}, parts
    assert not [row for part in parts.values() for row in part["rows"] if row["met"] is False]
