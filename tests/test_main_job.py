"""The main job from end to end: train, evaluate, export, predict, by the commands that a user types."""

import csv
import json
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
from tests.cli.sharded import run

COUNTS = ["data.train_cases=8", "data.samples_per_epoch=8", "data.val_cases=3", "data.test_cases=5"]
SMALL = ["data=cells", "data.size=64", *COUNTS]
TRAIN = ["training.epochs=2", "training.batch_size=4", "training.log_every=1", "run.name=small"]
TINY = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]  # where any network will do
CLASSES = 4
pytestmark = pytest.mark.usefixtures("in_here")


def newest(folder: Path) -> Path:
    return max(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def trained(here: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert run("train", *SMALL, *TRAIN) == 0
    return newest(here / "runs" / "train")


@pytest.fixture(scope="module")
def evaluated(here: Path, trained: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert run("eval", f"checkpoint={trained}", *SMALL, "export.probs=true", "run.name=plain") == 0
    return newest(here / "runs" / "eval")


def labels_of(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.asarray(Image.open(path)) for path in sorted((folder / "predictions/labels").glob("*.png"))}


def targets_of(here: Path) -> dict[str, np.ndarray]:
    masks = next((here / "data").glob("cells-*")) / "masks"
    return {path.stem: np.asarray(Image.open(path)) for path in sorted(masks.glob("test-*.png"))}


def test_a_training_run_leaves_its_records_and_checkpoints(trained: Path) -> None:
    assert {"config.yaml", "overrides.yaml", "run.json", "log.txt", "history.jsonl", "report.html"} <= {
        path.name for path in trained.iterdir()
    }
    record = json.loads((trained / "run.json").read_text())
    assert record["state"] == "done"
    assert record["versions"]["torch"]
    history = [json.loads(line) for line in (trained / "history.jsonl").read_text().splitlines()]
    assert history
    for name in ("best", "last"):
        checkpoint = read_checkpoint(trained / "checkpoints" / name)
        assert checkpoint.card.spec.num_classes == CLASSES
        assert {path.name for path in checkpoint.folder.iterdir()} >= {"manifest.json", "model.safetensors"}


def test_the_mean_iou_equals_an_independent_count_of_the_exported_files(here: Path, evaluated: Path) -> None:
    labels, targets = labels_of(evaluated), targets_of(here)
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
    assert summary["n_cases"] == 5
    assert summary["schema"] == 1


def test_the_rows_add_up_to_the_summary(evaluated: Path) -> None:
    rows = read_cases(evaluated / "cases.parquet")
    summary = json.loads((evaluated / "metrics.json").read_text())
    assert np.sum([row.counts for row in rows], axis=0).tolist() == summary["confusion_matrix"]
    assert (evaluated / "cases.csv").read_text().count("\n") == 6


def test_exported_labels_are_palette_uint8_and_probabilities_float32(evaluated: Path) -> None:
    for name, labels in labels_of(evaluated).items():
        picture = Image.open(evaluated / "predictions/labels" / f"{name}.png")
        assert picture.mode == "P"
        assert labels.dtype == np.uint8
        assert picture.getpalette()[3:6] == [86, 180, 233]  # the colour of class 1
        probs = np.load(evaluated / "predictions/probs" / f"{name}.npy", allow_pickle=False)
        assert probs.dtype == np.float32
        assert probs.shape == (CLASSES, *labels.shape)
        np.testing.assert_allclose(probs.sum(0), 1, atol=1e-5)
        assert (probs.argmax(0) == labels).all()


def test_predict_writes_what_eval_wrote(here: Path, trained: Path, evaluated: Path) -> None:
    images = next((here / "data").glob("cells-*")) / "images"
    chosen = here / "chosen"
    chosen.mkdir()
    for path in images.glob("test-*.png"):
        (chosen / path.name).write_bytes(path.read_bytes())
    assert run("predict", f"checkpoint={trained}", f"input={chosen}", "report.overlays=3") == 0
    folder = newest(here / "runs" / "predict")
    predicted, expected = labels_of(folder), labels_of(evaluated)
    assert len(list((folder / "pictures").iterdir())) == len(list((folder / "overlays").iterdir())) == 3
    assert predicted.keys() == expected.keys()
    assert all((predicted[name] == expected[name]).all() for name in expected)


def test_post_processing_says_what_it_changed(here: Path, trained: Path) -> None:
    assert (
        run("eval", f"checkpoint={trained}", *SMALL, "postprocess=cells", "export.instances=true", "run.name=post") == 0
    )
    folder = newest(here / "runs" / "eval")
    rows = read_cases(folder / "cases.parquet")
    assert all("remove_small_objects" in row.changed_pixels for row in rows)
    assert len(list((folder / "predictions/instances").iterdir())) == 5
    assert (folder / "report.html").stat().st_size > 10_000
    assert list((folder / "overlays").iterdir())


@pytest.mark.slow
def test_equal_runs_give_equal_files(here: Path, trained: Path, evaluated: Path) -> None:
    assert run("eval", f"checkpoint={trained}", *SMALL, "export.probs=true", "run.name=again") == 0
    again = newest(here / "runs" / "eval")
    assert again != evaluated
    for name in ("metrics.json", "cases.csv", "cases.parquet"):
        assert (again / name).read_bytes() == (evaluated / name).read_bytes()


def test_eval_takes_the_class_weights_of_the_training_set(here: Path, trained: Path) -> None:
    """Mutation seen to fail: the pixels of the evaluated split are counted."""
    masks = next((here / "data").glob("cells-*")) / "masks"
    seen = [np.asarray(Image.open(path)).ravel() for path in masks.glob("train-*.png")]
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


def test_eval_needs_no_more_than_the_checkpoint(trained: Path, evaluated: Path, tmp_path: Path) -> None:
    """From another folder too, where the built-in data would be drawn again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run("eval", f"checkpoint={trained.absolute()}", "export.labels=false") == 0
    alone = newest(tmp_path / "runs" / "eval")
    assert (alone / "cases.csv").read_bytes() == (evaluated / "cases.csv").read_bytes()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "command",
    [
        "eval data=cells data.classes=[a,b,c,d]",
        "eval data=cells metrics.groups={x:[nothing]}",
        "eval data=cells metrics.spacing=[3,1,1]",
        "eval data=cells resume=runs/nothing",
        "eval data=cells device=cuda:9",
        "eval data=camvid data.root=nowhere",
        "train training.monitor=iou/nothing",
    ],
)
def test_a_refused_run_leaves_no_files(trained: Path, tmp_path: Path, command: str) -> None:
    name, *overrides = command.split()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run(name, *(SMALL if name == "train" else [f"checkpoint={trained.absolute()}"]), *overrides) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_sweep_runs_every_combination_in_one_folder(here: Path, trained: Path) -> None:
    assert run("eval", "-m", f"checkpoint={trained}", *SMALL, "inference.flips=false,true", "report.html=false") == 0
    sweep = newest(here / "runs" / "multirun")
    summaries = [json.loads((sweep / job / "metrics.json").read_text()) for job in ("0_flips-False", "1_flips-True")]
    assert summaries[0]["n_cases"] == summaries[1]["n_cases"] == 5
    assert summaries[0]["confusion_matrix"] != summaries[1]["confusion_matrix"]
    with (sweep / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["job"], row["inference.flips"], row["state"]) for row in rows] == [
        ("0", "False", "done"),
        ("1", "True", "done"),
    ]
    assert [float(row["mean IoU"]) for row in rows] == [each["dataset"]["mean_iou"] for each in summaries]


def test_resuming_goes_on_in_the_same_folder(here: Path) -> None:
    assert run("train", *SMALL, *TINY, *TRAIN, "run.name=longer") == 0
    folder = newest(here / "runs" / "train")
    longer = ["training.epochs=3", "allow_changes=[training.epochs]"]
    assert run("train", *SMALL, *TINY, *TRAIN, "run.name=longer", *longer, "resume=auto") == 0
    assert newest(here / "runs" / "train") == folder
    assert read_checkpoint(folder / "checkpoints/last").progress["step"] == 6
    before = yaml.safe_load((folder / "config.yaml").read_text())
    assert run("train", f"resume={folder}", "training.epochs=4", "allow_changes=[training.epochs]") == 0
    assert read_checkpoint(folder / "checkpoints/last").progress["step"] == 8
    after = yaml.safe_load((folder / "config.yaml").read_text())
    assert {key for key in after if after[key] != before[key]} == {"resume", "training"}
    assert after["training"] == before["training"] | {"epochs": 4}
    assert "run.name=longer" in yaml.safe_load((folder / "overrides.yaml").read_text())


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("change", ["optimizer.lr=0.5", "data.seed=7", "training.monitor=nothing"])
def test_a_refused_resume_changes_nothing_in_the_folder(change: str, trained: Path) -> None:
    before = contents(trained)
    assert run("train", change, f"resume={trained}") == 2
    assert contents(trained) == before


def test_another_number_of_threads_is_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = torch.get_num_threads()
    torch.set_num_threads(count + 1)
    try:
        assert run("train", *SMALL, *TRAIN, f"resume={trained}") == 2
    finally:
        torch.set_num_threads(count)
    assert f"resume: `threads` was {count} and is {count + 1} now." in capsys.readouterr().err


def test_a_resumed_training_goes_on_with_its_threads_where_the_user_sets_none(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    count = torch.get_num_threads()
    torch.set_num_threads(count + 1)
    try:
        assert run("train", *SMALL, *TRAIN, f"resume={trained}") == 0
        assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(count)
    assert f"resume: {count} threads, as the run began with, not {count + 1}." in capsys.readouterr().err


def test_a_train_run_without_a_checkpoint_is_begun_anew(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs/train/2999-01-01_000000_early/checkpoints").mkdir(parents=True)
    assert run("train", *SMALL, *TINY, *TRAIN, "run.name=early", "resume=auto") == 0
    assert "resume=auto: no run named 'early' with checkpoints/" in capsys.readouterr().err
    assert newest(here / "runs" / "train").name == "2999-01-01_000000_early"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(["resume=runs"], "a run folder with checkpoints/step-*/manifest.json", id="resume"),
        pytest.param(["device=cuda:9"], "expected `device` to be here, got 'cuda:9'", id="18-device"),
        pytest.param(["data.root=/dev/null/x"], "/dev/null", id="root"),
        pytest.param(["run.root=/dev/null/x"], "to be a folder that can be written", id="36-run root"),
    ],
)
def test_what_can_not_begin_ends_with_2(overrides: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", *SMALL, *TRAIN, *overrides) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("segmeter: ")
    assert message in error


def test_other_classes_than_the_checkpoints_are_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", f"checkpoint={trained}", *SMALL, "data.classes=[a,b,c,d]") == 2
    assert "expected `data.classes` to be the checkpoint's ['background', 'round'" in capsys.readouterr().err


def test_an_export_is_compared_on_the_images_that_its_run_was_tested_on(
    here: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(export, "export_model", lambda *_, images, **__: seen.extend(name for name, _ in images))
    monkeypatch.setattr(export, "_show", lambda exported: None)
    assert run("export", f"checkpoint={trained}", "cases=3") == 0
    assert seen == sorted(targets_of(here))[::2]
