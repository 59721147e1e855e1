from pathlib import Path

import torch

from segmeter.errors import StopSignals
from segmeter.records import read_json_lines
from segmeter.training.clock import Limits
from segmeter.training.learner import Learner
from segmeter.training.trainer import train
from segmeter.training.validation import Validator
from tests.training.tiny import tiny_job


def write_shape(prediction, folder: Path) -> Path:
    path = folder / f"{prediction.sample.case_id}.png"
    path.write_text(str(prediction.labels.shape))
    return path


def build(job, said, step=0):
    learner = Learner(job, torch.device("cpu"), Limits(config=job.settings.training, batches_per_epoch=2))
    return Validator(job, learner, step=step, show=said.append, stop=StopSignals())


def test_a_validation_shows_how_far_it_is_and_draws_its_pictures(tmp_path):
    job, said = tiny_job(tmp_path, draw=write_shape, pictures=2), []
    scores, drawn = build(job, said)(7, 0.1)
    assert [text.split(",")[1] for text in said] == [" validating 1 of 3", " validating 2 of 3", " validating 3 of 3"]
    assert sorted(drawn) == ["case00", "case02"]
    assert (tmp_path / "validation" / "step-00000007" / "case02.png").read_text() == "(16, 16)"
    assert 0 <= scores.values["mean_iou"] <= 1


def test_a_run_draws_at_each_validation_and_one_that_is_resumed_draws_the_same(tmp_path):
    for name in ("straight", "resumed"):
        (tmp_path / name).mkdir()
    train(tiny_job(tmp_path / "straight", draw=write_shape))
    job = tiny_job(tmp_path / "resumed", draw=write_shape, epochs=2)
    train(job)
    later = tmp_path / "resumed" / "validation" / "step-00000099"  # of a process that was killed later
    later.mkdir()
    allowed = ("training.epochs",)
    train(tiny_job(tmp_path / "resumed", draw=write_shape, resume=True, allow_changes=allowed))
    found = [sorted(path.relative_to(root) for path in (root / "validation").rglob("*")) for root in tmp_path.iterdir()]
    assert found[0] == found[1]
    assert len(found[0]) == 4 * (1 + 3)


def test_a_run_ends_at_the_score_that_was_asked_for(tmp_path):
    result = train(tiny_job(tmp_path, epochs=50, stop_at=0.5))
    scores = [row["val"]["mean_iou"] for row in read_json_lines(tmp_path / "history.jsonl") if "val" in row]
    assert result.reason == "stop_at=0.5"
    assert scores[-1] >= 0.5 > max(scores[:-1])


def test_of_a_loss_the_score_to_stop_at_is_the_lowest(tmp_path):
    """Mutation seen to fail: the higher taken for the better."""
    result = train(tiny_job(tmp_path, epochs=50, stop_at=0.9, monitor="loss"))
    assert result.reason == "stop_at=0.9"
    assert result.score is not None
    assert result.score <= 0.9
