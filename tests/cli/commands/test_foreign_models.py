"""`segmeter eval`, `check` and `predict` with a model that others trained, as with our own: shards, resume, gates."""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.cli.sharded import EVAL, contents, done, latest, listed, newest, run, run_shards, whole
from tests.data.crafted import put

pytestmark = pytest.mark.usefixtures("in_here")
PLUGIN = """
import torch
from segmeter.models import register_model

@register_model("thirds", classes=["c", "b", "low"], output={"kind": "probs"}, size={"fit": "any"})
def thirds(images):
    grey = images.float().mean(1) / 255
    return torch.stack([(grey > 0.6), (grey <= 0.6) & (grey > 0.4), grey <= 0.4], 1).float() * 0.8 + 0.1

@register_model("red", classes=["a", "b"], output={"kind": "labels"}, input={"order": "rgb"}, size={"fit": "any"})
def red(images):
    return (images[:, 0] > images[:, 2]).int()

@register_model("halves", classes=["thing"], output={"kind": "instances", "background": "a"}, size={"fit": "any"})
def halves(images):
    masks = torch.zeros(2, *images.shape[2:], dtype=torch.bool)
    masks[0, :16], masks[1, 16:] = True, True
    return [(torch.tensor([0.9, 0.8]), torch.tensor([0, 0]), masks)]
"""
DATA = ["data=folder", "data.images=images", "data.masks=masks", "data.classes=[a,b,c]", "data.ignore_index=255"]
THIRDS = ["checkpoint=thirds", "plugins=[thirds_plugin]", *EVAL[1:], *DATA, "model.class_map={low: a}"]


@pytest.fixture(autouse=True)
def _plugin(here, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (here / "thirds_plugin.py").write_text(PLUGIN)


def test_shards_and_a_resumed_run_are_the_whole_run():
    """Merged shards, and a run that makes a lost label map again, are the run; another card is another run."""
    wanted = whole("eval", THIRDS)
    folder = newest("runs/eval")
    shards = run_shards("eval", 2, *THIRDS)
    assert run("merge", listed(shards), "report.overlays=4", "report.worst=2") == 0
    gone = next((folder / "predictions/labels").iterdir())
    before = gone.read_bytes()
    gone.unlink()
    assert run("eval", *THIRDS, f"resume={folder}") == 0
    assert gone.read_bytes() == before
    for name in ("cases.parquet", "metrics.json"):
        assert contents(newest("runs/merge"))[name] == contents(folder)[name] == wanted[name]
    assert run("eval", *THIRDS, f"resume={folder}", "model.class_map={low: b}") == 2


def test_labels_are_the_model_s_and_ours_can_be_compared_with_them():
    theirs = done("eval", *THIRDS, "run.name=theirs")
    assert latest("eval", "run.json")["checkpoint"] == "thirds"
    image = np.asarray(Image.open("images/case03.png")).mean(-1) / 255
    labels = np.asarray(Image.open(theirs / "predictions/labels/case03.png"))
    assert np.array_equal(labels, np.where(image > 0.6, 2, np.where(image > 0.4, 1, 0)))
    assert run("eval", *EVAL, "run.name=ours") == 0
    pair = f"runs=[{newest('runs/eval')},{theirs}]"
    assert run("compare", pair, "metrics.bootstrap=50") == 0
    assert run("compare", pair, "require=mean_iou >= 0.99") == 4


def test_check_shows_what_it_knows_and_writes_a_card_that_eval_takes(capsys, refused, tmp_path):
    card = f"card={tmp_path / 'model.yaml'}"
    known = ["plugins=[thirds_plugin]", "checkpoint=thirds", *DATA, "data.root=.", "splits=[all]"]
    error = refused("check", *known, card)
    assert "says nothing of the model's classes low" in error
    given = f"model.card={tmp_path / 'model.yaml'}"
    assert f"and check again with {given}" in error
    values = yaml.safe_load((tmp_path / "model.yaml").read_text())
    assert (values["class_map"], values["data_classes"]) == ({"c": "c", "b": "b"}, ["a", "b", "c"])
    values["class_map"]["low"] = "a"
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(values))
    assert run("check", *known, given, card) == 0
    shown = capsys.readouterr().out
    assert f"read with {given}" in shown
    assert "picture" in shown
    assert (tmp_path / "model.png").is_file()
    assert run("predict", *known[:2], "input=images", "device=cpu", given, "report.html=false") == 0
    assert len(list((newest("runs/predict") / "predictions/labels").iterdir())) == 11


def test_check_warns_of_images_unlike_the_card_s_and_of_swapped_red_and_blue(tmp_path, caplog):
    for seed in range(8):  # the last two are equal
        image = np.random.default_rng(min(seed, 6)).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        put(tmp_path / "images" / f"{seed}.png", image)
        put(tmp_path / "masks" / f"{seed}.png", (image[..., 2] > image[..., 0]).astype(np.uint8))
    data = ["data=folder", "data.images=images", "data.masks=masks", "data.classes=[a,b]", f"data.root={tmp_path}"]
    known = ["plugins=[thirds_plugin]", "checkpoint=red", "splits=[all]", *data]
    assert run("check", *known, f"card={tmp_path / 'red.yaml'}", f"output={tmp_path / 'check.json'}") == 0
    written = json.loads((tmp_path / "check.json").read_text())
    assert (written["splits"]["all"]["cases"], written["suggested"]) == (8, {})
    assert "images that are equal to the last byte" in caplog.text
    assert "if red and blue are swapped: set model.input.order=bgr?" in caplog.text
    caplog.clear()
    assert run("check", *known, "model.input.order=bgr", f"card={tmp_path / 'bgr.yaml'}") == 0
    assert "are swapped" not in caplog.text
    assert "another scale" not in caplog.text
    spread = ["model.input.scale=1", "model.input.mean=[0.5,0.5,0.5]", "model.input.std=[0.2,0.2,0.2]"]
    assert run("check", *known, *spread, f"card={tmp_path / 'wide.yaml'}") == 0
    assert "The model was trained on another scale" in caplog.text


def test_objects_are_measured_written_and_drawn_as_the_model_found_them(caplog):
    asked = ["checkpoint=halves", *THIRDS[1:-1], "data.classes=[a,b]", "data.label_map={0: 0, 1: 1, 2: 1, 255: 255}"]
    asked += ["model.class_map={thing: b}", "metrics.measures=[{name: instances, objects: maps}]"]
    numbers = np.asarray(Image.open(done("eval", *asked) / "predictions/instances/case03.png"))
    assert np.unique(numbers[:16]).tolist() == [2]
    assert np.unique(numbers[16:]).tolist() == [1]
    assert "no objects are drawn" not in caplog.text
    assert run("eval", *asked, "export.instances=false") == 0
    assert "no objects are drawn, as export.instances=false" in caplog.text


def test_tune_maps_the_classes_as_eval_does(refused):
    asked = [*THIRDS[:2], *DATA, THIRDS[-1], "data.root=.", "data.split=train", "device=cpu"]
    tried = ["over=[postprocess.min_size=0|8]", "metrics.bootstrap=1000"]
    assert run("tune", *asked, *tried) == 0
    usual = latest("tune", "tune.json")["settings"][0]
    assert run("eval", *asked, "metrics.bootstrap=0", "report.html=false") == 0
    assert usual["score"] == pytest.approx(latest("eval")["dataset"]["mean_iou"], rel=1e-12)
    said = refused("tune", *asked, *tried, f"probs={newest('runs/tune')}")
    assert "expected `probs` to be null for " in said
    assert "whose best class decides each pixel" in said


@pytest.mark.slow
def test_an_exported_file_is_evaluated_as_its_checkpoint():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    ours, figures = done("eval", *EVAL, "inference.precision=float32", "run.name=ours"), latest("eval")["per_class"]
    exported = done("export", "checkpoint=net", "input=images", "cases=1") / "model.onnx"
    assert run("eval", f"checkpoint={exported}", *EVAL[1:], *DATA, "run.name=exported") == 0
    assert latest("eval")["per_class"] == figures
    theirs = newest("runs/eval")
    for path in (ours / "predictions/labels").iterdir():
        labels = [np.asarray(Image.open(found)) for found in (path, theirs / "predictions/labels" / path.name)]
        assert np.count_nonzero(labels[0] != labels[1]) == 0, path.name


@pytest.mark.parametrize(("line", "said"), [
    (["export", "checkpoint=torchvision:deeplabv3_resnet50"], "Export this one with the tool that trained it"),
    (["check", "checkpoint=script.pt", "splits=[all]", *DATA, "data.root=."], "TorchScript, .pt2), and opening"),
    (["eval", *THIRDS, "model.class_map={low: nothing}"], "names classes that the data lacks nothing"),
    (["eval", *THIRDS, "inference.tile=64", "model.size.fit=fixed:32x32"], "inference.tile` to be left out"),
    (["eval", *THIRDS, "export.probs=true", "model.output.kind=labels"], "gives labels, without probabilities"),
    (["eval", *THIRDS, "model.klasses=[a]"], "klasses"),
    (["eval", *THIRDS, "checkpoint=net"], "this checkpoint has its own card"),
], ids=["export", "file", "class map", "tile", "probabilities", "key", "ours"])  # fmt: skip
def test_one_line_says_what_is_wrong_before_a_run_begins(line, said, refused):
    with zipfile.ZipFile("script.pt", "w") as archive:
        archive.writestr("script/constants.pkl", b"")
    before = {*Path("runs").glob("*/*")}
    assert said in refused(*line)
    assert "without probabilities" in said or {*Path("runs").glob("*/*")} == before
