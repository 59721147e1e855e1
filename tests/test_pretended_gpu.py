"""The code for CUDA runs to its end, with the values of the CPU, and waits for the device only where it may."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from segmeter.bridge.host_copier import Uploader
from segmeter.data.sample import Sample
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.losses.focal import FocalLoss
from segmeter.training.data.augment import Augment
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.batches import Batches
from segmeter.training.data.sampling import SampleSource
from segmeter.training.trainer import train
from tests.models.parts import make_tiny
from tests.pretended_gpu import pretended_gpu
from tests.training.tiny import SPEC, TinyCases, changed, tiny_job, tiny_segmenter

AUGMENTS = AugmentConfig(crop=(32, 32), zoom=(0.5, 2.0), rotate=10, blur=1.0, noise=0.1)


def predictions(device, **values):
    rng = np.random.default_rng(0)
    shape, classes = (96, 112), 3
    samples = [
        Sample(
            case_id=str(number),
            image=rng.integers(0, 256, (*shape, 3), np.uint8),
            target=rng.integers(0, classes, shape).astype(np.uint16),
        )
        for number in range(5)
    ]
    predictor = Predictor(make_tiny(), InferenceConfig(batch_size=2, **values), torch.device(device))
    return list(predictor.predict(samples, probs=True, loss=FocalLoss("multiclass", ignore_index=255)))


@pytest.mark.parametrize("values", [{}, {"tile": 64, "tile_batch": 2}, {"flips": True}], ids=str)
def test_predictions_are_those_of_the_cpu_and_nothing_waits(values):
    """Mutations seen to fail: weights of tiles, and targets of bands, copied as they are."""
    expected = predictions("cpu", precision="float32", **values)
    with pretended_gpu() as gpu:
        found = predictions("cuda", precision="float32", **values)
    assert gpu.waits == []
    assert np.mean([ours.labels == theirs.labels for ours, theirs in zip(found, expected, strict=True)]) > 0.9999
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.probs, theirs.probs, atol=1e-5)
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-5)


def test_uploads_pass_through_pinned_memory():
    with pretended_gpu() as gpu:
        upload = Uploader("cuda")
        tensors = [upload([np.full((2, 3), number, np.int16)] * (1 + number % 2)) for number in range(6)]
    assert [tensor.unique().tolist() for tensor in tensors] == [[number] for number in range(6)]
    assert gpu.waits == []


def batches_on(device, *, defer):
    cases = TinyCases(size=48)
    source = SampleSource(cases, AUGMENTS, batch_size=4, seed=0, defer=defer)
    draw = partial(Augment(AUGMENTS, SPEC).draw, seed=0)
    with Batches(source, first=0, progress=lambda _: 1.0, workers=0, device=torch.device(device), draw=draw) as batches:
        return [batches.take() for _ in range(3)]


def test_batches_arrive_with_their_tables_and_nothing_waits():
    expected = batches_on("cpu", defer=True)
    with pretended_gpu() as gpu:
        found = batches_on("cuda", defer=True)
    assert gpu.waits == []
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.resizing == theirs.resizing is not None
        pairs = (ours.image, theirs.image), (ours.target, theirs.target), (ours.draws.table, theirs.draws.table)
        for left, right in pairs:
            assert torch.equal(left, right)
            assert left.stride() == right.stride()


def trained(folder, device, **values):
    cases = TinyCases(size=48)
    job = tiny_job(
        folder,
        cases=cases,
        source=SampleSource(cases, AUGMENTS, batch_size=4, seed=0, defer=True),
        segmenter=tiny_segmenter(),
        augment=Augment(AUGMENTS, SPEC),
        **values,
    )
    return train(changed(job, device=device, loss=FocalLoss("multiclass", ignore_index=255)))


def test_a_training_ends_with_the_weights_of_the_cpu_and_waits_at_lines_and_saves_alone(tmp_path):
    """A line of the log, a validation and a save are where it may wait. Mutation seen to fail: loss.item() per step."""
    values = {"steps": 6, "epochs": None, "ema": 0.9, "clip_norm": 1.0, "log_every": 100, "validate_every": None}
    trained(tmp_path / "cpu", "cpu", **values)
    with pretended_gpu() as gpu:
        trained(tmp_path / "cuda", "cuda", **values)
    assert gpu.waits == []
    ours, theirs = (weights_of(tmp_path / device) for device in ("cuda", "cpu"))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)


def weights_of(folder: Path):
    from safetensors.torch import load_file

    return load_file(folder / "checkpoints" / "last" / "model.safetensors")
