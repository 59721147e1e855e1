"""`segmeter export`, the lines of its page that run its file without segmeter, and the images it is compared on."""

import json
import re
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from segmeter.cli.main import main
from tests.cli.sharded import make_checkpoint, run
from tests.data.crafted import noise, put

PAGE = Path(__file__).parents[3] / "docs" / "export.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three images, none of a size that the network takes without padding."""
    monkeypatch.chdir(tmp_path)
    for index in range(3):
        put(tmp_path / "images" / f"case{index}.png", noise(70 + 5 * index, 50 + 3 * index, seed=index))
    return tmp_path


def test_the_lines_of_the_page_give_the_labels_that_predict_gives(here: Path, monkeypatch, capsys):
    """They are taken from the page as they stand, and run beside the model."""
    make_checkpoint(here / "step", seed=1)
    main(["export", "checkpoint=step", "input=images", "cases=2"])
    assert "100.0000% of " in capsys.readouterr().out
    main(["predict", "checkpoint=step", "input=images", "inference.precision=float32"])
    (run,) = (here / "runs/export").iterdir()
    assert json.loads((run / "comparison.json").read_text())["cases"] == ["case0", "case2"]
    assert json.loads((run / "run.json").read_text())["state"] == "done"
    lines = textwrap.dedent(re.search(r"\n((?: {4}.*\n)*.*InferenceSession.*\n(?: {4}.*\n)*)", PAGE.read_text())[1])
    assert len(lines.splitlines()) == 5
    monkeypatch.chdir(run)
    Image.open(here / "images/case1.png").save(run / "image.png")
    found: dict[str, np.ndarray] = {}
    exec(lines, found)
    (written,) = (here / "runs/predict").glob("*/predictions/labels/case1.png")
    np.testing.assert_array_equal(found["labels"], np.asarray(Image.open(written)))


@pytest.mark.slow
def test_two_checkpoints_are_evaluated_predicted_and_exported_as_their_mean(here: Path):
    """By their command lines; all three hold the same labels, which are of neither model alone."""
    make_checkpoint(here / "a", seed=1)
    make_checkpoint(here / "b", seed=2)
    (here / "data").mkdir()
    (here / "images").rename(here / "data/images")
    for path in (here / "data/images").iterdir():
        put(here / "data/masks" / path.name, noise(*np.asarray(Image.open(path)).shape[:2], None) % 3)
    plain = ["inference.precision=float32", "device=cpu"]
    data = ["data=folder", "data.root=data", "data.split=all"]
    main(["eval", "checkpoint=[a,b]", *data, *plain, "report.html=false", "run.name=both"])
    main(["predict", "checkpoint=[a,b]", "input=data/images", *plain, "run.name=both"])
    main(["predict", "checkpoint=a", "input=data/images", *plain, "run.name=alone"])
    main(["export", "checkpoint=[a,b]", "input=data/images", "cases=3"])
    ways = [("eval", "both"), ("predict", "both"), ("predict", "alone")]
    both, predicted, alone = (labels_of(here, *names) for names in ways)
    (run,) = (here / "runs/export").iterdir()
    exported = onnxruntime.InferenceSession(run / "model.onnx", providers=["CPUExecutionProvider"])
    for name, labels in both.items():
        np.testing.assert_array_equal(labels, predicted[name])
        image = np.asarray(Image.open(here / "data/images" / name))
        np.testing.assert_array_equal(labels, exported.run(None, {"images": image[None]})[0][0])
    assert any(not np.array_equal(labels, alone[name]) for name, labels in both.items())


def labels_of(here: Path, command: str, name: str) -> dict[str, np.ndarray]:
    paths = (here / "runs" / command).glob(f"*_{name}/predictions/labels/*.png")
    return {path.name: np.asarray(Image.open(path)) for path in paths}


@pytest.mark.parametrize(("arguments", "message"), [
    (["format=tensorrt"], "format"),
    (["format=aot"], "format"),
    (["device=cuda"], "'device'"),
    (["input=nowhere"], "`input` to be a folder or an image"),
    ([], "name some with input=FOLDER_OR_FILE"),
], ids=" ".join)  # fmt: skip
def test_bad_requests_end_before_any_work(here: Path, capsys, arguments: list[str], message: str):
    make_checkpoint(here / "step")
    assert run("export", "checkpoint=step", *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (here / "runs").exists()
