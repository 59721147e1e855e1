"""Several models as one: the mean of their probabilities, and nothing else that differs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from segmeter.errors import ConfigError
from segmeter.models.checkpoint import Checkpoint
from segmeter.models.ensemble import Ensemble
from segmeter.models.segmenter import Segmenter
from segmeter.models.trained import Checkpoints, read_checkpoints
from tests.models.parts import Pointwise, make_card, make_pointwise, make_spec, make_tiny


@pytest.mark.parametrize(("task", "classes"), [("multiclass", 3), ("binary", 2), ("multilabel", 3)])
def test_probabilities_are_the_mean_of_those_of_the_members(task, classes):
    spec = make_spec(classes, task)
    members = [Segmenter(Pointwise(num_channels=spec.num_channels, seed=seed), make_card(spec)) for seed in range(3)]
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    to_probs = torch.sigmoid if task != "multiclass" else lambda logits: torch.softmax(logits, 1)
    mean = sum(to_probs(member(image).double()) for member in members) / 3
    torch.testing.assert_close(to_probs(Ensemble(members)(image).double()), mean, rtol=1e-5, atol=1e-6)


def test_one_model_alone_keeps_its_logits_to_the_last_bit():
    member, image = make_pointwise(), torch.randn(1, 3, 4, 4)
    assert torch.equal(Ensemble([member])(image), member(image))


def test_sizes_suit_every_member():
    members = [make_pointwise(), make_tiny()]
    members[0].size_multiple, members[0].size_least = 12, 40
    members[1].size_multiple = 8
    ensemble = Ensemble(members)
    assert (ensemble.size_multiple, ensemble.size_least) == (24, 40)


@pytest.mark.parametrize(
    ("card", "what"),
    [
        (make_card(make_spec(4)), "classes"),
        (make_card(make_spec(3, "multilabel")), "task"),
        (make_card(make_spec(3).replace(ignore_index=None)), "ignore_index"),
        (make_card(in_channels=1), "in_channels"),
    ],
    ids=["classes", "task", "ignored", "channels"],
)
def test_models_of_other_data_are_refused(card, what):
    other = make_pointwise()
    other.card = card
    with pytest.raises(ConfigError, match=f"`checkpoint` to name models of the same {what}"):
        Ensemble([make_pointwise(), other])


@pytest.mark.parametrize(
    ("counts", "known"),
    [([(1, 2, 3)] * 2, True), ([(1, 2, 3), (1, 2, 4)], False), ([(1, 2, 3), ()], False), ([()], False)],
)
def test_pixels_per_class_are_those_of_all_members_or_not_known(counts, known):
    cards = [replace(make_card(), class_pixels=pixels) for pixels in counts]
    members = [Checkpoint(folder=Path(), card=card, progress={}, sha256="", files={}) for card in cards]
    found = Checkpoints(tuple(members)).class_pixels
    assert (found is not None) == known
    assert found is None or tuple(found) == counts[0]


def test_models_of_others_are_not_averaged():
    with pytest.raises(ConfigError, match="single model"):
        read_checkpoints([Path("model.onnx"), Path("hf:x/y")])
