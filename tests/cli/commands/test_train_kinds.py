"""`segmeter train` as it may be started: what follows from the data, the presets of `debug`, Zarr folders."""

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from segmeter.models.config import UnetConfig
from segmeter.models.segmenter import build_segmenter
from segmeter.records import read_json_lines
from tests.cli.sharded import newest, run
from tests.data.crafted import make_folder, noise, write_zarr
from tests.models.parts import make_card, make_spec

MODEL = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]
CELLS = [
    *("data.size=64", "data.train_cases=6", "data.val_cases=6", "data.test_cases=1", "model.encoder=tu-test_resnet"),
    *("model.depth=3", "model.decoder_channels=[32,16,8]", "optimizer.lr=0.01", "device=cpu", "training.workers=0"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEGMETER_CACHE", "cache")


def trained(*arguments: str) -> Path:
    assert run("train", *arguments) == 0
    return newest("runs/train")


def planned(*more: str) -> tuple[dict, dict]:
    """The record and the configuration of a training on seven images."""
    make_folder(Path("set"), tuple(f"field{i}" for i in range(7)), height=264, width=272)
    data = ["data=folder", "data.root=set", "data.task=binary", "data.classes=[background,cell]"]
    folder = trained(*data, *MODEL, "training.workers=0", "training.steps=2", *more)
    return json.loads((folder / "run.json").read_text()), yaml.safe_load((folder / "config.yaml").read_text())


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
    checkpoint = json.loads((newest("runs/train") / "checkpoints/best/manifest.json").read_text())
    assert checkpoint["card"]["mean"] != [0.485, 0.456, 0.406]


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
    assert datetime.fromisoformat(record["start"]).tzinfo


@pytest.mark.slow
def test_overfit_says_that_a_batch_fits_and_validates_on_its_cases(capsys):
    folder = trained("debug=overfit", *CELLS, "training.stop_at=0.6", "training.validate_every=10")
    out = capsys.readouterr().out
    assert "overfit   fits: mean_iou 0." in out
    assert "ended by: stop_at=0.6" in out
    last = sorted((folder / "validation").iterdir())[-1]
    assert len(list(last.iterdir())) == 4
    hashes = json.loads((folder / "data.json").read_text())
    assert hashes["train"] == hashes["val"]


def test_overfit_says_that_a_batch_does_not_fit(capsys):
    trained("debug=overfit", *CELLS, "training.steps=2", "training.validate_every=1", "optimizer.lr=1e-6")
    assert "overfit   DOES NOT FIT: below 0.95: mean_iou 0." in capsys.readouterr().out


def test_fast_goes_through_steps_validations_pictures_and_checkpoints(capsys):
    folder = trained("debug=fast", *CELLS)
    rows = read_json_lines(folder / "history.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "val" in row] == [2, 4]
    assert "4 steps" in capsys.readouterr().out
    assert len(json.loads((folder / "data.json").read_text())["val"]) == 2 * 4, "images and masks of 4 cases of 6"
    pictures = sorted((folder / "validation").rglob("*.png"))
    assert len(pictures) == 2 * 4
    with Image.open(pictures[0]) as picture:
        assert picture.width > 4 * 320
    assert (folder / "checkpoints" / "best" / "model.safetensors").is_file()
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_profile_leaves_a_table_and_a_trace(capsys):
    folder = trained("debug=profile", *CELLS, "training.steps=5", "training.profile_steps=2")
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
    folder = trained(*same, *MODEL, *small, "training.precision=float32")
    (found,) = [row["val"] for row in read_json_lines(folder / "history.jsonl") if "val" in row]
    assert list((folder / "validation").glob("step-*/f*.png"))
    assert run("eval", f"checkpoint={folder}", "data.split=val", *same, "metrics.bootstrap=0") == 0
    summary = json.loads((newest("runs/eval") / "metrics.json").read_bytes())
    assert summary["dataset"]["mean_iou"] == pytest.approx(found["mean_iou"], abs=1e-12)
    assert summary["loss"]["dataset"] == pytest.approx(found["loss"], rel=1e-6)
