import builtins

import pytest

from segmeter.errors import ConfigError
from segmeter.training.config import LOGGERS, NoLoggerConfig, TensorBoardConfig
from segmeter.training.loop import train
from tests.training.tiny import tiny_job


def test_no_logger_is_nothing(tmp_path):
    assert LOGGERS.build(NoLoggerConfig(), folder=tmp_path, step=0, settings={}) is None


def test_tensorboard_gets_every_figure_at_its_step(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny_job(tmp_path, epochs=2, logger=TensorBoardConfig()))
    curves = EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    tags = curves.Tags()["scalars"]
    assert {"loss", "lr", "grad_norm", "images_per_second", "val/mean_iou", "val/iou/cell"} <= set(tags)
    assert [event.step for event in curves.Scalars("val/mean_iou")] == [2, 4]


def test_tensorboard_that_is_missing_says_how_to_get_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if "tensorboard" in name:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ConfigError, match=r'tensorboard is not installed\. Run `pip install "segmeter\[tensorboard\]"`'
    ):
        LOGGERS.build(TensorBoardConfig(), folder=tmp_path, step=0, settings={})
