"""The history of a run, and what becomes of its rows in trackers, which may fail."""

import io
import json
import sys

import pytest
from PIL import Image

from segmeter.errors import ConfigError, Interrupted, SegmeterError
from segmeter.records import read_json_lines
from segmeter.training import loggers
from segmeter.training.config import LOGGERS, MlflowConfig, NoLoggerConfig, TensorBoardConfig, WandbConfig
from segmeter.training.loggers import History
from segmeter.training.trainer import train
from tests.training.test_resume import StoppingSource
from tests.training.tiny import TinyCases, draw_red, tiny_job


def test_rows_are_on_disk_when_write_returns_and_undefined_numbers_are_null(tmp_path):
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.write({"step": 1, "loss": 0.1 + 0.2})
    assert path.read_bytes() == b'{"step": 1, "loss": 0.30000000000000004}\n'
    assert history.position == 41
    history.write({"step": 2, "val": {"mean_iou": float("nan"), "loss": float("inf")}})
    history.close()
    assert read_json_lines(path)[1:] == [{"step": 2, "val": {"mean_iou": None, "loss": None}}]


@pytest.mark.parametrize("lost", [False, True])
def test_a_resumed_history_is_cut_back_to_its_position_or_starts_again_where_it_was_lost(tmp_path, lost):
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.write({"step": 1})
    position = history.position
    history.write({"step": 2, "loss": 5})
    history.close()
    with path.open("ab") as file:
        file.write(b'{"step": 3, "lo')
    assert [row["step"] for row in read_json_lines(path)] == [1, 2]
    if lost:
        path.unlink()
    again = History(path, position=position)
    again.write({"step": 2, "loss": 7})
    again.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"step": 1}, {"step": 2, "loss": 7}][lost:]


def test_no_logger_is_nothing(tmp_path):
    assert LOGGERS.build(NoLoggerConfig(), folder=tmp_path, step=0, settings={}) is None


@pytest.mark.parametrize(
    "config", [TensorBoardConfig(), WandbConfig(mode="offline"), MlflowConfig()], ids=lambda config: config.name
)
def test_a_library_that_is_missing_says_how_to_get_it(tmp_path, monkeypatch, config):
    monkeypatch.setitem(sys.modules, config.name, None)
    message = rf'{config.name} is not installed\. Run `pip install "segmeter\[{config.name}\]"`'
    with pytest.raises(ConfigError, match=message):
        LOGGERS.build(config, folder=tmp_path, step=0, settings={})


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


class Server:
    """A tracker that is away for some rows, and never to be closed."""

    def __init__(self, *, away=range(0)):
        self.away = away
        self.rows = []
        self.seen = 0
        self.outcome = None
        self.closed = 0

    def write(self, row):
        self.seen += 1
        if self.seen in self.away:
            raise ConnectionError("Connection\nrefused")
        self.rows.append(row["step"])

    def show(self, step, pictures):
        self.rows.append((step, sorted(pictures)))

    def close(self, outcome):
        self.outcome = outcome
        self.closed += 1
        raise OSError


@pytest.fixture
def server(monkeypatch):
    made = Server(away=range(2, 4))
    monkeypatch.setattr(loggers.LOGGERS, "build", lambda config, **given: made)
    return made


def test_a_tracker_that_fails_neither_stops_the_training_nor_the_others(tmp_path, server, caplog):
    """Mutation seen to fail: the error let through."""
    train(tiny_job(tmp_path, epochs=3, log_every=1, loggers=(NoLoggerConfig(),)))
    steps = [row["step"] for row in read_json_lines(tmp_path / "history.jsonl")]
    assert server.rows == [steps[0], *steps[3:]]
    found = [record.getMessage() for record in caplog.records if record.name == loggers.__name__]
    assert found == [
        f"logger: none failed at step {steps[1]} (Connection refused); training continues",
        "logger: none could not be closed (OSError)",
        "logger: none lacks 2 rows; the run's folder has them all",
    ]
    assert server.outcome == "finished"


def test_a_tracker_is_told_of_an_interruption(tmp_path, server):
    cases = TinyCases(count=26)
    source = StoppingSource(cases)
    source.at = 2
    with pytest.raises(Interrupted):
        train(tiny_job(tmp_path, cases=cases, source=source, loggers=(NoLoggerConfig(),)))
    assert server.outcome == "interrupted"


def test_all_trackers_are_told_of_a_failure(tmp_path, server):
    """Mutation seen to fail: the first one alone."""
    config = NoLoggerConfig()
    both = (config, config.replace(name="second"))
    with pytest.raises(SegmeterError):
        train(tiny_job(tmp_path, cases=TinyCases(poisoned=tuple(range(10))), loggers=both))
    assert (server.outcome, server.closed) == ("failed", 2)


@pytest.mark.parametrize(("drawn", "expected"), [({"draw": draw_red}, [(2, ["case00", "case02"])]), ({}, [])])
def test_a_logger_gets_the_pictures_after_the_scores_and_none_where_none_are_drawn(tmp_path, server, drawn, expected):
    server.away = range(0)
    train(tiny_job(tmp_path, epochs=1, log_every=9, pictures=2, loggers=(NoLoggerConfig(),), **drawn))
    assert server.rows == [2, 2, *expected]
