"""What only a CUDA device can show of predictions."""

import numpy as np
import pytest
import torch

from segmeter.data.sample import Sample
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.models.segmenter import build_segmenter
from tests.models.parts import make_card

pytestmark = pytest.mark.gpu


def make_predictor(device, **config):
    torch.manual_seed(0)
    card = make_card(model={"name": "unet", "encoder": "resnet18"})
    return Predictor(build_segmenter(card), InferenceConfig(**config), torch.device(device))


def draw_samples(count, size):
    rng = np.random.default_rng(0)
    return [
        Sample(case_id=str(number), image=rng.integers(0, 256, (size, size, 3), np.uint8), target=None)
        for number in range(count)
    ]


def labels_of(predictor, samples):
    return np.stack([prediction.labels for prediction in predictor.predict(samples)])


def test_labels_in_float32_are_those_of_the_cpu():
    samples = draw_samples(6, 96)
    ours, theirs = (labels_of(make_predictor(device, precision="float32"), samples) for device in ("cuda", "cpu"))
    assert (ours == theirs).mean() >= 0.999


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_agrees_with_float32_nearly_everywhere(precision):
    samples = draw_samples(4, 96)
    half, full = (labels_of(make_predictor("cuda", precision=each), samples) for each in (precision, "float32"))
    assert (half == full).mean() >= 0.97


def test_memory_that_runs_out_halves_the_batch_and_changes_no_label(caplog):
    """Real allocations: the process may take only what a few images need."""
    samples = draw_samples(32, 512)
    expected = labels_of(make_predictor("cuda", batch_size=2, precision="float32"), samples)
    predictor = make_predictor("cuda", batch_size=32, precision="float32")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    labels_of(make_predictor("cuda", batch_size=8, precision="float32"), samples[:8])
    share = torch.cuda.max_memory_allocated() * 1.5 / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        found = labels_of(predictor, samples)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory" in caplog.text
    assert (found == expected).mean() >= 0.9999  # other batch sizes may choose other convolution kernels


def test_nothing_stays_on_the_device_after_a_run():
    predictor, samples = make_predictor("cuda", batch_size=4), draw_samples(12, 128)
    labels_of(predictor, samples)
    before = torch.cuda.memory_allocated()
    labels_of(predictor, samples)
    assert torch.cuda.memory_allocated() <= before


def test_a_network_in_a_cuda_graph_gives_the_same_labels():
    """A replay writes its output to the same memory each time, so a result that is read late would show."""
    predictor, samples = make_predictor("cuda", batch_size=2, precision="float32"), draw_samples(8, 96)
    expected = labels_of(predictor, samples)
    predictor.segmenter.network = torch.compile(predictor.segmenter.network, mode="reduce-overhead")
    assert (labels_of(predictor, samples) == expected).mean() >= 0.999
