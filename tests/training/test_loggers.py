"""The history of a run and its rows in trackers: one that fails, and the libraries themselves without a server."""

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from PIL import Image

from segmeter.errors import ConfigError, Interrupted, SegmeterError
from segmeter.records import read_json_lines
from segmeter.training import loggers
from segmeter.training.config import LOGGERS, MlflowConfig, NoLoggerConfig, TensorBoardConfig, WandbConfig
from segmeter.training.loggers import WandbLogger, json_line
from segmeter.training.trainer import check_resumed, train
from tests.training.tiny import StoppingSource, TinyCases, changed, draw_red, tiny_job


def test_undefined_numbers_are_null_in_the_history():
    assert json_line({"step": 1, "loss": 0.1 + 0.2}) == b'{"step": 1, "loss": 0.30000000000000004}\n'
    undefined = {"step": 2, "val": {"mean_iou": float("nan"), "loss": float("inf")}}
    assert json.loads(json_line(undefined)) == {"step": 2, "val": {"mean_iou": None, "loss": None}}


@pytest.mark.parametrize(
    "config", [TensorBoardConfig(), WandbConfig(mode="offline"), MlflowConfig()], ids=lambda config: config.name
)
def test_a_library_that_is_missing_says_how_to_get_it(tmp_path, monkeypatch, config):
    monkeypatch.setitem(sys.modules, config.name, None)
    message = rf'{config.name} is not installed\. Run `pip install "segmeter\[{config.name}\]"`'
    with pytest.raises(ConfigError, match=message):
        LOGGERS.build(config, folder=tmp_path, step=0, settings={})
    with pytest.raises(ConfigError, match=message):  # before a resumed run changes
        check_resumed(tiny_job(tmp_path, loggers=(NoLoggerConfig(), config)))
    assert list(tmp_path.iterdir()) == []


def test_a_logger_that_is_refused_leaves_the_history_as_it_is(tmp_path, monkeypatch):
    """It was left open, and on a resume already cut. Mutation seen to fail: opened before the loggers."""
    monkeypatch.setattr(loggers, "_import", Mock(side_effect=ConfigError("logger: none.")))
    with pytest.raises(ConfigError, match="logger: none"):
        train(tiny_job(tmp_path, loggers=(WandbConfig(),)))
    assert not (tmp_path / "history.jsonl").exists()


def test_tensorboard_gets_every_figure_and_the_pictures_of_each_validation_at_its_step(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny_job(tmp_path, epochs=2, loggers=(TensorBoardConfig(),), pictures=1, draw=draw_red))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"loss", "lr", "grad_norm", "images_per_second", "val/mean_iou", "val/iou/cell"} <= set(tags)
    assert [event.step for event in events.Scalars("val/mean_iou")] == [2, 4]
    shown = events.Images("validation/case01")
    assert [event.step for event in shown] == [2, 4]
    with Image.open(io.BytesIO(shown[0].encoded_image_string)) as picture:
        assert (picture.size, picture.getpixel((0, 0))) == ((5, 4), (255, 0, 0))


@pytest.fixture
def server(monkeypatch):
    """A tracker that is never to be closed."""
    made = Mock(**{"close.side_effect": OSError})
    monkeypatch.setattr(loggers.LOGGERS, "build", lambda config, **given: made)
    return made


def test_a_tracker_that_fails_neither_stops_the_training_nor_the_others(tmp_path, server, caplog):
    server.write.side_effect = [None, ConnectionError("Connection\nrefused"), ConnectionError, *[None] * 9]
    train(tiny_job(tmp_path, epochs=3, log_every=1, loggers=(NoLoggerConfig(),)))
    steps = [row["step"] for row in read_json_lines(tmp_path / "history.jsonl")]
    assert [call.args[0]["step"] for call in server.write.call_args_list] == steps  # it is tried again
    found = [record.getMessage() for record in caplog.records if record.name == loggers.__name__]
    assert found == [
        f"logger: none failed at step {steps[1]} (Connection refused), so it lacks rows; training continues",
        "logger: none could not be closed (OSError)",
    ]
    server.close.assert_called_once_with("finished")


def test_all_trackers_are_told_how_a_training_ended(tmp_path, server):
    cases, config = TinyCases(count=26), NoLoggerConfig()
    with pytest.raises(Interrupted):
        train(tiny_job(tmp_path, cases=cases, source=StoppingSource(cases, at=2), loggers=(config,)))
    server.close.assert_called_once_with("interrupted")
    both = (config, config.replace(name="second"))
    with pytest.raises(SegmeterError):
        train(tiny_job(tmp_path / "failed", cases=TinyCases(poisoned=tuple(range(10))), loggers=both))
    assert [call.args for call in server.close.call_args_list[1:]] == [("failed",)] * 2


def test_a_tracker_is_closed_if_another_one_does_not_start(tmp_path, server, monkeypatch):
    monkeypatch.setattr(loggers.LOGGERS, "build", Mock(side_effect=[server, ConfigError("no server")]))
    config = NoLoggerConfig()
    with pytest.raises(ConfigError, match="no server"):
        loggers.Loggers((config, config.replace(name="second")), folder=tmp_path, step=0, settings={})
    server.close.assert_called_once_with("failed")


@pytest.mark.parametrize(("drawn", "expected"), [({"draw": draw_red}, [(2, ["case00", "case02"])]), ({}, [])])
def test_a_logger_gets_the_pictures_after_the_scores_and_none_where_none_are_drawn(tmp_path, server, drawn, expected):
    train(tiny_job(tmp_path, epochs=1, log_every=9, pictures=2, loggers=(NoLoggerConfig(),), **drawn))
    assert [name for name, *_ in server.method_calls] == ["write", "write", *["show"] * len(expected), "close"]
    assert [(step, sorted(shown)) for step, shown in (call.args for call in server.show.call_args_list)] == expected


SETTINGS = {"loss": {"name": "focal", "gamma": 2.0}, "logger": {"api_key": "[REDACTED]"}}
LIBRARY = pytest.mark.filterwarnings("ignore")  # the libraries use what their own dependencies have deprecated
SECRET = "hunter2-never-on-disk"


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    """No key, no configuration and no server of the one who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "outside"))


@pytest.mark.slow
@LIBRARY
def test_mlflow_gets_every_number_and_picture_at_its_step_and_a_resume_goes_on_with_the_run(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    folder = tmp_path / "run"
    folder.mkdir()
    job = tiny_job(folder, epochs=1, loggers=(MlflowConfig(),), masked=SETTINGS, pictures=1, draw=draw_red)
    train(job)
    longer = job.settings.training.replace(epochs=2)
    again = changed(job, training=longer, resume=True, allow_changes=("training.epochs",))
    train(replace(again, segmenter=tiny_job(folder).segmenter))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    place = client.get_experiment_by_name("segmeter").experiment_id
    (run,) = client.search_runs([place])
    scores = [row["val"]["mean_iou"] for row in read_json_lines(folder / "history.jsonl") if "val" in row]
    found = client.get_metric_history(run.info.run_id, "val/mean_iou")
    assert [(metric.step, metric.value) for metric in found] == list(zip((2, 4), scores, strict=True))
    assert (run.data.params["loss.gamma"], run.info.status) == ("2.0", "FINISHED")
    names = [item.path for item in client.list_artifacts(run.info.run_id, "images") if item.path.endswith(".png")]
    assert sorted(name.partition("+timestamp")[0] for name in names) == [
        "images/validation~case01+step+2",
        "images/validation~case01+step+4",
    ]
    with Image.open(folder / "mlflow" / run.info.run_id / "artifacts" / names[0]) as picture:
        assert (picture.size, picture.getpixel((0, 0))) == ((5, 4), (255, 0, 0))


@LIBRARY
def test_mlflow_is_told_how_a_training_ended_in_the_relative_folder_of_a_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/train/one")
    folder.mkdir(parents=True)

    def status():
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / folder / 'mlflow.db'}")
        return client.search_runs(["1"])[0].info.status

    for outcome, wanted in (("interrupted", "KILLED"), ("failed", "FAILED"), ("finished", "FINISHED")):
        logger = LOGGERS.build(MlflowConfig(), folder=folder, step=0, settings={})
        assert status() == "RUNNING"
        logger.close(outcome)
        assert status() == wanted


@pytest.fixture
def wandb(monkeypatch):
    """Stands for the library."""
    made = Mock(Error=RuntimeError)
    monkeypatch.setattr(loggers, "_import", lambda name: made)
    return made


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("interrupted", 1), ("failed", 1)])
def test_wandb_is_told_how_a_training_ended(tmp_path, wandb, outcome, code):
    wandb.init.return_value.finish.side_effect = OSError("no route to host")
    logger = WandbLogger(WandbConfig(), folder=tmp_path, step=0, settings={})
    with pytest.raises(OSError, match="no route"):
        logger.close(outcome)
    wandb.init.return_value.finish.assert_called_once_with(exit_code=code)
    wandb.teardown.assert_called_once_with()


def test_a_run_that_moves_keeps_its_identifier(tmp_path, wandb):
    for name in ("run", "moved", "other"):
        if name == "moved":
            (tmp_path / "run").rename(tmp_path / name)
        WandbLogger(WandbConfig(), folder=tmp_path / name, step=0, settings={})
    first, moved, other = (call.kwargs["id"] for call in wandb.init.call_args_list)
    assert first == moved != other


def test_the_reason_why_wandb_did_not_start_is_told_whole(tmp_path, wandb):
    wandb.init.side_effect = RuntimeError(f"no key.\n  {'Ask. ' * 60}Done")
    with pytest.raises(ConfigError) as caught:
        WandbLogger(WandbConfig(), folder=tmp_path, step=0, settings={})
    assert str(caught.value) == f"logger: wandb did not start: no key. {'Ask. ' * 60}Done"


@pytest.mark.slow
@LIBRARY
def test_wandb_works_offline_and_leaves_no_secret(tmp_path):
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    folder = tmp_path / "run"
    folder.mkdir()
    job = tiny_job(folder, epochs=1, loggers=(WandbConfig(mode="offline"),), masked=SETTINGS, pictures=1, draw=draw_red)
    train(job)
    (picture,) = folder.glob("wandb/offline-run-*/files/media/images/validation/case01_*.png")
    with Image.open(picture) as stored:
        assert (stored.size, stored.getpixel((0, 0))) == ((5, 4), (255, 0, 0))
    (record,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = record.read_bytes()
    assert b"val/mean_iou" in content
    assert b"gamma" in content
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@LIBRARY
def test_a_store_that_can_not_be_opened_is_one_line(tmp_path):
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    (tmp_path / "file").write_text("")
    config = MlflowConfig(uri=f"sqlite:///{tmp_path}/file/mlflow.db")
    with pytest.raises(ConfigError, match="mlflow can't use its store"):
        LOGGERS.build(config, folder=tmp_path, step=0, settings={})
