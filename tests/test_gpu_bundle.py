"""`benchmarks/gpu_bundle.py`: one file that a bare Python unpacks and runs."""

import importlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

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


def test_one_command_unpacks_and_runs_it(bundle):
    found, paths = call(bundle, "--only", "tests")
    (folder,) = (bundle.parent / "runs" / "gpu").glob("*")
    assert found[0] == str(folder / "benchmarks" / "gpu.py")
    assert found[1:3] == ["--camvid", str(folder / "camvid")]
    assert found[-2:] == ["--only", "tests"]
    assert f"--out {bundle.parent / 'gpu-results'}" in " ".join(found)
    assert paths.split(os.pathsep)[0] == str(folder / "packages")
    assert (folder / "camvid" / "train.txt").read_text() == "a\n"


def test_it_is_unpacked_once_and_other_content_elsewhere(bundle, module):
    call(bundle)
    (folder,) = (bundle.parent / "runs" / "gpu").glob("*")
    (folder / "camvid" / "train.txt").write_text("kept")
    call(bundle)
    assert (folder / "camvid" / "train.txt").read_text() == "kept"
    module.write_bundle(bundle, [("files/benchmarks/gpu.py", SHOWN.encode())])
    found, _ = call(bundle)
    assert found[0] != str(folder / "benchmarks" / "gpu.py")
    assert len(list((bundle.parent / "runs" / "gpu").glob("*"))) == 2


def test_folders_are_the_callers_choice(bundle, tmp_path):
    found, paths = call(bundle, OUT=str(tmp_path / "out"), SEGMETER_GPU=str(tmp_path / "place"), PYTHONPATH="mine")
    assert f"--out {tmp_path / 'out'}" in " ".join(found)
    assert found[0].startswith(str(tmp_path / "place"))
    assert paths.split(os.pathsep)[1] == "mine"


CALLS = """
import imagecodecs, zlib
assert imagecodecs.__file__.startswith({place!r})
assert imagecodecs.deflate_crc32(b"abc") == zlib.crc32(b"abc")
assert bytes(imagecodecs.deflate_decode(imagecodecs.deflate_encode(b"abc"), out=3)) == b"abc"
"""


def test_of_imagecodecs_only_what_src_calls_is_carried_and_that_works(module, tmp_path):
    installed = Path(importlib.import_module("imagecodecs").__file__).parents[1]
    wheel = tmp_path / "imagecodecs-1-cp311-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for folder in ("imagecodecs", "imagecodecs.libs"):
            for path in (installed / folder).glob("*.*"):
                archive.write(path, path.relative_to(installed))
    place = tmp_path / "packages"
    for name, content in module.packages([wheel]):
        path = tmp_path / name.removeprefix("files/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert sum(path.stat().st_size for path in place.rglob("*.so*")) < wheel.stat().st_size / 5
    command = [sys.executable, "-c", CALLS.format(place=str(place))]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(place)}, cwd=tmp_path)


def test_every_codec_that_src_calls_is_one_of_them(module):
    """Mutation seen to fail: no _deflate."""
    modules = importlib.import_module("imagecodecs.imagecodecs")._ATTRIBUTES
    texts = [path.read_text("utf-8") for path in (SCRIPT.parents[1] / "src").rglob("*.py")]
    names = {name for text in texts for name in re.findall(r"imagecodecs\.(\w+)", text)}
    assert {modules[name] for name in names if name in modules} == {"_deflate"}
    assert "_deflate" in module.CODECS


def test_the_source_comes_with_earlier_records_and_no_others(module):
    names = {name for name, _ in module.source()}
    assert {
        "files/commit",
        "files/benchmarks/gpu.py",
        "files/src/segmeter/__init__.py",
        "files/pyproject.toml",
    } <= names
    assert "files/configs/train.yaml" in names
    results = {name for name in names if name.startswith("files/benchmarks/results/")}
    assert all(name.startswith("files/benchmarks/results/gpu") for name in results)


def test_a_bundle_and_the_repository_are_the_same_code(module, tmp_path, monkeypatch):
    gpu = importlib.import_module("gpu")
    whole = gpu.code()
    for name, content in module.source():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setattr(gpu, "ROOT", tmp_path / "files")
    monkeypatch.setattr(gpu, "HERE", tmp_path / "files" / "benchmarks")
    assert gpu.code() == whole
