"""`segmeter export`, and the lines of the README that run its file without segmeter."""

import json
import re
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from segmeter.cli.main import main
from tests.models.parts import make_card

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images_of) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    for name, image in images_of("uint8", 3, count=3):
        Image.fromarray(image).save(tmp_path / "images" / f"{name}.png")
    return tmp_path


def test_the_lines_of_the_readme_give_the_labels_that_predict_gives(here: Path, checkpoint_of, monkeypatch, capsys):
    """They are taken from the page as they stand, and run beside the model."""
    checkpoint_of(make_card())
    main(["export", "checkpoint=step", "input=images", "cases=2"])
    assert "100.0000% of " in capsys.readouterr().out
    main(["predict", "checkpoint=step", "input=images", "inference.precision=float32"])
    (run,) = (here / "runs/export").iterdir()
    assert json.loads((run / "comparison.json").read_text())["cases"] == ["case0", "case2"]
    assert json.loads((run / "run.json").read_text())["state"] == "done"
    lines = textwrap.dedent(re.search(r"\n((?: {4}.*\n)*.*InferenceSession.*\n(?: {4}.*\n)*)", README.read_text())[1])
    assert len(lines.splitlines()) == 5
    monkeypatch.chdir(run)
    Image.open(here / "images/case1.png").save(run / "image.png")
    found: dict[str, np.ndarray] = {}
    exec(lines, found)
    (written,) = (here / "runs/predict").glob("*/predictions/labels/case1.png")
    np.testing.assert_array_equal(found["labels"], np.asarray(Image.open(written)))


def test_two_checkpoints_are_evaluated_predicted_and_exported_as_their_mean(here: Path, checkpoint_of, monkeypatch):
    """By their command lines; all three hold the same labels, which are of neither model alone."""
    checkpoint_of(make_card(), "a", seed=1)
    checkpoint_of(make_card(), "b", seed=2)
    (here / "data").mkdir()
    (here / "images").rename(here / "data/images")
    for path in (here / "data/images").iterdir():
        put_mask(here / "data/masks" / path.name, size=np.asarray(Image.open(path)).shape[:2])
    plain = ["inference.precision=float32", "device=cpu"]
    data = ["data=folder", "data.root=data", "data.split=all"]
    main(["eval", "checkpoint=[a,b]", *data, *plain, "report.html=false", "run.name=both"])
    main(["predict", "checkpoint=[a,b]", "input=data/images", *plain, "run.name=both"])
    main(["predict", "checkpoint=a", "input=data/images", *plain, "run.name=alone"])
    main(["export", "checkpoint=[a,b]", "input=data/images", "cases=3"])
    both, predicted, alone = (
        labels_of(here, *names) for names in [("eval", "both"), ("predict", "both"), ("predict", "alone")]
    )
    (run,) = (here / "runs/export").iterdir()
    exported = onnxruntime.InferenceSession(run / "model.onnx", providers=["CPUExecutionProvider"])
    for name, labels in both.items():
        np.testing.assert_array_equal(labels, predicted[name])
        image = np.asarray(Image.open(here / "data/images" / name))
        np.testing.assert_array_equal(labels, exported.run(None, {"images": image[None]})[0][0])
    assert any(not np.array_equal(labels, alone[name]) for name, labels in both.items())


def put_mask(path: Path, *, size: tuple[int, int]) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 3, size).astype(np.uint8)).save(path)


def labels_of(here: Path, command: str, name: str) -> dict[str, np.ndarray]:
    paths = (here / "runs" / command).glob(f"*_{name}/predictions/labels/*.png")
    return {path.name: np.asarray(Image.open(path)) for path in paths}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["format=tensorrt"], "format"),
        (["device=cuda"], '`device` to be "cpu" for format=onnx'),
        (["input=nowhere"], "`input` to be a folder or an image"),
        ([], "name some with input=FOLDER_OR_FILE"),
    ],
    ids=" ".join,
)
def test_bad_requests_end_before_any_work(here: Path, checkpoint_of, capsys, arguments: list[str], message: str):
    checkpoint_of(make_card())
    with pytest.raises(SystemExit) as leaving:
        main(["export", "checkpoint=step", *arguments])
    assert leaving.value.code == 2
    assert message in capsys.readouterr().err
    assert not (here / "runs").exists()
