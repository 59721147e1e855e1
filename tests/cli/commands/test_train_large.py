"""`segmeter train` on Zarr folders, whose windows are read from their chunks: checked, trained, validated by rows."""

import json

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.records import read_json_lines
from tests.cli.sharded import newest
from tests.data.crafted import noise, write_zarr

MODEL = ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        size = (100 + 9 * number, 120)
        mask = (noise(*size, None, seed=number) > 128).astype(np.uint8)
        image = np.repeat(mask[..., None] * 90, 3, -1) + noise(*size, 3, seed=number) // 3
        for folder, array, axes in (("images", image.astype(np.uint8), "yxc"), ("masks", mask, "yx")):
            chunks = (64, 64, 3)[: array.ndim]
            (tmp_path / "set" / folder).mkdir(parents=True, exist_ok=True)
            write_zarr(tmp_path / "set" / folder / f"f{number}.zarr", array, axes, chunks=chunks)
    data = ["data=folder", "data.root=set", "data.task=binary", "data.classes=[background,cell]"]
    return [*data, "data.fold=1/5", "data.test_fraction=0"]


def test_zarr_folders_are_trained_on_and_validated_as_eval_measures_them(command):
    small = ["training.steps=4", "training.batch_size=2", "augment.crop=[64,64]", "augment.balance=0.5"]
    run_as = ["inference.tile=64", "inference.precision=float32"]
    main(["train", "device=cpu", *command, *MODEL, *small, *run_as, "training.precision=float32"])
    run = newest("runs/train")
    (found,) = [row["val"] for row in read_json_lines(run / "history.jsonl") if "val" in row]
    assert list((run / "validation").glob("step-*/f*.png"))
    main(["eval", f"checkpoint={run}", "data.split=val", "device=cpu", "metrics.bootstrap=0", *run_as])
    summary = json.loads((newest("runs/eval") / "metrics.json").read_bytes())
    assert summary["dataset"]["mean_iou"] == pytest.approx(found["mean_iou"], abs=1e-12)
    assert summary["loss"]["dataset"] == pytest.approx(found["loss"], rel=1e-6)
