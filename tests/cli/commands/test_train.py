"""What `segmeter train` says of a run at its end; how it is run is tested in the other files of this command."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from segmeter.cli.commands import train
from segmeter.cli.commands.train import _scores, _show
from segmeter.data.config import CellsConfig
from segmeter.errors import ConfigError
from segmeter.models.config import UnetConfig
from segmeter.training.config import TrainingConfig
from segmeter.training.job import TrainResult

RESULT = TrainResult(
    steps=20,
    epochs=2.5,
    reason="steps=20",
    monitor="iou/car",
    score=0.25,
    best=Path("best"),
    values={"iou/car": 0.25, "mean_iou": None},
    unlearned=(),
    last=Path("last"),
    seconds=61.26,
    images_per_second=3.14,
    data_wait=0.0,
)


def changed(**values: Any) -> TrainResult:
    return TrainResult(**(vars(RESULT) | values))


def test_a_run_is_summed_up_in_three_lines(tmp_path, capsys):
    _show(tmp_path, TrainingConfig(), RESULT, 0)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "20 steps, 2.5 epochs in 61 s (3.1 images/s), ended by: steps=20",
        f"best      iou/car 0.2500, mean_iou n/a   {tmp_path / 'checkpoints' / 'best'}",
        f"report    {tmp_path / 'report.html'}",
    ]
    assert err == ""
    _show(tmp_path, TrainingConfig(), RESULT, 300)
    assert capsys.readouterr().out.startswith("20 of 300 planned steps, 2.5 epochs")


def test_classes_that_were_not_learned_are_named(tmp_path, capsys):
    _show(tmp_path, TrainingConfig(), changed(unlearned=("car", "tree")), 0)
    said = "warning: IoU below 0.01 at the best checkpoint, though the validation masks hold them: car, tree.\n"
    assert capsys.readouterr().err == said


def test_without_validation_the_last_checkpoint_is_named_and_there_is_no_score(tmp_path, capsys):
    result = changed(score=None, best=None, values={})
    _show(tmp_path, TrainingConfig(), result, 0)
    assert f"last      not validated   {tmp_path / 'checkpoints' / 'last'}\n" in capsys.readouterr().out
    assert _scores(result) == {}
    assert list(_scores(RESULT).items()) == [("iou/car", 0.25), ("mean_iou", None)]


def test_one_batch_is_overfitted_in_one_process_alone(monkeypatch):
    for name in ("SampleSource", "CachedDataset", "PartReader", "replace"):
        monkeypatch.setattr(train, name, lambda *given, **named: None)
    config = SimpleNamespace(
        training=TrainingConfig(overfit_batches=2, batch_size=2, cache_gb=0),
        augment=None,
        data=CellsConfig(),
        model=UnetConfig(),
    )
    two: Any = SimpleNamespace(rank=0, size=2)
    given: dict[str, Any] = {
        "seen": SimpleNamespace(presence=None),
        "world": two,
        "device": SimpleNamespace(type="cpu"),
    }
    data: Any = SimpleNamespace(pairs=(), weights={})
    with pytest.raises(ConfigError, match="`overfit_batches` to be null in several processes, got 2"):
        train._open_data(config, data, data, **given)  # type: ignore[arg-type]
    config.model = UnetConfig(downsample=2)
    given["world"] = SimpleNamespace(rank=0, size=1)
    with pytest.raises(ConfigError, match=r"`downsample` to be 1 with training\.overfit_batches, got 2"):
        train._open_data(config, data, data, **given)  # type: ignore[arg-type]
