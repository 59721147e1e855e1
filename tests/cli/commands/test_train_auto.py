"""`segmeter train training=auto`: what follows from the data is said, used and recorded, and what is given stays."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from segmeter.cli.main import main
from segmeter.models.config import UnetConfig
from segmeter.models.segmenter import build_segmenter
from tests.data.crafted import make_folder
from tests.models.parts import make_card, make_spec

MODEL = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    root = make_folder(tmp_path / "set", tuple(f"field{i}" for i in range(7)), height=264, width=272)
    data = ["data=folder", f"data.root={root}", "data.task=binary", "data.classes=[background,cell]"]
    return ["train", *data, *MODEL, f"run.root={tmp_path / 'runs'}", "training.workers=0", "training.steps=2"]


def run(command: list[str], tmp_path: Path) -> tuple[dict, dict]:
    """The record and the configuration of the run."""
    main(command)
    (folder,) = (tmp_path / "runs" / "train").iterdir()
    return json.loads((folder / "run.json").read_text()), yaml.safe_load((folder / "config.yaml").read_text())


@pytest.mark.slow
def test_seven_images_train_without_an_override_beside_the_data(command, tmp_path, capsys):
    record, config = run([*command, "training=auto"], tmp_path)
    planned = record["planned"]
    assert planned["augment.crop"] == [256, 256]
    assert planned["training.batch_size"] == 4
    assert "training.time_budget" not in planned  # a limit was given
    for key, value in planned.items():
        group, _, name = key.partition(".")
        assert config[group][name] == value, key
    assert "planned   training.batch_size=4 data.mean=auto data.std=auto" in capsys.readouterr().out
    (checkpoint,) = (tmp_path / "runs" / "train").glob("*/checkpoints/best/manifest.json")
    assert json.loads(checkpoint.read_text())["card"]["mean"] != [0.485, 0.456, 0.406]


def test_what_is_given_stays(command, tmp_path):
    given = ["augment.crop=[64,64]", "augment.balance=0", "data.samples_per_epoch=9", "training.batch_size=3"]
    record, config = run([*command, "training=auto", *given, "data.mean=[0.5,0.5,0.5]", "data.std=auto"], tmp_path)
    assert record["planned"] == {}
    assert (config["training"]["batch_size"], config["data"]["mean"]) == (3, [0.5, 0.5, 0.5])


def test_weights_of_a_file_are_recorded_and_tuned_gently(command, tmp_path, caplog):
    torch.manual_seed(7)
    config = UnetConfig(encoder="tu-test_resnet", depth=3, decoder_channels=(8, 8, 4))
    source = build_segmenter(make_card(make_spec(5), model=config)).network.state_dict()
    torch.save(source, tmp_path / "weights.pt")
    tuning = [
        "optimizer.encoder_lr=0.1",
        "training.freeze_encoder=1",
        "training.freeze_norm=encoder",
        "model.norm=batch",
    ]
    record, _ = run([*command, f"model.weights={tmp_path / 'weights.pt'}", *tuning, "augment.crop=[64,64]"], tmp_path)
    assert "of encoder" in record["start"]
    assert str(tmp_path / "weights.pt") in record["start"]
