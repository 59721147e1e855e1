import csv
import os
from dataclasses import replace

import pytest

from segmeter.errors import ConfigError, Interrupted
from segmeter.open_files import read_json_lines
from segmeter.training.config import LOGGERS, MlflowConfig, NoLoggerConfig, WandbConfig
from segmeter.training.loop import train
from segmeter.training.run.trackers import CsvLogger
from tests.training.test_resume import StoppingSource
from tests.training.tiny import TinyCases, tiny_job

SETTINGS = {"loss": {"name": "focal", "gamma": 2.0}, "logger": {"api_key": "[REDACTED]"}}
LIBRARY = pytest.mark.filterwarnings("ignore")  # the libraries use what their own dependencies have deprecated
SECRET = "hunter2-never-on-disk"


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    """No key, no configuration and no server of the one who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "outside"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "outside"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "outside"))


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_csv_files_have_the_rows_of_the_history(tmp_path):
    train(tiny_job(tmp_path, logger=NoLoggerConfig(csv=True)))
    rows = read_json_lines(tmp_path / "history.jsonl")
    steps, scores = read_csv(tmp_path / "train.csv"), read_csv(tmp_path / "val.csv")
    assert [float(row["loss"]) for row in steps] == [row["loss"] for row in rows if "loss" in row]
    assert [float(row["val/mean_iou"]) for row in scores] == [row["val"]["mean_iou"] for row in rows if "val" in row]
    assert {"stages/data", "stages/step", "peak_memory_mb", "data_wait", "grad_norm"} <= set(steps[0])
    later = [row["stages"] for row in rows if "loss" in row][-1]
    assert {"data", "step", "validation", "checkpoint"} == set(later)


def test_a_resumed_run_has_each_row_once_in_its_csv(tmp_path):
    cases = TinyCases(count=26)
    straight, stopped = tmp_path / "a", tmp_path / "b"
    for folder in (straight, stopped):
        folder.mkdir()
    settings = {"logger": NoLoggerConfig(csv=True), "log_every": 1, "epochs": 2}
    train(tiny_job(straight, cases=cases, **settings))
    source = StoppingSource(cases)
    source.at = 8
    with pytest.raises(Interrupted):
        train(tiny_job(stopped, cases=cases, source=source, **settings))
    with (stopped / "train.csv").open("a") as file:  # what a killed process writes after its last checkpoint
        file.write("999,1,2\n12")
    train(tiny_job(stopped, cases=cases, resume=True, **settings))
    for name in ("train.csv", "val.csv"):
        ours, theirs = read_csv(stopped / name), read_csv(straight / name)
        assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    assert [row["loss"] for row in read_csv(stopped / "train.csv")] == [
        row["loss"] for row in read_csv(straight / "train.csv")
    ]


def test_a_name_that_a_spreadsheet_would_run_is_made_harmless(tmp_path):
    logger = CsvLogger(tmp_path, step=0)
    logger.write({"step": 1, "val": {"=cmd()": 0.5}})
    logger.close()
    assert (tmp_path / "val.csv").read_text() == "step,val/=cmd()\n1,0.5\n"


@LIBRARY
def test_mlflow_gets_every_number_at_its_step_and_a_resume_goes_on_with_the_run(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    folder = tmp_path / "run"
    folder.mkdir()
    job = tiny_job(folder, epochs=1, logger=MlflowConfig(), settings=SETTINGS)
    train(job)
    longer = job.training.replace(epochs=2)
    again = replace(job, training=longer, resume=True, allow_changes=("training.epochs",))
    train(replace(again, segmenter=tiny_job(folder).segmenter))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    place = client.get_experiment_by_name("segmeter").experiment_id
    (run,) = client.search_runs([place])
    scores = [row["val"]["mean_iou"] for row in read_json_lines(folder / "history.jsonl") if "val" in row]
    found = client.get_metric_history(run.info.run_id, "val/mean_iou")
    assert [(metric.step, metric.value) for metric in found] == list(zip((2, 4), scores, strict=True))
    assert run.data.params["loss.gamma"] == "2.0"
    assert run.info.status == "FINISHED"


@LIBRARY
def test_wandb_works_offline_and_leaves_no_secret(tmp_path):
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    folder = tmp_path / "run"
    folder.mkdir()
    train(tiny_job(folder, epochs=1, logger=WandbConfig(mode="offline"), settings=SETTINGS))
    (record,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = record.read_bytes()
    assert b"val/mean_iou" in content
    assert b"gamma" in content
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("config", [WandbConfig(mode="offline"), MlflowConfig()], ids=lambda config: config.name)
def test_a_library_that_is_missing_says_how_to_get_it(tmp_path, monkeypatch, config):
    monkeypatch.setitem(__import__("sys").modules, config.name, None)
    message = rf'{config.name} is not installed\. Run `pip install "segmeter\[{config.name}\]"`'
    with pytest.raises(ConfigError, match=message):
        LOGGERS.build(config, folder=tmp_path, step=0, settings={})


@LIBRARY
def test_a_store_that_can_not_be_opened_is_one_line(tmp_path):
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    (tmp_path / "file").write_text("")
    config = MlflowConfig(uri=f"sqlite:///{tmp_path}/file/mlflow.db")
    with pytest.raises(ConfigError, match="mlflow can't use its store"):
        LOGGERS.build(config, folder=tmp_path, step=0, settings={})
