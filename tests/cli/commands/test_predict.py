"""`segmeter predict`: label maps of an image or a folder, what is beside them, and what is refused before any work."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from segmeter.evaluation.manifest import parse_records, read_records
from segmeter.models.checkpoint import read_checkpoint
from tests.cli.sharded import newest, run
from tests.data.crafted import noise, put

pytestmark = pytest.mark.usefixtures("in_here")
PREDICT = ["predict", "checkpoint=net", "inference.precision=float32", "device=cpu"]
QUIET = ["report.html=false", "report.overlays=0"]


def labels_in(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.asarray(Image.open(path)) for path in (folder / "predictions/labels").iterdir()}


def test_labels_are_those_of_the_network(tmp_path, capsys):
    """One image, of a size that needs no padding, normalised by hand."""
    image = noise(40, 48)
    put(tmp_path / "x.png", image)
    assert run(*PREDICT, f"input={tmp_path / 'x.png'}", *QUIET) == 0
    folder = newest("runs/predict")
    said = capsys.readouterr().out
    assert said.startswith(f"1 images   {folder / 'predictions'}\n")
    assert said.endswith("precision  float32 on cpu\n")
    network = read_checkpoint(Path("net")).load_segmenter("cpu").eval().network
    normalised = (image.transpose(2, 0, 1)[None] / np.float32(255) - np.float32(0.5)) / np.float32(0.3)
    with torch.no_grad():
        expected = network(torch.from_numpy(normalised)).argmax(1)[0].numpy()
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(labels_in(folder)["x"], expected)


def test_a_folder_leaves_a_map_per_image_and_no_scores():
    assert run(*PREDICT, "input=images", "report.overlays=2") == 0
    folder = newest("runs/predict")
    names = {path.stem for path in Path("images").iterdir()}
    assert set(labels_in(folder)) == names
    assert len(list((folder / "overlays").iterdir())) == 2
    assert (folder / "report.html").is_file()
    assert not (folder / "metrics.json").exists()
    record = json.loads((folder / "run.json").read_text())
    assert (record["state"], record["checkpoint_sha256"]) == ("done", read_checkpoint(Path("net")).sha256)
    before = {path: path.stat().st_mtime_ns for path in (folder / "predictions").rglob("*.png")}
    assert run(*PREDICT, "input=images", "report.overlays=2", f"resume={folder}") == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "predictions").rglob("*.png")} == before


def test_the_precision_that_auto_means_here_is_told(monkeypatch, capsys):
    """Labels in bfloat16 differ from those in float32, and so from an exported file's, in a few near-ties."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert run("predict", "checkpoint=net", "device=cpu", "input=images", *QUIET) == 0
    assert json.loads((newest("runs/predict") / "run.json").read_text())["precision"] == "bfloat16"
    assert capsys.readouterr().out.endswith("precision  bfloat16 on cpu\n")


@pytest.mark.parametrize(("overrides", "message"), [
    (["input=nowhere"], "`input` to be a folder or an image"),
    (["input=images", "resume=images"], "`resume` to be a run folder with manifest.json"),
    (["input=images", "shard=1/12"], "at most 11 shards"),
    (["input=images", "device=cuda:9"], "`device` to be here, got 'cuda:9'"),
], ids=["input", "resume", "shard", "device"])  # fmt: skip
def test_what_can_not_begin_leaves_no_folder(overrides, message, tmp_path, capsys):
    root = tmp_path / "runs"
    assert run(*PREDICT, *overrides, *QUIET, "inference.batch_size=1", f"run.root={root}") == 2
    assert message in capsys.readouterr().err
    assert not root.exists()


def test_a_tiff_that_is_run_in_tiles_is_read_by_rows_and_leaves_the_same_files(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "x.tif", noise(130, 96), photometric="rgb", rowsperstrip=16)
    notes = []
    for most in (1 << 24, 100):
        monkeypatch.setattr("segmeter.evaluation.evaluate.BANDED_PIXELS", most)
        assert run(*PREDICT, f"input={tmp_path / 'x.tif'}", "inference.tile=64", *QUIET, f"run.root={tmp_path}") == 0
        notes.append(parse_records(read_records(newest(tmp_path / "predict")))["x"])
    assert [note["image"][4:] for note in notes] == [[], ["by rows", "x"]]
    assert notes[0]["files"] == notes[1]["files"]
