"""The scripts of benchmarks/: who is timed how often, what a row says, `gpu.py` on a CPU and its one-file bundle."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.fuzzing import sampled
from tests.sources import MODULES, nodes

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "gpu.py"
sys.path.insert(0, str(SCRIPT.parent))
harness = importlib.import_module("harness")

OPTIONAL = {  # of src, lazily
    *("tensorboard", "onnx", "onnxruntime", "transformers", "nibabel", "submitit", "optuna", "torchmetrics", "monai")
}
BROUGHT = {"huggingface_hub": "timm", "pydantic_core": "pydantic", "annotated_types": "pydantic", "triton": "torch"}


@pytest.fixture
def module():
    return importlib.import_module("gpu")


@pytest.fixture
def stage(module, monkeypatch, tmp_path):
    """Run a stage in which every part is done at once; the parts that it ran, in their order."""

    def stage(*arguments):
        ran = []
        monkeypatch.setattr(module, "run_part", lambda name, *_, **__: ran.append(name) or module.Result(state="done"))
        given = ["--device=cpu", "--quick", f"--work={tmp_path / 'work'}", f"--out={tmp_path / 'out'}", *arguments]
        monkeypatch.setattr(sys, "argv", ["gpu.py", *given])
        monkeypatch.setattr(module, "START", time.monotonic())
        module.main()
        return ran

    return stage


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


def times(**milliseconds):
    return {
        name: harness.Time(**dict.fromkeys(harness.Time.__dataclass_fields__, value))
        for name, value in milliseconds.items()
    }


def test_contenders_take_turns_after_a_cold_call_of_each_a_long_one_every_third():
    calls = []
    harness.race({name: partial(calls.append, name) for name in "ab"}, rounds=2)
    assert calls == ["a", "b"] * 3
    calls = []
    harness.race({"slow": lambda: calls.append(1) or harness.Spent(1.0, 1.0)}, rounds=6, seldom_s=0.5)
    assert len(calls) == 1 + 2  # cold, then turns 0 and 3


def test_work_of_another_process_reports_its_own_seconds():
    answers = iter([harness.Spent(9.0, 8.0), harness.Spent(1.0, 2.0), harness.Spent(3.0, 4.0), harness.Spent(5.0, 6.0)])
    found = harness.race({"a": lambda: next(answers)}, rounds=3)["a"]
    assert found.cold_cpu_ms == 9000
    assert found.cold_wall_ms == 8000
    assert (found.cpu_ms, found.cpu_best_ms) == (3000, 1000)  # of 1, 3 and 5
    assert (found.wall_ms, found.wall_best_ms) == (4000, 2000)


def test_a_row_has_the_ratio_of_the_chosen_clock_or_says_which_tool_is_missing():
    (row,) = harness.compare("work", times(segmeter=2.0, theirs=7.0), {"theirs": 3.0})
    assert (row.ratio, row.met, row.needs) == (3.5, True, "at least 3x")
    (row,) = harness.compare("work", times(segmeter=2.0), {"theirs": 3.0})
    assert (row.ratio, row.met, row.note) == (None, None, "not installed")


def test_values_that_differ_stop_a_benchmark():
    with pytest.raises(SystemExit, match="counts differently"):
        harness.demand(False, "monai counts differently")


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
def test_every_part_runs_on_a_cpu_is_kept_and_what_needs_a_gpu_is_skipped_by_name(module, tmp_path):
    """Outside of `make fuzz` only a few of them, as all take five minutes."""

    def run(*arguments):
        command = [sys.executable, str(SCRIPT), "--device=cpu", "--quick", f"--work={tmp_path / 'work'}"]
        done = subprocess.run([*command, f"--out={tmp_path}", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        parts = json.loads((tmp_path / "gpu-cpu-quick.json").read_text(encoding="utf-8"))["parts"]
        return done, parts, (tmp_path / "gpu-cpu-quick.md").read_text(encoding="utf-8")

    done, parts, table = run("--only=recipe", "--minutes=0")
    assert parts["recipe"]["state"] == "not run: this stage had less than 90 s left"
    assert "Not done yet: recipe." in done.stdout
    assert "| tests | the tests that need a GPU | | **not run** | |" in table
    chosen = sorted({*sampled(sorted(module.PARTS), 1, seed=1), "memory", "overlap"})
    _, parts, table = run(f"--only={','.join(chosen)}", "--minutes=60")
    assert {parts[name]["state"] for name in chosen} == {"done"}, parts
    assert not [row for name in chosen for row in parts[name]["rows"] if row["met"] is False]
    assert "| overlap | copies beside kernels in a prediction |  | skipped | needs a CUDA device |" in table
    assert "batches uploaded | none waits | 3 steps | met; " in table
    assert "memory:" not in run("--only=memory", "--minutes=0")[0].stderr, "a part that is done is not run again"


SHOWN = "import json, os, sys; print(json.dumps([sys.argv, os.environ['PYTHONPATH']]))"


@pytest.fixture
def bundler():
    return importlib.import_module("gpu_bundle")


@pytest.fixture
def bundle(bundler, tmp_path):
    path = tmp_path / "gpu.pyz"
    bundler.write_bundle(path, [("files/benchmarks/gpu.py", SHOWN.encode()), ("files/camvid/train.txt", b"a\n")])
    return path


def call(bundle, *arguments, **environment):
    clean = {key: value for key, value in os.environ.items() if key not in ("OUT", "PYTHONPATH")} | environment
    command = [sys.executable, "-S", str(bundle), *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=bundle.parent, env=clean).stdout)


def test_one_command_unpacks_and_runs_it_once_in_folders_of_the_callers_choice(bundle, bundler, tmp_path):
    found, paths = call(bundle, "--only", "tests")
    (folder,) = (bundle.parent / "runs" / "gpu").glob("*")
    assert found[:3] == [str(folder / "benchmarks" / "gpu.py"), "--camvid", str(folder / "camvid")]
    assert found[-2:] == ["--only", "tests"]
    assert f"--out {bundle.parent / 'gpu-results'}" in " ".join(found)
    assert paths.split(os.pathsep)[0] == str(folder / "packages")
    (folder / "camvid" / "train.txt").write_text("kept")
    found, paths = call(bundle, OUT=str(tmp_path / "out"), PYTHONPATH="mine")
    assert f"--out {tmp_path / 'out'}" in " ".join(found)
    assert paths.split(os.pathsep)[1] == "mine"
    assert (folder / "camvid" / "train.txt").read_text() == "kept"
    bundler.write_bundle(bundle, [("files/benchmarks/gpu.py", SHOWN.encode())])  # other content
    found, _ = call(bundle, SEGMETER_GPU=str(tmp_path / "place"))
    assert found[0].startswith(str(tmp_path / "place"))
    assert found[0] != str(folder / "benchmarks" / "gpu.py")


def test_every_codec_that_src_calls_is_one_of_them(bundler):
    """Mutation seen to fail: no _deflate."""
    modules = importlib.import_module("imagecodecs.imagecodecs")._ATTRIBUTES
    texts = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    names = {name for text in texts for name in re.findall(r"imagecodecs\.(\w+)", text)}
    assert {modules[name] for name in names if name in modules} == {"_deflate"}
    assert "_deflate" in bundler.CODECS


def test_a_bundle_and_the_repository_are_the_same_code(module, bundler, tmp_path, monkeypatch):
    whole = module.code()
    for name, content in bundler.source():
        assert not name.startswith("files/benchmarks/results/") or "results/gpu" in name, "earlier records, no others"
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setattr(module, "ROOT", tmp_path / "files")
    monkeypatch.setattr(module, "HERE", tmp_path / "files" / "benchmarks")
    assert module.code() == whole
    assert (tmp_path / "files" / "commit").is_file()
    assert (tmp_path / "files" / "configs" / "train.yaml").is_file()
