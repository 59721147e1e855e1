"""The focal loss's options as an operator's arguments, and the summed weight of its elements."""

import pytest
import torch

from segmeter.losses.focal.params import FocalParams, summed_weight
from segmeter.losses.targets import Labels


@pytest.mark.parametrize(
    "terms", [FocalParams(softmax=True, gamma=1.0, ignore_index=0), FocalParams(softmax=False, gamma=0.5)]
)
def test_terms_survive_being_an_operators_arguments(terms):
    assert FocalParams.unpack(terms.numbers(), terms.flags()) == terms


def test_the_summed_weight_is_that_of_the_counted_elements_only():
    classes, counted = torch.tensor([[0, 1, 2, 2]]), torch.tensor([[True, True, True, False]])
    labels = Labels(classes, counted, torch.zeros_like(counted))
    weights = torch.tensor([0.5, 2.0, 4.0])
    assert summed_weight(labels, weights, soft=False, dtype=torch.float64) == 0.5 + 2 + 4
    assert summed_weight(labels, None, soft=False, dtype=torch.float32) == 3
    assert summed_weight(labels, weights, soft=True, dtype=torch.float32) == 3  # its classes are shares, not labels
