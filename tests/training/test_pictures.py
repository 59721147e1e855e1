"""Pictures of validations and of the first batch, which change nothing else of the training."""

import logging
import time
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import segmeter.training.pictures
from segmeter.data.sample import Sample
from segmeter.inference.results import Prediction
from segmeter.records import read_json_lines
from segmeter.training.data.cases import spread_evenly
from segmeter.training.pictures import MOST_STEPS, Pictures
from segmeter.training.trainer import train
from tests.training.tiny import TinyAugment, TinyCases, TinySource, tiny_job

NAMES = tuple(f"case{index}" for index in range(10))


def write_name(prediction, folder):
    path = folder / f"{prediction.sample.case_id}.png"
    path.write_text("picture")
    return path


def predict(case_id):
    empty = np.zeros((1, 1), np.uint8)
    return Prediction(sample=Sample(case_id=case_id, image=empty[..., None], target=empty), labels=empty)


def draw(pictures, step, count=3):
    return pictures.save([predict(NAMES[index]) for index in spread_evenly(len(NAMES), count)], step)


def test_a_picture_that_can_not_be_drawn_is_said_and_the_others_are_drawn(tmp_path, caplog):
    def failing(prediction, folder):
        if prediction.sample.case_id == "case5":
            raise ValueError("an image of\nno pixels")
        return write_name(prediction, folder)

    drawn = draw(Pictures(tmp_path, draw=failing, step=0), 20)
    assert sorted(drawn) == ["case1", "case8"]
    assert "case5 could not be drawn at step 20 (an image of no pixels); training continues" in caplog.text


def test_a_picture_that_can_not_be_written_stops_the_run_like_any_other_file(tmp_path):
    failing = Mock(side_effect=OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        draw(Pictures(tmp_path, draw=failing, step=0), 20)


def test_of_many_validations_some_stay_spread_over_the_run(tmp_path):
    pictures = Pictures(tmp_path, draw=write_name, step=0)
    for step in range(5, 5 * 101, 5):
        draw(pictures, step, 1)
    steps = sorted(int(path.name[5:]) for path in (tmp_path / "validation").iterdir())
    assert len(steps) == MOST_STEPS
    assert (steps[0], steps[-1]) == (5, 500)
    assert max(np.diff(steps)) <= 2 * 500 / MOST_STEPS


def test_the_augmented_samples_are_drawn_once_and_never_in_a_resumed_run(tmp_path):
    seen, again, cases = Mock(), Mock(), TinyCases()
    train(tiny_job(tmp_path, cases=cases, draw_batch=seen, epochs=1))
    train(tiny_job(tmp_path, draw_batch=again, epochs=2, resume=True, allow_changes=("training.epochs",)))
    train(tiny_job(tmp_path / "none", draw_batch=again, pictures=0, epochs=1))
    assert not again.called
    (((images, targets, names, folder), _),) = seen.call_args_list
    image, target, indices, _ = TinySource(cases).batch(0, 0, 0.0)
    augment = TinyAugment()
    draws = augment.draw(seed=0, epoch=0, indices=indices, channels=3)
    wanted, _ = augment(torch.from_numpy(image).permute(0, 3, 1, 2), None, draws)
    np.testing.assert_array_equal(images, wanted.permute(0, 2, 3, 1).numpy())
    np.testing.assert_array_equal(targets, target)
    assert list(names) == [cases.case_ids[i] for i in indices]
    assert folder == tmp_path


def test_drawing_the_first_batch_is_no_part_of_the_first_step(tmp_path):
    train(tiny_job(tmp_path, draw_batch=lambda *given: time.sleep(1), epochs=None, steps=1, log_every=1))
    first = read_json_lines(tmp_path / "history.jsonl")[0]
    assert first["stages"]["step"] < 1


@pytest.mark.parametrize("part", ["augmented", "to_numpy", "draw"])
def test_what_nothing_can_show_does_not_stop_the_run(tmp_path, caplog, monkeypatch, part):
    failing = Mock(side_effect=RuntimeError("no memory"))
    monkeypatch.setattr(segmeter.training.pictures, part, failing, raising=part != "draw")
    with caplog.at_level(logging.WARNING):
        assert train(tiny_job(tmp_path, draw_batch=failing, epochs=1)).steps
    assert "the first batch could not be drawn (no memory)" in caplog.text
