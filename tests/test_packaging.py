"""The two distributions: the same sources and dependencies, one of them without torch and what needs it."""

import importlib.metadata
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.commands import doctor
from segmeter.cli.completion import completion_index
from segmeter.cli.config.reference import json_schema
from segmeter.cli.messages import describe

ROOT = Path(__file__).parents[1]
OF_TORCH = {"torch", "segmentation-models-pytorch", "safetensors"}
NOT_LIGHT = {"torch", "torchvision", "timm", "segmentation_models_pytorch", "safetensors", "zarr", "numcodecs"}
# Runs a command where none of these can be imported
LIGHT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_LIGHT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from segmeter.cli.main import main
main(sys.argv[1:])
"""
CLASSES = "data.classes=[background,cell]"


def project(path: str) -> dict:
    return tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    return requirement.partition(">")[0].partition("[")[0]


def test_the_light_distribution_has_the_dependencies_of_the_whole_one_but_torch():
    whole, light = project("."), project("packaging/score")
    assert {name_of(each) for each in whole["dependencies"]} >= OF_TORCH
    assert light["dependencies"] == [each for each in whole["dependencies"] if name_of(each) not in OF_TORCH]
    extras = whole["optional-dependencies"]
    assert light["optional-dependencies"].items() <= extras.items()
    assert extras.keys() - light["optional-dependencies"] == {"tensorboard", "wandb", "mlflow", "optuna", "onnx", "hf"}
    assert (light["scripts"], light["requires-python"]) == (whole["scripts"], whole["requires-python"])


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIGHT, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, rng = tmp_path_factory.mktemp("light"), np.random.default_rng(0)
    for side in ("references", "predictions"):
        (root / side).mkdir()
        for name in "abc":
            Image.fromarray(rng.integers(0, 2, (16, 16), np.uint8)).save(root / side / f"{name}.png")
    masks = ["predictions=predictions", "references=references", CLASSES]
    for name in ("one", "two"):
        done = run(root, "score", *masks, f"run.name={name}", "metrics.bootstrap=20")
        assert done.returncode == 0, done.stderr
    return root


def test_masks_are_scored_compared_and_reported_without_torch(scored):
    one, two = sorted((scored / "runs" / "score").iterdir())
    assert (one / "report.html").is_file()
    assert run(scored, "compare", f"runs=[{one},{two}]").returncode == 0
    assert run(scored, "report", f"run={one}").returncode == 0
    done = run(scored, "check", "data=cells")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", [["train", "data=cells"], ["predict", "checkpoint=x", "input=references"], ["demo"]]
)
def test_a_command_that_needs_torch_says_how_to_install_it(scored, command):
    done = run(scored, *command)
    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("segmeter: ")]
    assert "which segmeter-score leaves out. Run: pip uninstall segmeter-score; pip install segmeter" in line


def test_zarr_is_asked_for_with_its_extra(scored):
    (scored / "zarrs").mkdir()
    for name in "abc":
        (scored / "zarrs" / f"{name}.zarr").mkdir()
        (scored / "zarrs" / f"{name}.zarr" / "zarr.json").write_text("{}")
    done = run(scored, "score", "predictions=zarrs", "references=references", CLASSES)
    assert done.returncode == 2
    assert "Run: pip install 'segmeter[zarr]'" in done.stderr


def test_another_missing_module_is_a_fault():
    assert describe(ModuleNotFoundError("No module named 'left_pad'", name="left_pad"))[1] == 3


@pytest.mark.parametrize("installed", [{"segmeter"}, {"segmeter-score"}, {"segmeter", "segmeter-score"}], ids=str)
def test_doctor_knows_which_is_installed(monkeypatch, installed):
    def version(name):
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor, "version", version)
    assert doctor.is_light() == (installed == {"segmeter-score"})
    assert ("are both installed" in (doctor._twice() or "")) == (len(installed) == 2)


@pytest.mark.slow
def test_the_wheels_of_the_checkout_and_of_the_sdist_hold_the_same_files(tmp_path):
    """`python -m build` makes the wheel from the sdist, as an index or a packager does."""
    for place, *what in ((".",), ("packaging/score", "--wheel")):
        build = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(tmp_path), place]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    contents = []
    for path in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            contents.append({name: wheel.read(name) for name in wheel.namelist() if name.startswith("segmeter/")})
    assert len(contents) == 2
    assert contents[0] == contents[1]
    assert contents[0].keys() >= {"segmeter/__init__.py", "segmeter/LICENSE", "segmeter/report/page/uplot/LICENSE"}
    assert json.loads(contents[0]["segmeter/cli/completion.json"]) == completion_index()
    assert json.loads(contents[0]["segmeter/configs/schema/train.json"]) == json_schema("train")
