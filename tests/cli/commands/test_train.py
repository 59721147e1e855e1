"""`segmeter train` as it may be started, with its presets, and what it says and draws of a run."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.commands import train
from segmeter.cli.commands.train import BATCH_PANEL, CASE_PANEL, _print_end, _scores, draw_batch, draw_validated
from segmeter.data.sample import Sample
from segmeter.errors import RunError
from segmeter.inference.results import Prediction
from segmeter.models.config import UnetConfig
from segmeter.models.segmenter import build_segmenter
from segmeter.records import read_json_lines
from segmeter.report.pictures.flatten import GAP, MARGIN, draw_overlay, flatten
from segmeter.report.pictures.layers import draw_layers
from segmeter.training.checkpointing import RunCheckpoints
from segmeter.training.config import TrainingConfig
from segmeter.training.data.cases import Budget
from segmeter.training.job import TrainResult
from tests.cli.sharded import done, latest, newest, run
from tests.data.crafted import listed, make_folder, noise, put, write_zarr
from tests.models.parts import make_card, make_spec

RESULT = TrainResult(
    steps=20, epochs=2.5, reason="steps=20", monitor="iou/car", score=0.25, best=Path("best"), last=Path("last"),
    values={"iou/car": 0.25, "mean_iou": None}, unlearned=(), seconds=61.26, images_per_second=3.14,
)  # fmt: skip


def test_a_run_is_summed_up_in_three_lines(tmp_path, capsys):
    _print_end(tmp_path, TrainingConfig(), RESULT, 0)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "20 steps, 2.5 epochs in 61 s (3.1 images/s), ended by: steps=20",
        f"best      iou/car 0.2500, mean_iou n/a   {tmp_path / 'checkpoints' / 'best'}",
        f"report    {tmp_path / 'report.html'}",
    ]
    assert err == ""
    _print_end(tmp_path, TrainingConfig(), RESULT, 300)
    assert capsys.readouterr().out.startswith("20 of 300 planned steps, 2.5 epochs")
    _print_end(tmp_path, TrainingConfig(), replace(RESULT, unlearned=("car", "tree")), 0)
    said = "warning: IoU below 0.01 at the best checkpoint, though the validation masks hold them: car, tree.\n"
    assert capsys.readouterr().err == said


def test_without_validation_the_last_checkpoint_is_named_and_there_is_no_score(tmp_path, capsys):
    result = replace(RESULT, score=None, best=None, values={})
    _print_end(tmp_path, TrainingConfig(), result, 0)
    assert f"last      not validated   {tmp_path / 'checkpoints' / 'last'}\n" in capsys.readouterr().out
    assert _scores(result) == {}
    assert list(_scores(RESULT).items()) == [("iou/car", 0.25), ("mean_iou", None)]


SPEC = ClassSpec(task="multiclass", names=("ground", "cell"), colours=((0, 0, 0), (255, 0, 0)), ignore_index=255)


def test_images_stand_above_their_targets(tmp_path):
    images = np.stack([np.full((BATCH_PANEL, BATCH_PANEL, 3), grey, np.uint8) for grey in (40, 200)])
    targets = np.zeros((2, BATCH_PANEL, BATCH_PANEL), np.uint8)
    targets[1, :, : BATCH_PANEL // 2] = 1
    path = draw_batch(images, targets, ("a", "b"), tmp_path, spec=SPEC)
    assert path == tmp_path / "first_batch.png"
    with Image.open(path) as stored:
        picture = np.asarray(stored)
    painted = flatten(draw_layers(images[1], None, targets[1], SPEC, edge=BATCH_PANEL), "prediction", panel=BATCH_PANEL)
    left = MARGIN + BATCH_PANEL + GAP
    tops = [row for row in range(len(picture)) if (picture[row, left : left + BATCH_PANEL] == 200).all()]
    assert len(tops) == BATCH_PANEL
    below = picture[tops[-1] + 1 :, left : left + BATCH_PANEL]
    assert any((below[row : row + BATCH_PANEL] == painted).all() for row in range(20))


def test_planes_of_multilabel_are_drawn_too(tmp_path):
    spec = ClassSpec(task="multilabel", names=("one", "two"), colours=((255, 0, 0), (0, 0, 255)))
    targets = np.ones((1, 2, 16, 24), np.uint8)
    path = draw_batch(np.zeros((1, 16, 24, 1), np.float32), targets, ("a",), tmp_path, spec=spec)
    with Image.open(path) as stored:
        assert stored.width > 240


def test_the_picture_has_image_target_prediction_and_errors_with_the_score_of_the_case(tmp_path):
    target = np.zeros((40, 40), np.uint8)
    target[:20] = 1
    labels = np.zeros((40, 40), np.uint8)
    labels[:10] = 1  # IoU 400 / 800 of cell, 800 / 1200 of ground
    sample = Sample(case_id="a/b", image=np.full((40, 40, 1), 90, np.uint8), target=target)
    path = draw_validated(Prediction(sample=sample, labels=labels), tmp_path, spec=SPEC)
    with Image.open(path) as stored:
        found = np.asarray(stored)
    score = (1 / 2 + 2 / 3) / 2
    wanted = draw_overlay(
        sample.image, target, labels, SPEC, title="a/b", headline="mean_iou", score=score, panel=CASE_PANEL
    )
    np.testing.assert_array_equal(found, wanted)
    assert path.parent == tmp_path


MODEL = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]
CELLS = [
    *("data.size=64", "data.train_cases=6", "data.val_cases=6", "data.test_cases=1", "model.encoder=tu-test_resnet"),
    *("model.depth=3", "model.decoder_channels=[32,16,8]", "optimizer.lr=0.01", "device=cpu", "training.workers=0"),
]


@pytest.fixture(autouse=True)
def _here(in_tmp, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", "cache")


def planned(*more: str) -> tuple[dict, dict]:
    """The record and the configuration of a training on seven images."""
    make_folder(Path("set"), tuple(f"field{i}" for i in range(7)), height=264, width=272)
    data = ["data=folder", "data.root=set", "data.task=binary", "data.classes=[background,cell]"]
    folder = done("train", *data, *MODEL, "training.workers=0", "training.steps=2", *more)
    return latest("train", "run.json"), yaml.safe_load((folder / "config.yaml").read_text())


@pytest.mark.slow
def test_seven_images_train_without_an_override_beside_the_data(capsys):
    record, config = planned("training=auto")
    found = record["planned"]
    assert found["augment.crop"] == [256, 256]
    assert found["training.batch_size"] == 4
    assert "training.time_budget" not in found  # a limit was given
    for key, value in found.items():
        group, _, name = key.partition(".")
        assert config[group][name] == value, key
    assert "planned   training.batch_size=4 data.mean=auto data.std=auto" in capsys.readouterr().out
    assert latest("train", "checkpoints/best/manifest.json")["card"]["mean"] != [0.485, 0.456, 0.406]


def test_oddities_of_the_data_are_said_once_and_the_built_in_cells_have_none(capsys):
    listed(Path("set"), train="a b", val="c")
    put(Path("set/images/b.png"), Path("set/images/a.png").read_bytes())
    data = ["data=folder", "data.root=set", "data.lists=.", "data.classes=[background,cell,rare]"]
    folder = done("train", *data, *MODEL, "augment.crop=[32,32]", "training.workers=0", "training.steps=1")
    said = capsys.readouterr().err
    for line in ("warning: data, train: no pixel of rare; their", "warning: data, train: images that are equal to"):
        assert said.count(line) == 1
        assert line.removeprefix("warning: ") in (folder / "log.txt").read_text()
    done("train", "debug=fast", *CELLS)
    assert "data" not in capsys.readouterr().err


def test_planes_are_read_from_their_files_each_time_and_take_no_memory(monkeypatch):
    for number in range(4):
        put(Path("set/images", f"v{number}.npy"), noise(3, 32 * 32, None, seed=number).reshape(3, 32, 32))
        put(Path("set/masks", f"v{number}.npy"), noise(3, 32 * 32, None, seed=9 + number).reshape(3, 32, 32) % 2)
    kept = []
    reserve = Budget.reserve
    monkeypatch.setattr(Budget, "reserve", lambda budget, size: kept.append(reserve(budget, size)) or kept[-1])
    data = ["data=folder", "data.root=set", "data.planes=k", "data.classes=[a,b]", "data.in_channels=1"]
    done("train", *data, *MODEL, "training.workers=0", "training.steps=1")
    assert kept
    assert not any(kept)


AUTO = ["training=auto", *CELLS, "data.train_cases=40", "training.time_budget=2", "training.save_minutes=0.001"]


@pytest.fixture
def stopped(monkeypatch) -> Path:
    """A training by a plan that fails when its first checkpoint is written."""
    save = RunCheckpoints.save

    def stop(self, *given, **parts):
        save(self, *given, **parts)
        raise RunError("stopped by the test")

    with monkeypatch.context() as patch:
        patch.setattr(RunCheckpoints, "save", stop)
        assert run("train", *AUTO) == 3
    return newest("runs/train")


@pytest.mark.parametrize("resume", ["auto", "own"])
def test_a_run_of_a_plan_goes_on_with_what_it_chose(stopped, resume, capsys):
    before, config = (yaml.safe_load((stopped / name).read_text()) for name in ("run.json", "config.yaml"))
    chosen = before["planned"]
    assert {"training.validate_every", "training.validate_unit", "training.batch_size"} <= chosen.keys()
    more = [*AUTO, "resume=auto"] if resume == "auto" else [f"resume={stopped}"]
    assert done("train", *more) == stopped
    after = latest("train", "run.json")
    assert (after["planned"], after["planned_steps"]) == (chosen, before["planned_steps"])
    assert after["result"]["planned_steps"] == before["planned_steps"]
    assert yaml.safe_load((stopped / "config.yaml").read_text())["training"] == config["training"]
    assert f"of {before['planned_steps']} planned steps" in capsys.readouterr().out


def test_a_run_of_a_plan_is_not_resumed_with_another_value_that_is_given(stopped, refused):
    error = refused("train", *AUTO, "resume=auto", "training.validate_every=99")
    assert "`training.validate_every` was" in error
    assert "and is 99 now" in error
    assert error.count(" was ") == 1


def test_what_is_given_stays():
    given = ["augment.crop=[64,64]", "augment.balance=0", "data.samples_per_epoch=9", "training.batch_size=3"]
    record, config = planned("training=auto", *given, "data.mean=[0.5,0.5,0.5]", "data.std=auto")
    assert record["planned"] == {}
    assert (config["training"]["batch_size"], config["data"]["mean"]) == (3, [0.5, 0.5, 0.5])


def test_weights_of_a_file_are_recorded_and_tuned_gently():
    torch.manual_seed(7)
    config = UnetConfig(encoder="tu-test_resnet", depth=3, decoder_channels=(8, 8, 4))
    torch.save(build_segmenter(make_card(make_spec(5), model=config)).network.state_dict(), "weights.pt")
    tuning = ["optimizer.encoder_lr=0.1", "training.freeze_encoder=1", "training.freeze_norm=encoder"]
    record, _ = planned("model.weights=weights.pt", *tuning, "model.norm=batch", "augment.crop=[64,64]")
    assert "of encoder" in record["initial_weights"]
    assert "weights.pt" in record["initial_weights"]
    Path("weights.pt").unlink()  # a resume needs them no more, and still says what they matched
    done("train", f"resume={newest('runs/train')}", "training.steps=3", "allow_changes=[training.steps]")
    again = latest("train", "run.json")
    assert (again["initial_weights"], again["result"]["steps"]) == (record["initial_weights"], 3)
    assert datetime.fromisoformat(record["start"]).tzinfo


@pytest.mark.slow
def test_overfit_says_that_a_batch_fits_and_validates_on_its_cases(capsys):
    folder = done("train", "debug=overfit", *CELLS, "training.stop_at=0.6", "training.validate_every=10")
    out = capsys.readouterr().out
    assert "overfit   fits: mean_iou 0." in out
    assert "ended by: stop_at=0.6" in out
    last = sorted((folder / "validation").iterdir())[-1]
    assert len(list(last.iterdir())) == 4
    hashes = latest("train", "data.json")
    assert hashes["train"] == hashes["val"]


def test_overfit_says_that_a_batch_does_not_fit_and_leaves_its_scale_alone(capsys, monkeypatch, tmp_path):
    source = Mock(wraps=train.SampleSource)
    monkeypatch.setattr(train, "SampleSource", source)
    keys = ["training.steps=2", "training.validate_every=1", "optimizer.lr=1e-6", "augment.zoom=[0.5,2]"]
    done("train", "debug=overfit", *CELLS, *keys, "augment.resolution=0.5")
    assert "overfit   DOES NOT FIT: below 0.95: mean_iou 0." in capsys.readouterr().out
    assert (source.call_args.args[1].zoom, source.call_args.args[1].resolution) == ((1.0, 1.0), 1.0)
    of_loss = replace(RESULT, monitor="loss", score=2.0)
    _print_end(tmp_path, TrainingConfig(overfit_batches=1, stop_at=0.1), of_loss, 0)
    assert "overfit   DOES NOT FIT: above 0.1: loss 2.0000" in capsys.readouterr().out


def test_fast_goes_through_steps_validations_pictures_and_checkpoints(capsys):
    folder = done("train", "debug=fast", *CELLS)
    rows = read_json_lines(folder / "history.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "val" in row] == [2, 4]
    assert "4 steps" in capsys.readouterr().out
    assert len(latest("train", "data.json")["val"]) == 2 * 4, "images and masks of 4 cases of 6"
    pictures = sorted((folder / "validation").rglob("*.png"))
    assert len(pictures) == 2 * 4
    with Image.open(pictures[0]) as picture:
        assert picture.width > 4 * 320
    assert (folder / "checkpoints" / "best" / "model.safetensors").is_file()
    assert latest("train", "run.json")["state"] == "done"


def test_profile_leaves_a_table_and_a_trace(capsys):
    folder = done("train", "debug=profile", *CELLS, "training.steps=5", "training.profile_steps=2")
    assert f"profile   {folder / 'profile' / 'table.txt'}" in capsys.readouterr().out
    assert (folder / "profile" / "trace.json").is_file()


def test_zarr_folders_are_trained_on_by_chunks_and_validated_as_eval_measures_them():
    for number in range(5):
        size = (100 + 9 * number, 120)
        mask = (noise(*size, None, seed=number) > 128).astype(np.uint8)
        image = np.repeat(mask[..., None] * 90, 3, -1) + noise(*size, 3, seed=number) // 3
        for folder, array, axes in (("images", image.astype(np.uint8), "yxc"), ("masks", mask, "yx")):
            Path("set", folder).mkdir(parents=True, exist_ok=True)
            write_zarr(Path("set", folder, f"f{number}.zarr"), array, axes, chunks=(64, 64, 3)[: array.ndim])
    data = ["data=folder", "data.root=set", "data.task=binary", "data.classes=[background,cell]", "data.fold=1/5"]
    same = [*data, "data.test_fraction=0", "device=cpu", "inference.tile=64", "inference.precision=float32"]
    small = ["training.steps=4", "training.batch_size=2", "augment.crop=[64,64]", "augment.balance=0.5"]
    folder = done("train", *same, *MODEL, *small, "training.precision=float32")
    (found,) = [row["val"] for row in read_json_lines(folder / "history.jsonl") if "val" in row]
    assert list((folder / "validation").glob("step-*/f*.png"))
    assert run("eval", f"checkpoint={folder}", "data.split=val", *same, "metrics.bootstrap=0") == 0
    summary = latest("eval")
    assert summary["dataset"]["mean_iou"] == pytest.approx(found["mean_iou"], abs=1e-12)
    assert summary["loss"]["dataset"] == pytest.approx(found["loss"], rel=1e-6)
