"""Train N is train k, stop, resume to N: weights, average, optimizer, loss scale, generators, history and pictures."""

import signal

import pytest
import torch
from torch.amp import GradScaler

from segmeter.errors import Interrupted
from segmeter.models.checkpoint import read_checkpoint
from segmeter.records import read_json_lines
from segmeter.training import learner
from segmeter.training.checkpointing import step_name
from segmeter.training.trainer import train
from tests.training.tiny import StoppingSource, TinyCases, assert_same, draw_red, tiny_job, tiny_segmenter

TIMES = ("seconds", "images_per_second", "data_wait", "stages", "peak_memory_mb")


class StoppingCases(TinyCases):
    """Sends this process a signal when case `at` is read for the second time: within the second validation."""

    at: int = 0

    def __getitem__(self, index):
        if index == self.at and self.read.count(index) == 1:
            signal.raise_signal(signal.SIGTERM)
        return super().__getitem__(index)


def content(folder):
    """All that a run leaves, without what the clock decides."""
    checkpoint = read_checkpoint(folder / "checkpoints" / "last")
    state = checkpoint.load_state()
    for key in ("seconds", "reserve", "history"):
        state.pop(key)
    rows = [{k: v for k, v in row.items() if k not in TIMES} for row in read_json_lines(folder / "history.jsonl")]
    best = (folder / "checkpoints" / "best").resolve().name
    pictures = sorted(str(path.relative_to(folder)) for path in folder.glob("validation/**/*"))
    return {"state": state, "rows": rows, "sha256": checkpoint.sha256, "best": best, "pictures": pictures}


SETTINGS = {"epochs": 4, "ema": 0.9, "accumulate": 2, "keep": 2, "pictures": 2, "draw": draw_red}


@pytest.fixture(autouse=True, scope="module")
def _scaled():
    """The loss scale of float16 doubles twice in a run."""
    with pytest.MonkeyPatch.context() as patch:
        scaler = {"init_scale": 1024.0, "growth_interval": 5}
        patch.setattr(learner, "build_scaler", lambda device, precision: GradScaler("cpu", **scaler))
        yield


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    cases = TinyCases(count=26)
    train(tiny_job(folder, cases=cases, **SETTINGS))
    drawn = [f"validation/{step_name(step)}/case{case}.png" for step in (3, 6, 9, 12) for case in ("00", "02")]
    found = content(folder)
    assert [name for name in found["pictures"] if name.endswith("png")] == drawn
    assert found["state"]["scaler"]["scale"] == 4 * 1024
    return found


# 6 batches per epoch, 3 steps per epoch: batch 6 lies in step 4, the first of the second epoch
@pytest.mark.parametrize(
    ("stops", "workers"), [((0,), 0), ((4,), 2), ((5,), 0), ((8, 16), 0), ((9, 10, 21), 0), ((9, 10, 21), 2)], ids=str
)
def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_bits(tmp_path, straight, stops, workers):
    cases = TinyCases(count=26)
    for number, at in enumerate(stops):
        source = StoppingSource(cases, at=at)
        job = tiny_job(tmp_path, cases=cases, source=source, workers=workers, resume=number > 0, **SETTINGS)
        with pytest.raises(Interrupted):
            train(job)
        with (tmp_path / "history.jsonl").open("a") as file:  # what a killed process logs after its last checkpoint
            file.write('{"step": 999}\n{"step":')
        (tmp_path / "validation" / "step-00000099").mkdir(parents=True, exist_ok=True)
    torch.manual_seed(99)  # a resumed process starts with other generators and other weights
    rest = tiny_job(tmp_path, cases=cases, segmenter=tiny_segmenter(7), workers=workers, resume=True, **SETTINGS)
    result = train(rest)
    assert result.steps == 12
    assert_same(content(tmp_path), straight)


def test_a_run_that_is_stopped_while_it_validates_ends_with_the_same_bits(tmp_path, straight):
    cases = TinyCases(count=26)
    val_cases = StoppingCases(count=3, salt=9)
    val_cases.at = 2
    with pytest.raises(Interrupted, match="stopped by SIGTERM after step 6; step-00000006-unvalidated was saved"):
        train(tiny_job(tmp_path, cases=cases, val_cases=val_cases, **SETTINGS))
    train(tiny_job(tmp_path, cases=cases, segmenter=tiny_segmenter(7), resume=True, **SETTINGS))
    assert_same(content(tmp_path), straight)


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    first = train(tiny_job(tmp_path))
    before = content(tmp_path)
    again = train(tiny_job(tmp_path, segmenter=tiny_segmenter(7), resume=True))
    assert (again.steps, again.score, again.best) == (first.steps, first.score, first.best)
    assert_same(content(tmp_path), before)
