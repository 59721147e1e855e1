"""`segmeter export`, the lines of its page that run its file without segmeter, and the images it is compared on."""

import re
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from tests.cli.sharded import done, latest, make_checkpoint, newest, run
from tests.data.crafted import noise, put

PAGE = Path(__file__).parents[3] / "docs" / "export.md"


@pytest.fixture(autouse=True)
def _images(in_tmp: None) -> None:
    """Three, none of a size that the network takes without padding."""
    for index in range(3):
        put(Path(f"images/case{index}.png"), noise(70 + 5 * index, 50 + 3 * index, seed=index))


def labels_of(folder: Path) -> dict[str, np.ndarray]:
    return {path.name: np.asarray(Image.open(path)) for path in (folder / "predictions/labels").iterdir()}


def test_the_lines_of_the_page_give_the_labels_that_predict_gives(monkeypatch, capsys):
    """They are taken from the page as they stand, and run beside the model."""
    make_checkpoint(Path("step"), seed=1)
    assert run("export", "checkpoint=step", "input=images", "cases=2") == 0
    assert "100.0000% of " in capsys.readouterr().out
    assert run("predict", "checkpoint=step", "input=images", "inference.precision=float32") == 0
    assert latest("export", "comparison.json")["cases"] == ["case0", "case2"]
    assert latest("export", "run.json")["state"] == "done"
    lines = textwrap.dedent(re.search(r"\n((?: {4}.*\n)*.*InferenceSession.*\n(?: {4}.*\n)*)", PAGE.read_text())[1])
    assert len(lines.splitlines()) == 5
    expected, folder = labels_of(newest("runs/predict"))["case1.png"], newest("runs/export")
    Image.open("images/case1.png").save(folder / "image.png")
    monkeypatch.chdir(folder)
    found: dict[str, np.ndarray] = {}
    exec(lines, found)
    np.testing.assert_array_equal(found["labels"], expected)


@pytest.mark.slow
def test_two_checkpoints_are_evaluated_predicted_and_exported_as_their_mean():
    """By their command lines; all three hold the same labels, which are of neither model alone."""
    make_checkpoint(Path("a"), seed=1)
    make_checkpoint(Path("b"), seed=2)
    for path in Path("images").iterdir():
        put(Path("masks") / path.name, noise(*np.asarray(Image.open(path)).shape[:2], None) % 3)
    plain = ["inference.precision=float32", "device=cpu"]
    assert run("eval", "checkpoint=[a,b]", "data=folder", "data.root=.", "data.split=all", *plain) == 0
    alone = labels_of(done("predict", "checkpoint=a", "input=images", *plain))
    predicted = labels_of(done("predict", "checkpoint=[a,b]", "input=images", *plain, "run.name=both"))
    assert run("export", "checkpoint=[a,b]", "input=images", "cases=3") == 0
    exported = onnxruntime.InferenceSession(newest("runs/export") / "model.onnx", providers=["CPUExecutionProvider"])
    both = labels_of(newest("runs/eval"))
    for name, labels in both.items():
        np.testing.assert_array_equal(labels, predicted[name])
        image = np.asarray(Image.open(Path("images") / name))
        np.testing.assert_array_equal(labels, exported.run(None, {"images": image[None]})[0][0])
    assert any(not np.array_equal(labels, alone[name]) for name, labels in both.items())


@pytest.mark.parametrize(("arguments", "message"), [
    (["format=tensorrt"], "format"),
    (["device=cuda"], "'device'"),
    (["input=nowhere"], "`input` to be a folder or an image"),
    ([], "name some with input=FOLDER_OR_FILE"),
], ids=" ".join)  # fmt: skip
def test_bad_requests_end_before_any_work(arguments: list[str], message: str, refused):
    make_checkpoint(Path("step"))
    assert message in refused("export", "checkpoint=step", *arguments)
    assert not Path("runs").exists()
