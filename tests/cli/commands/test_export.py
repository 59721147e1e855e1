"""`segmeter export`, the lines of its page that run its file without segmeter, and the images it is compared on."""

import json
import re
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from segmeter.cli.commands import export
from segmeter.cli.main import main
from segmeter.data.folder import open_images
from segmeter.deploy.publish import Agreement, Exported
from tests.cli.sharded import make_checkpoint, run
from tests.data.crafted import THREE, noise, put

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


@pytest.mark.parametrize(
    ("most", "names"),
    [(1, ["case0"]), (2, ["case0", "case4"]), (3, ["case0", "case2", "case4"]), (9, [f"case{i}" for i in range(5)])],
)
def test_images_are_spread_evenly_over_those_that_are_there(tmp_path: Path, most: int, names: list[str]) -> None:
    for index in range(5):
        put(tmp_path / f"case{index}.png", noise(6, 7, seed=index))
    found = list(export._images(open_images(tmp_path, spec=THREE, in_channels=3), most))
    assert [name for name, _ in found] == names
    np.testing.assert_array_equal(found[-1][1], noise(6, 7, seed=int(names[-1][-1])))


@pytest.mark.parametrize(
    ("differing", "least", "size", "share"),
    [(0, 1, "", "100.0000% of {}"), (1, 32, " from 32 x 32 pixels", "99.7500% of {}, the others are near-ties")],
    ids=["the same", "with near-ties"],
)
def test_what_is_said_of_the_file(differing: int, least: int, size: str, share: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "model.onnx").write_bytes(b"0" * 1_250_000)
    agreement = Agreement(cases=("a", "b"), pixels=400, differing=differing, widest=1e-7)
    export._show(Exported(path=tmp_path / "model.onnx", dtype="uint8", least=least, agreement=agreement))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"model      {tmp_path / 'model.onnx'} (1.2 MB)"
    compared = share.format("400 pixels of 2 images equal segmeter's")
    assert [line[11:] for line in shown[1:]] == [f"(batch, height, width, channel) uint8{size}", compared]
