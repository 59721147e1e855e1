"""The first batch is drawn as the network is given it, and nothing else of the training changes by that."""

import logging

import numpy as np
import torch

from segmeter.training.trainer import train
from tests.training.tiny import TinyAugment, TinyCases, TinySource, tiny_job


class Seen(list):
    def __call__(self, *given):
        self.append(given)


def test_the_augmented_samples_are_drawn_once_and_never_in_a_resumed_run(tmp_path):
    seen, again, cases = Seen(), Seen(), TinyCases()
    train(tiny_job(tmp_path, cases=cases, draw_batch=seen, epochs=1))
    train(tiny_job(tmp_path, draw_batch=again, epochs=2, resume=True, allow_changes=("training.epochs",)))
    assert not again
    ((images, targets, names, folder),) = seen
    image, target, indices = TinySource(cases).batch(0, 0, 0.0)
    augment = TinyAugment()
    draws = augment.draw(seed=0, epoch=0, indices=indices, channels=3)
    wanted, _ = augment(torch.from_numpy(image).permute(0, 3, 1, 2), None, draws)
    np.testing.assert_array_equal(images, wanted.permute(0, 2, 3, 1).numpy())
    np.testing.assert_array_equal(targets, target)
    assert list(names) == [cases.case_ids[i] for i in indices]
    assert folder == tmp_path


def test_the_weights_are_the_same_bits_with_and_without_the_picture(tmp_path):
    found, unwanted = [], Seen()
    for name, draw, pictures in (("with", Seen(), 1), ("without", unwanted, 0)):
        job = tiny_job(tmp_path / name, draw_batch=draw, pictures=pictures, epochs=1)
        train(job)
        found.append(job.model.segmenter.state_dict())
    assert not unwanted
    for key, value in found[0].items():
        assert torch.equal(value, found[1][key]), key


def test_what_nothing_can_show_does_not_stop_the_run(tmp_path, caplog):
    def draw(*given):
        raise ValueError("no colours")

    with caplog.at_level(logging.WARNING):
        assert train(tiny_job(tmp_path, draw_batch=draw, epochs=1)).steps
    assert "the first batch could not be drawn (no colours)" in caplog.text
