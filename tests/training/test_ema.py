import copy

import torch
from torch import nn

from segmeter.training.learner import Average
from tests.training.tiny import TinyNetwork


def test_average_by_hand():
    model, average = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    nn.init.constant_(average.weight, 1.0)
    ema = Average(average, model, decay=0.15)
    nn.init.constant_(model.weight, 3.0)
    ema.update()  # decay (1 + 0) / (10 + 0) = 0.1: 0.1 * 1 + 0.9 * 3
    assert average.weight.item() == torch.tensor(2.8).item()
    ema.update()  # (1 + 1) / (10 + 1) = 0.18 > 0.15: 0.15 * 2.8 + 0.85 * 3
    torch.testing.assert_close(average.weight.item(), 2.97, rtol=1e-6, atol=0)
    assert ema.updates == 2


def test_average_covers_statistics_and_copies_counters():
    torch.manual_seed(0)
    model = TinyNetwork()
    average = copy.deepcopy(model)
    ema = Average(average, model, decay=0.5)
    model.train()(torch.randn(2, 3, 4, 4) + 5)
    ema.update()
    norm, averaged = model.layers[1], average.layers[1]
    torch.testing.assert_close(averaged.running_mean, 0.9 * norm.running_mean)
    assert averaged.num_batches_tracked == norm.num_batches_tracked == 1
    assert not torch.equal(averaged.running_mean, torch.zeros(8))
