import threading

import numpy as np
import pytest
import torch

from segmeter.bridge import channels
from segmeter.bridge.channels import winners


def draw(shape, seed=0, dtype=torch.float32):
    """Small integers, so that equal channels are common."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(channels, "BLOCK", 7)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 2, 1), (2, 19, 50), (3, 1, 8), (2, 4, 7), (1, 300, 15)])
def test_winners_are_the_first_of_the_largest(shape, dtype):
    """Mutations seen to fail: torch.ge for torch.gt; every second block skipped; the high not reset per block."""
    logits = draw(shape, dtype=dtype)
    found, extremes = winners(logits, torch.uint16)
    assert extremes is None
    assert found.dtype == torch.uint16
    np.testing.assert_array_equal(found.numpy(), logits.double().numpy().argmax(1))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_winners_do_not_depend_on_the_number_of_threads(monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    logits = draw((3, 6, 40), seed=threads)
    np.testing.assert_array_equal(winners(logits, torch.uint8)[0].numpy(), logits.numpy().argmax(1))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("position", [(0, 0, 0), (1, 3, 39), (1, 1, 20)])
def test_winners_give_the_range_where_a_channel_is_not_finite(bad, position):
    logits = draw((2, 4, 40))
    logits[position] = bad
    _, extremes = winners(logits, torch.uint8)
    lows, highs = extremes
    suspect = ~(lows.isfinite() & highs.isfinite())
    assert suspect.nonzero().tolist() == [[position[0], position[2]]]


@pytest.mark.usefixtures("small_blocks")
def test_winners_work_in_inference_mode_and_from_other_threads(monkeypatch):
    """Inference mode belongs to a thread. Mutation seen to fail: the workers do not enter it."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    logits = draw((2, 5, 30))
    expected = logits.numpy().argmax(1)
    with torch.inference_mode():
        np.testing.assert_array_equal(winners(logits.clone(), torch.uint8)[0].numpy(), expected)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(winners(logits, torch.uint8)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    for answer in answers:
        np.testing.assert_array_equal(answer.numpy(), expected)
