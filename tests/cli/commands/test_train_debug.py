"""The presets of the group `debug`, each run once on a few cells."""

import json

import pytest
from PIL import Image

from segmeter.cli.main import main
from segmeter.records import read_json_lines

SMALL = [
    *("data.size=64", "data.train_cases=6", "data.val_cases=6", "data.test_cases=1", "model.encoder=tu-test_resnet"),
    *("model.depth=3", "model.decoder_channels=[32,16,8]", "optimizer.lr=0.01", "device=cpu", "training.workers=0"),
]


@pytest.fixture
def debug(tmp_path, capsys):
    def run(name, *more):
        places = [f"data.root={tmp_path / 'data'}", f"run.root={tmp_path / 'runs'}"]
        main(["train", f"debug={name}", *SMALL, *places, *more])
        (folder,) = (tmp_path / "runs" / "train").iterdir()
        return folder, capsys.readouterr().out

    return run


@pytest.mark.slow
def test_overfit_says_that_a_batch_fits_and_validates_on_its_samples(debug):
    folder, out = debug("overfit", "training.stop_at=0.6", "training.validate_every=10")
    assert "overfit   fits: mean_iou 0." in out
    assert "ended by: stop_at=0.6" in out
    last = sorted((folder / "validation").iterdir())[-1]
    assert len(list(last.iterdir())) == 4
    assert all(path.name[:2] in ("1-", "2-", "3-", "4-") for path in last.iterdir())


def test_overfit_says_that_a_batch_does_not_fit(debug):
    _, out = debug("overfit", "training.steps=2", "training.validate_every=1", "optimizer.lr=1e-6")
    assert "overfit   DOES NOT FIT: below 0.95: mean_iou 0." in out


def test_fast_goes_through_steps_validations_pictures_and_checkpoints(debug):
    folder, out = debug("fast")
    rows = read_json_lines(folder / "history.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "val" in row] == [2, 4]
    assert "4 steps" in out
    pictures = sorted((folder / "validation").rglob("*.png"))
    assert len(pictures) == 2 * 4
    with Image.open(pictures[0]) as picture:
        assert picture.width > 4 * 320
    assert (folder / "checkpoints" / "best" / "model.safetensors").is_file()
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_profile_leaves_a_table_and_a_trace(debug):
    folder, out = debug("profile", "training.steps=5", "training.profile_steps=2")
    assert f"profile   {folder / 'profile' / 'table.txt'}" in out
    assert (folder / "profile" / "trace.json").is_file()
