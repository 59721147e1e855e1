"""`segmeter eval` and `predict`: what is refused before any data is read, label maps, figures, pictures."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix

from segmeter.cli.commands import eval as command
from segmeter.evaluation.manifest import parse_case_facts, read_case_facts
from segmeter.models.checkpoint import read_checkpoint
from tests.cli.sharded import EVAL, done, latest, newest, run
from tests.data.crafted import noise, put

pytestmark = pytest.mark.usefixtures("in_here")
SMALL = ["eval", *EVAL, "report.overlays=0", "report.worst=0", "metrics.bootstrap=0"]
QUIET = ["report.html=false", "report.overlays=0"]
PREDICT = ["predict", "checkpoint=net", "inference.precision=float32", "device=cpu"]
FOLDER = [*PREDICT, "input=images"]


def labels_in(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.asarray(Image.open(path)) for path in (folder / "predictions/labels").iterdir()}


def test_the_summary_is_that_of_the_label_maps_and_is_shown(capsys):
    folder = done(*SMALL, "objective=mean_dice")
    out = capsys.readouterr().out
    counts = np.zeros((3, 3), int)
    for name, labels in labels_in(folder).items():
        target = np.asarray(Image.open(f"masks/{name}.png"))
        kept = target != 255
        counts += confusion_matrix(target[kept], labels[kept], labels=range(3))
    assert latest("eval")["confusion_matrix"] == counts.tolist()
    assert f"metrics   {folder / 'metrics.json'}\ncases     {folder / 'cases.csv'}\n" in out
    assert not [word for word in ("worst  ", "overlays  ", "report  ") if word in out]
    dice = 2 * np.diag(counts) / (counts.sum(0) + counts.sum(1))
    name, value = next(iter(latest("eval", "run.json")["result"].items()))
    assert ("dice" in name.lower(), value) == (True, pytest.approx(dice.mean(), rel=1e-12))


def test_what_is_written_beside_the_figures_is_named(capsys):
    folder, out = done(*SMALL, "report.overlays=2", "report.worst=1", "report.html=true"), capsys.readouterr().out
    for name, path in (("worst", "worst.csv"), ("overlays", "overlays"), ("report", "report.html")):
        assert f"\n{name:<10}{folder / path}\n" in out
        assert (folder / path).exists()


@pytest.mark.parametrize(("line", "message"), [
    ([*SMALL, "metrics.spacing=[3,1,1]"], "`spacing` to have 2 values, as images do, got (3.0, 1.0, 1.0)"),
    ([*SMALL, "objective=iou"], "`objective` to be a metric that is measured, got 'iou'"),
    ([*SMALL, "metrics.groups={x: [nothing]}"], "nothing"),
    ([*SMALL, "postprocess.steps=[{name: fill_holes, classes: [road]}]"], "road"),
    ([*SMALL, "checkpoint=nowhere"], "nowhere"),
    ([*SMALL, "resume=images"], "`resume` to be a run folder with manifest.json"),
    ([*PREDICT, "input=nowhere"], "`input` to be a folder or an image"),
    ([*FOLDER, "resume=images"], "`resume` to be a run folder with manifest.json"),
    ([*FOLDER, "shard=1/12", "inference.batch_size=1"], "at most 11 shards"),
    ([*FOLDER, "device=cuda:9"], "`device` to be here, got 'cuda:9'"),
], ids=lambda each: f"{each[0]}-{each[-1]}" if isinstance(each, list) else "")  # fmt: skip
def test_what_can_not_begin_reads_no_data_and_leaves_no_folder(line, message, monkeypatch, tmp_path, refused):
    monkeypatch.setattr(command, "open_splits", lambda *given: pytest.fail("data were read"))
    assert message in refused(*line, f"run.root={tmp_path / 'runs'}")
    assert not (tmp_path / "runs").exists()


def test_images_of_another_scale_are_warned_about(tmp_path, capsys):
    for path in Path("masks").iterdir():
        put(tmp_path / "masks" / path.name, path.read_bytes())
        put(tmp_path / "images" / path.name, noise(*np.asarray(Image.open(path)).shape) // 200)
    assert run(*SMALL, f"data.root={tmp_path}", "export.labels=false") == 0
    assert "The model was trained on another scale or dtype" in capsys.readouterr().err


def test_labels_are_those_of_the_network(tmp_path, capsys):
    """One image, of a size that needs no padding, normalised by hand."""
    image = noise(40, 48)
    put(tmp_path / "x.png", image)
    folder = done(*PREDICT, f"input={tmp_path / 'x.png'}", *QUIET)
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
    folder = done(*FOLDER, "report.overlays=2")
    assert set(labels_in(folder)) == {path.stem for path in Path("images").iterdir()}
    assert len(list((folder / "overlays").iterdir())) == 2
    assert (folder / "report.html").is_file()
    assert not (folder / "metrics.json").exists()
    record = latest("predict", "run.json")
    assert (record["state"], record["checkpoint_sha256"]) == ("done", read_checkpoint(Path("net")).sha256)
    before = {path: path.stat().st_mtime_ns for path in (folder / "predictions").rglob("*.png")}
    assert run(*FOLDER, "report.overlays=2", f"resume={folder}") == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "predictions").rglob("*.png")} == before


def test_the_precision_that_auto_means_here_is_told(monkeypatch, capsys):
    """Labels in bfloat16 differ from those in float32, and so from an exported file's, in a few near-ties."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert run("predict", "checkpoint=net", "device=cpu", "input=images", *QUIET) == 0
    assert latest("predict", "run.json")["precision"] == "bfloat16"
    assert capsys.readouterr().out.endswith("precision  bfloat16 on cpu\n")


def test_a_tiff_that_is_run_in_tiles_is_read_by_rows_and_leaves_the_same_files(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "x.tif", noise(130, 96), photometric="rgb", rowsperstrip=16)
    notes = []
    for most in (1 << 24, 100):
        monkeypatch.setattr("segmeter.evaluation.evaluate.BANDED_PIXELS", most)
        assert run(*PREDICT, f"input={tmp_path / 'x.tif'}", "inference.tile=64", *QUIET, f"run.root={tmp_path}") == 0
        notes.append(parse_case_facts(read_case_facts(newest(tmp_path / "predict")))["x"])
    assert [note["image"][4:] for note in notes] == [[], ["by rows", "x"]]
    assert notes[0]["files"] == notes[1]["files"]


DRAWN = ["report.overlays=3", "report.worst=2"]


@pytest.mark.parametrize("line", [SMALL, FOLDER], ids=lambda line: line[0])
def test_pictures_come_from_the_label_maps_and_without_any_none_are_drawn(line, capsys):
    folder = done(*line, "report.html=false", *DRAWN)
    drawn = {path.stem for path in (folder / "overlays").iterdir()}
    assert drawn == {path.name for path in (folder / "pictures").iterdir()}
    assert drawn
    assert line is SMALL or len(drawn) == 3  # without scores none is worst, so that all of them are the sample
    assert (folder / "worst").exists() == (line is SMALL)
    capsys.readouterr()
    assert run(*line, "report.html=false", "export.labels=false", *DRAWN) == 0
    assert "pictures: none are drawn, as export.labels=false keeps no label maps." in capsys.readouterr().err
    assert not (newest(f"runs/{line[0]}") / "overlays").exists()
    assert run(*line, *QUIET, "export.labels=false", "report.worst=0") == 0
    assert "pictures" not in capsys.readouterr().err, "none are asked for"


@pytest.mark.parametrize("form", ["mha", "nrrd"])
def test_maps_that_only_simpleitk_reads_are_drawn_only_where_it_is_installed(form, monkeypatch, capsys):
    line = [*FOLDER, "report.html=false", f"export.labels_format={form}", *DRAWN]
    assert run(*line) == 0
    assert (newest("runs/predict") / "overlays").exists()
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    capsys.readouterr()
    assert run(*line) == 0
    assert f"pictures: none are drawn; reading {form} needs: pip install 'segmeter[itk]'." in capsys.readouterr().err
    assert not (newest("runs/predict") / "overlays").exists()


def test_objects_whose_numbers_are_not_kept_are_not_drawn_and_that_is_said(capsys):
    """Connected parts would be drawn as missed objects where the measure matched the split ones."""
    steps = ("postprocess.steps=[watershed]", "metrics.measures=[instances]", "report.html=false", "report.overlays=1")
    for kept in (False, True):
        assert run(*SMALL, *steps, f"export.instances={kept}") == 0
        said = "pictures: no objects are drawn, as export.instances=false keeps none of their numbers."
        assert (said in capsys.readouterr().err) == (not kept)
        assert any((newest("runs/eval") / "pictures").glob("*/*-objects.png")) == kept
