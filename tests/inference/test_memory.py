"""The plan of memory: what a pass holds at once, what is free, and the batches that follow from both."""

import pytest
import torch

from segmeter.errors import RunError
from segmeter.inference import memory
from segmeter.inference.config import InferenceConfig
from segmeter.inference.memory import MemoryPlan, free_memory, plan_memory
from segmeter.inference.predictor import Predictor
from tests.inference.test_predictor import Greedy, images, predictor, stub

CPU = torch.device("cpu")


def test_what_is_alive_at_once_is_counted_and_not_what_is_dropped():
    def forward(image):
        first = image.float()  # 4 bytes for each of 3 channels
        second = first + 1  # and as many
        del first
        return second * 2  # while this is made, two are alive

    plan = plan_memory(forward, channels=3, device=CPU)
    assert plan.bytes_per_pixel == pytest.approx(1.2 * 24)


def test_memory_is_free_where_the_system_says_so():
    free = free_memory(CPU)
    assert free is None or 2**20 < free < 2**45


def test_a_cpu_has_what_the_process_may_take(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 1234)
    assert free_memory(CPU) == 1234


def test_as_many_run_at_once_as_fit():
    plan = MemoryPlan(bytes_per_pixel=100.0, budget=1_000_000)
    assert [plan.most(50, 40, tile=None), plan.most(100, 100, tile=100), plan.most(1, 1, tile=None)] == [5, 1, 10_000]


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (None, r"one image of 600 x 500. Set inference.tile=256 and .* It needs about 0.0 GB of the 0.0 GB"),
        (512, r"one tile of 600 x 500. Set inference.tile below 512"),
    ],
)
def test_what_can_not_fit_is_refused_before_it_is_run(tile, message):
    with pytest.raises(RunError, match=message):
        MemoryPlan(bytes_per_pixel=100.0, budget=1_000_000).most(600, 500, tile=tile)


def test_batches_are_bounded_and_the_results_the_same():
    network, arrays = Greedy(batch=100), images(5)
    run = predictor(stub(network), batch_size=4)
    run.plan_memory({"bytes_per_pixel": 10.0, "budget": 10 * 2 * 40 * 50})
    assert torch.equal(run.logits(arrays), predictor(stub(lambda image: image), batch_size=4).logits(arrays))
    assert [shape[0] for shape in network.seen] == [2, 2, 1]


def test_a_plan_is_taken_over_as_it_was():
    run = Predictor(stub(lambda image: image), InferenceConfig(precision="float32"), CPU)
    chosen = run.plan_memory()
    assert chosen is None or predictor(stub(lambda image: image)).plan_memory(chosen) == chosen
