"""What counts as agreement: equal labels, or a pixel whose two logits are nearly equal."""

import numpy as np
import pytest
import torch

from segmeter.deploy.publish import compare
from segmeter.errors import RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.segmenter import Segmenter
from tests.models.parts import Stub, make_card, make_spec


def predictor_of(logits: torch.Tensor, task: str = "multiclass") -> Predictor:
    """A predictor that gives these logits (1, K, H, W) for any image of their size."""
    classes = 2 if task == "binary" else logits.shape[1]
    stub = Segmenter(Stub(lambda image: logits[..., : image.shape[2], : image.shape[3]].expand(len(image), -1, -1, -1)),
                     make_card(make_spec(classes, task)))  # fmt: skip
    return Predictor(stub, InferenceConfig(precision="float32"), torch.device("cpu"))


def image(side: int) -> list[tuple[str, np.ndarray]]:
    return [("a", np.zeros((side, side, 3), np.uint8))]


def test_a_near_tie_may_be_decided_otherwise_and_is_counted_and_anything_else_is_refused():
    """200 x 200 and, as a batch of two, 133 x 133: 40000 + 2 * 17689 pixels, one of which (once, twice) differs."""

    def model(images):
        labels = np.zeros(images.shape[:3], np.uint8)
        labels[:, 0, 0] = 1
        return labels

    logits = torch.zeros(1, 2, 200, 200)
    logits[:, 0] = 4.0
    logits[:, 1, 0, 0] = 4.0 - 2e-3  # 2e-3 of 4: 5e-4
    found = compare(model, predictor_of(logits), image(200))
    assert (found.pixels, found.differing) == (40000 + 2 * 17689, 3)
    assert found.widest == pytest.approx(5e-4, rel=1e-3)
    assert found.to_dict()["near_tie"] == 1e-3
    logits[:, 1, 0, 0] = 4.0 - 5e-3  # 1.25e-3 of 4
    with pytest.raises(RunError, match=r"1 of 40000 pixels of case 'a' .* no near-ties .* 0\.0013"):
        compare(model, predictor_of(logits), image(200))


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_thresholded_labels_are_held_against_the_logit_of_the_threshold(task):
    logits = torch.full((1, 1 if task == "binary" else 3, 200, 200), -3.0)
    logits[:, 0, 3, 4] = 9e-4  # present, by less than a near-tie; the model says absent

    def model(images):
        shape = images.shape[:3] if task == "binary" else (len(images), 3, *images.shape[1:3])
        return np.zeros(shape, np.uint8)

    assert compare(model, predictor_of(logits, task), image(200)).differing == 3
    logits[:, 0, 3, 4] = 1.1e-3
    with pytest.raises(RunError, match="no near-ties"):
        compare(model, predictor_of(logits, task), image(200))


def failing(images):
    raise ValueError("index 12\nout of range")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda images: np.ones(images.shape[:3], np.uint8), "more than 1 in 10,000, though all are near-ties"),
        (lambda images: np.zeros(images.shape[:3], int), r"uint8 \(1, 60, 60\) for case 'a', got int64 \(1, 60, 60\)"),
        (failing, r"can't label case 'a' \(ValueError: index 12 out of range\)"),
    ],
    ids=["many near-ties", "another dtype", "failing"],
)
def test_a_model_of_other_labels_is_refused_in_one_line(model, message):
    """All logits are equal: the first class wins, and every pixel is a tie."""
    with pytest.raises(RunError, match=message):
        compare(model, predictor_of(torch.zeros(1, 2, 60, 60)), image(60))
