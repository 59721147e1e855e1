"""`benchmarks/gpu_bundle.py`: one file that a bare Python unpacks and runs."""

import importlib
import json
import os
import re
import subprocess
import sys

import pytest

from .test_gpu_benchmark import SCRIPT

SHOWN = "import json, os, sys; print(json.dumps([sys.argv, os.environ['PYTHONPATH']]))"


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("gpu_bundle")


@pytest.fixture
def bundle(module, tmp_path):
    path = tmp_path / "gpu.pyz"
    module.write_bundle(path, [("files/benchmarks/gpu.py", SHOWN.encode()), ("files/camvid/train.txt", b"a\n")])
    return path


def call(bundle, *arguments, **environment):
    command = [sys.executable, "-S", str(bundle), *arguments]
    clean = {key: value for key, value in os.environ.items() if key not in ("OUT", "PYTHONPATH")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=bundle.parent, env=clean | environment
    )
    return json.loads(done.stdout)


def test_one_command_unpacks_and_runs_it_once_in_folders_of_the_callers_choice(bundle, module, tmp_path):
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
    module.write_bundle(bundle, [("files/benchmarks/gpu.py", SHOWN.encode())])  # other content
    found, _ = call(bundle, SEGMETER_GPU=str(tmp_path / "place"))
    assert found[0].startswith(str(tmp_path / "place"))
    assert found[0] != str(folder / "benchmarks" / "gpu.py")


def test_every_codec_that_src_calls_is_one_of_them(module):
    """Mutation seen to fail: no _deflate."""
    modules = importlib.import_module("imagecodecs.imagecodecs")._ATTRIBUTES
    texts = [path.read_text("utf-8") for path in (SCRIPT.parents[1] / "src").rglob("*.py")]
    names = {name for text in texts for name in re.findall(r"imagecodecs\.(\w+)", text)}
    assert {modules[name] for name in names if name in modules} == {"_deflate"}
    assert "_deflate" in module.CODECS


def test_a_bundle_and_the_repository_are_the_same_code(module, tmp_path, monkeypatch):
    gpu = importlib.import_module("gpu")
    whole = gpu.code()
    for name, content in module.source():
        assert not name.startswith("files/benchmarks/results/") or "results/gpu" in name, "earlier records, no others"
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setattr(gpu, "ROOT", tmp_path / "files")
    monkeypatch.setattr(gpu, "HERE", tmp_path / "files" / "benchmarks")
    assert gpu.code() == whole
    assert (tmp_path / "files" / "commit").is_file()
    assert (tmp_path / "files" / "configs" / "train.yaml").is_file()
