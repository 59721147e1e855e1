"""The two distributions: the same sources and dependencies, one of them without torch and what needs it."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.completion import completion_index
from segmeter.cli.config.reference import json_schema
from segmeter.cli.messages import describe
from tests.cli.commands.test_decide import evaluation
from tests.data.crafted import put

ROOT = Path(__file__).parents[1]
OF_TORCH = {"torch", "segmentation-models-pytorch", "safetensors"}
NOT_LIGHT = {"torch", "torchvision", "timm", "segmentation_models_pytorch", "safetensors", "zarr", "numcodecs"}
# Runs command lines, JSON lists, where none of these can be imported; tells the code and the errors of each
LIGHT = rf"""
import contextlib, glob, io, json, re, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_LIGHT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from segmeter.cli.main import main
for line in sys.argv[1:]:
    code, errors = 0, io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            main([re.sub(r"[\w/]+\*", lambda place: glob.glob(place[0])[0], part) for part in json.loads(line)])
        except SystemExit as leaving:
            code = leaving.code
    print(json.dumps([code, errors.getvalue()]))
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


SCORE = ["score", "predictions=predictions", "references=references", CLASSES, "metrics.bootstrap=20"]
WORK = [
    *([*SCORE, f"run.root={root}"] for root in ("one", "two")),
    *([*SCORE, f"shard={n}/2", f"run.root=shard{n}"] for n in (1, 2)),
    ["compare", "runs=[one/score/*,two/score/*]"],
    ["merge", "runs=[shard1/score/*,shard2/score/*]"],
    ["report", "run=one/score/*"],
    ["agree", "folders=[predictions,references]", "data.task=binary", CLASSES, "metrics.bootstrap=0"],
    ["suspects", "runs=[evaluated]"],
    ["check", "data=cells"],
]
NEEDS_TORCH = [["train", "data=cells"], ["predict", "checkpoint=x", "input=references"], ["demo"]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """Exit code and errors of all command lines, in one process."""
    root, rng = tmp_path_factory.mktemp("light"), np.random.default_rng(0)
    for name in "abc":
        for side in ("references", "predictions"):
            put(root / side / f"{name}.png", rng.integers(0, 2, (16, 16), np.uint8))
        put(root / "zarrs" / f"{name}.zarr" / "zarr.json", b"{}")
    evaluation(root)  # a run of eval, for suspects
    lines = [*WORK, *NEEDS_TORCH, [*SCORE, "predictions=zarrs"]]
    command = [sys.executable, "-W", "error", "-c", LIGHT, *map(json.dumps, lines)]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


def test_masks_are_scored_compared_merged_and_decided_on_without_torch_and_what_needs_it_says_how_to_install_it(done):
    assert [errors for code, errors in done[: len(WORK)] if code] == []
    remedies = ["segmeter-score leaves out. Run: pip uninstall segmeter-score; pip install segmeter"] * len(NEEDS_TORCH)
    for (code, errors), remedy in zip(done[len(WORK) :], [*remedies, "Run: pip install 'segmeter[zarr]'"], strict=True):
        (line,) = [each for each in errors.splitlines() if each.startswith("segmeter: ")]
        assert (code, remedy in line) == (2, True), line


def test_another_missing_module_is_a_fault():
    assert describe(ModuleNotFoundError("No module named 'left_pad'", name="left_pad"))[1] == 3


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
