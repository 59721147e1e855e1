"""The main job from end to end: train, evaluate, export, predict, by the commands that a user types."""

import json
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from sklearn.metrics import confusion_matrix

from segmeter.cli.commands import export
from segmeter.metrics.cases.stored import read_cases
from segmeter.models.checkpoint import read_checkpoint
from tests.cli.sharded import newest, run
from tests.data.crafted import put

COUNTS = ["data.train_cases=8", "data.samples_per_epoch=8", "data.val_cases=3", "data.test_cases=5"]
SMALL = ["data=cells", "data.size=64", *COUNTS]
TRAIN = ["training.epochs=2", "training.batch_size=4", "training.log_every=1", "run.name=small"]
TINY = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]  # where any network will do
CLASSES = 4
pytestmark = pytest.mark.usefixtures("in_here")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def trained(here):
    with chdir(here):
        assert run("train", *SMALL, *TRAIN) == 0
    return newest(here / "runs" / "train")


@pytest.fixture(scope="module")
def evaluated(here, trained):
    """From a folder of its own and with no more than the checkpoint: its data are found, and not drawn again."""
    place = here / "elsewhere"
    place.mkdir()
    with chdir(place):
        assert run("eval", f"checkpoint={trained}", "export.probs=true", "run.name=plain") == 0
    assert not (place / "data").exists()
    return newest(place / "runs" / "eval")


def labels_of(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.asarray(Image.open(path)) for path in sorted((folder / "predictions/labels").glob("*.png"))}


def stored(here: Path, kind: str, split: str) -> list[Path]:
    """Files of the data set, which the training has drawn."""
    return sorted(next((here / "data").glob("cells-*")).glob(f"{kind}/{split}-*.png"))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_training_run_leaves_its_records_and_checkpoints(trained: Path) -> None:
    assert {"overrides.yaml", "log.txt", "report.html"} <= {path.name for path in trained.iterdir()}
    record = json.loads((trained / "run.json").read_text())
    assert record["state"] == "done"
    assert record["versions"]["torch"]
    assert [json.loads(line) for line in (trained / "history.jsonl").read_text().splitlines()]
    for name in ("best", "last"):
        checkpoint = read_checkpoint(trained / "checkpoints" / name)
        assert checkpoint.card.spec.num_classes == CLASSES
        assert {path.name for path in checkpoint.folder.iterdir()} >= {"manifest.json", "model.safetensors"}


def test_the_mean_iou_equals_an_independent_count_of_the_exported_files(here: Path, evaluated: Path) -> None:
    labels = labels_of(evaluated)
    targets = {path.stem: np.asarray(Image.open(path)) for path in stored(here, "masks", "test")}
    assert labels.keys() == targets.keys()
    assert len(labels) == 5
    flat = [np.concatenate([maps[name].ravel() for name in sorted(maps)]) for maps in (targets, labels)]
    counted = flat[0] != 255
    counts = confusion_matrix(flat[0][counted], flat[1][counted], labels=range(CLASSES))
    true = np.diag(counts)
    iou = true / (counts.sum(0) + counts.sum(1) - true)
    summary = json.loads((evaluated / "metrics.json").read_text())
    assert summary["confusion_matrix"] == counts.tolist()
    assert summary["dataset"]["mean_iou"] == np.nanmean(iou)
    assert (summary["n_cases"], summary["schema"]) == (5, 1)
    rows = read_cases(evaluated / "cases.parquet")
    assert np.sum([row.counts for row in rows], axis=0).tolist() == counts.tolist()
    assert (evaluated / "cases.csv").read_text().count("\n") == 6


def test_exported_labels_are_palette_uint8_and_probabilities_float32(evaluated: Path) -> None:
    exported = evaluated / "predictions"
    for name, labels in labels_of(evaluated).items():
        picture, probs = Image.open(exported / f"labels/{name}.png"), np.load(exported / f"probs/{name}.npy")
        assert (picture.mode, labels.dtype, probs.dtype) == ("P", np.uint8, np.float32)
        assert picture.getpalette()[3:6] == [86, 180, 233]  # the colour of class 1
        assert probs.shape == (CLASSES, *labels.shape)
        np.testing.assert_allclose(probs.sum(0), 1, atol=1e-5)
        assert (probs.argmax(0) == labels).all()


def test_predict_writes_what_eval_wrote(here: Path, trained: Path, evaluated: Path) -> None:
    for path in stored(here, "images", "test"):
        put(here / "chosen" / path.name, path.read_bytes())
    assert run("predict", f"checkpoint={trained}", "input=chosen", "report.overlays=3") == 0
    folder = newest("runs/predict")
    assert len(list((folder / "pictures").iterdir())) == len(list((folder / "overlays").iterdir())) == 3
    np.testing.assert_equal(labels_of(folder), labels_of(evaluated))


def test_post_processing_says_what_it_changed(here: Path, trained: Path) -> None:
    more = ["postprocess=cells", "export.instances=true", "run.name=post"]
    assert run("eval", f"checkpoint={trained}", *SMALL, *more) == 0
    folder = newest("runs/eval")
    assert all("remove_small_objects" in row.changed_pixels for row in read_cases(folder / "cases.parquet"))
    assert len(list((folder / "predictions/instances").iterdir())) == 5
    assert (folder / "report.html").stat().st_size > 10_000
    assert list((folder / "overlays").iterdir())


def test_eval_takes_the_class_weights_of_the_training_set(here: Path, trained: Path) -> None:
    """Mutation seen to fail: the pixels of the evaluated split are counted."""
    seen = [np.asarray(Image.open(path)).ravel() for path in stored(here, "masks", "train")]
    counts = np.bincount(np.concatenate(seen), minlength=256)[:CLASSES]
    assert read_checkpoint(trained).card.class_pixels == tuple(counts.tolist())
    weights = (1 / np.log(1.02 + counts / counts.sum())).tolist()
    losses = []
    for number, given in enumerate(("auto", f"[{','.join(map(repr, weights))}]")):
        scheme = ["loss=sum", f"loss.focal.class_weights={given}", f"run.name=weights{number}"]
        assert run("eval", f"checkpoint={trained}", *SMALL, "export.labels=false", *scheme) == 0
        (folder,) = (here / "runs" / "eval").glob(f"*weights{number}*")
        identity = json.loads((folder / "manifest.json").read_text())["identity"]
        assert identity["loss.focal.class_weights"] == pytest.approx(weights)
        losses.append(json.loads((folder / "metrics.json").read_text())["loss"]["dataset"])
    assert losses[0] == pytest.approx(losses[1])


def test_resuming_goes_on_in_the_same_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs/train/2999-01-01_000000_longer/checkpoints").mkdir(parents=True)  # without a checkpoint
    longer = [*SMALL, *TINY, *TRAIN, "run.name=longer", "resume=auto"]
    assert run("train", *longer) == 0
    assert "resume=auto: no run named 'longer' with checkpoints/" in capsys.readouterr().err
    folder = newest("runs/train")
    assert not folder.name.startswith("2999")
    assert run("train", *longer, "training.epochs=3", "allow_changes=[training.epochs]") == 0
    assert newest("runs/train") == folder
    assert read_checkpoint(folder / "checkpoints/last").progress["step"] == 6
    before = yaml.safe_load((folder / "config.yaml").read_text())
    assert run("train", f"resume={folder}", "training.epochs=4", "allow_changes=[training.epochs]") == 0
    assert read_checkpoint(folder / "checkpoints/last").progress["step"] == 8
    after = yaml.safe_load((folder / "config.yaml").read_text())
    assert {key for key in after if after[key] != before[key]} == {"resume", "training"}
    assert after["training"] == before["training"] | {"epochs": 4}
    assert "run.name=longer" in yaml.safe_load((folder / "overrides.yaml").read_text())


REFUSED = {  # where nothing begins, and in the folder of a run that is resumed
    "eval-resume": ("eval checkpoint={} resume=runs/nothing", "`resume` to be a run folder with manifest.json"),
    "eval-device": ("eval checkpoint={} device=cuda:9", "`device` to be here, got 'cuda:9'"),
    "eval-data": ("eval checkpoint={} data=camvid data.root=nowhere", "to be the checkpoint's 1, got 3"),
    "train-monitor": ("train training.monitor=iou/nothing", "iou/nothing"),
    "train-resume": ("train resume=runs", "a run folder with checkpoints/step-*/manifest.json"),
    "train-device": ("train device=cuda:9", "expected `device` to be here, got 'cuda:9'"),
    "train-data": ("train data.root=/dev/null/x", "/dev/null"),
    "train-root": ("train run.root=/dev/null/x", "to be a folder that can be written"),
    "rate": ("train resume={} optimizer.lr=0.5", "'allow_changes=[optimizer.lr]'"),
    "seed": ("train resume={} data.seed=7", "data.seed"),
    "monitor": ("train resume={} training.monitor=nothing", "nothing"),
}


@pytest.mark.parametrize(("line", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_changes_nothing(line, message, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = contents(trained)
    command, *given = line.format(trained).split()
    assert run(command, *([] if "{}" in line else [*SMALL, *TRAIN]), *given) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("segmeter: ")
    assert message in error
    drawn = {"data"} if line.startswith(("train run.root", "train resume={}")) else set()
    assert {path.name for path in tmp_path.iterdir()} <= drawn
    assert contents(trained) == before


def test_another_number_of_threads_is_refused_unless_the_user_sets_none(trained, capsys, monkeypatch):
    count, again = torch.get_num_threads(), ["train", *SMALL, *TRAIN, f"resume={trained}"]
    monkeypatch.setenv("OMP_NUM_THREADS", str(count + 1))
    torch.set_num_threads(count + 1)
    try:
        assert run(*again) == 2
        assert f"resume: `threads` was {count} and is {count + 1} now." in capsys.readouterr().err
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert run(*again) == 0
        assert torch.get_num_threads() == count
        assert f"resume: {count} threads, as the run began with, not {count + 1}." in capsys.readouterr().err
    finally:
        torch.set_num_threads(count)


def test_an_export_is_compared_on_the_images_that_its_run_was_tested_on(here, trained, monkeypatch):
    seen: list[str] = []
    monkeypatch.setattr(export, "export_model", lambda *_, images, **__: seen.extend(name for name, _ in images))
    monkeypatch.setattr(export, "_show", lambda exported: None)
    assert run("export", f"checkpoint={trained}", "cases=3") == 0
    assert seen == [path.stem for path in stored(here, "masks", "test")][::2]
