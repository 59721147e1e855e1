"""The code for CUDA runs to its end, with the values of the CPU, and waits for the device only where it may.

It runs on a GPU that is not there: its memory is the CPU's. While it is on, every tensor says that it lies on
``cuda:0``, streams and events do nothing, and what would make the host wait for a device is noted.
"""

import sys
import traceback
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode

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
from tests.training.tiny import SPEC, TinyCases, changed, tiny_job, tiny_segmenter

CUDA = torch.device("cuda", 0)
_READS = {torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.tolist, torch.Tensor.cpu, torch.nonzero}


class PretendedGpu(TorchFunctionMode):
    """Takes the CPU wherever CUDA is asked for.

    `waits` has what stops the host until the device is done: values read one by one, and copies to the device that are
    not both pinned and non-blocking.
    """

    def __init__(self):
        super().__init__()
        self.waits = []
        self._pinned = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        asked = getattr(func, "__self__", None)
        if asked in (torch.Tensor.device, torch.Tensor.is_cuda):
            return CUDA if asked is torch.Tensor.device else True
        if func is torch.device:
            return func(*args, **kwargs)
        if func is torch.Tensor.pin_memory or kwargs.pop("pin_memory", False):
            found = args[0].clone() if func is torch.Tensor.pin_memory else func(*args, **_on_cpu(kwargs))
            self._pinned.add(found.untyped_storage().data_ptr())
            return found
        if func in (torch.Tensor.to, torch.Tensor.cuda) and any(map(_is_cuda, (*args, *kwargs.values()))):
            return self._arrive(func, args, kwargs)
        if func in _READS:
            self.waits.append(f"{func.__name__} in {_caller()}")
        return func(*_on_cpu(args), **_on_cpu(kwargs))

    def _arrive(self, func, args, kwargs):
        """A copy, as it has other memory on a GPU."""
        pinned = args[0].untyped_storage().data_ptr() in self._pinned
        by_torch = "/torch/" in sys._getframe(2).f_code.co_filename  # which moves gradients to where they are already
        if not (pinned and kwargs.get("non_blocking")) and not by_torch:
            self.waits.append(f"a copy to the device in {_caller()}")
        copied = args[0].clone()
        return copied if func is torch.Tensor.cuda else copied.to(*_on_cpu(args[1:]), **_on_cpu(kwargs))


def nothing(*_):
    pass


@contextmanager
def pretended_gpu():
    """Turn it on; what is yielded has `waits`."""
    gpu = PretendedGpu()
    stands = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_current_stream_capturing": bool,  # which optimizers of torch 2.11 ask
        "is_bf16_supported": lambda **_: True,
        **dict.fromkeys(("synchronize", "empty_cache", "reset_peak_memory_stats"), nothing),
        "mem_get_info": lambda *_: (2**34, 2**35),
        "max_memory_allocated": lambda *_: 2**20,
        **dict.fromkeys(("memory_allocated", "memory_reserved"), lambda *_: 0),
        "get_rng_state_all": list,
        **dict.fromkeys(("device", "device_of", "stream"), lambda *_: nullcontext()),
        "Stream": lambda *_: mock.MagicMock(),
        "Event": _event,
        "current_stream": mock.MagicMock(),
    }
    with (
        mock.patch.multiple(torch.cuda, **stands),
        mock.patch.object(torch, "Generator", _Generator),
        mock.patch.object(torch.accelerator, "current_stream", return_value=mock.Mock(is_capturing=bool)),
        mock.patch.object(torch.Tensor, "record_stream", nothing),
        mock.patch("segmeter.bridge.argmax.has_triton", bool),
        mock.patch("segmeter.losses.focal.has_triton", bool),
        gpu,
    ):
        yield gpu


class _Generator(torch.Generator):
    def __new__(cls, *_):
        return super().__new__(cls)


def _event(**_):
    """Whatever it was recorded after is done at once."""
    return mock.Mock(**{"query.return_value": True, "elapsed_time.return_value": 1.0})


def _caller():
    """Where in segmeter, or else in the test, a tensor was asked."""
    frames = traceback.extract_stack()[:-2]
    inside = [frame for frame in frames if "/segmeter/" in frame.filename] or frames
    return f"{Path(inside[-1].filename).name}, {inside[-1].name}"


def _is_cuda(value):
    return isinstance(value, torch.device | str) and str(value).split(":")[0] == "cuda"


def _on_cpu(values):
    """The same arguments, with the CPU for CUDA."""
    if isinstance(values, dict):
        return {key: _on_cpu(value) for key, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_on_cpu(value) for value in values)
    return torch.device("cpu") if _is_cuda(values) else values


AUGMENTS = AugmentConfig(crop=(32, 32), zoom=(0.5, 2.0), rotate=10, blur=1.0, noise=0.1)


def predictions(device, **values):
    rng = np.random.default_rng(0)
    image, target = rng.integers(0, 256, (5, 96, 112, 3), np.uint8), rng.integers(0, 3, (5, 96, 112), np.uint16)
    samples = [Sample(case_id=str(number), image=image[number], target=target[number]) for number in range(5)]
    config = InferenceConfig(batch_size=2, precision="float32", **values)
    predictor = Predictor(make_tiny(), config, torch.device(device))
    return list(predictor.predict(samples, probs=True, loss=FocalLoss("multiclass", ignore_index=255)))


@pytest.mark.parametrize("values", [{}, {"tile": 64, "tile_batch": 2}, {"flips": True}], ids=str)
def test_predictions_are_those_of_the_cpu_and_nothing_waits(values):
    """Mutations seen to fail: weights of tiles, and targets of bands, copied as they are."""
    expected = predictions("cpu", **values)
    with pretended_gpu() as gpu:
        found = predictions("cuda", **values)
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


def deferring_source():
    return SampleSource(TinyCases(size=48), AUGMENTS, batch_size=4, seed=0, defer=True)


def batches_on(device):
    given = {"device": torch.device(device), "random_numbers": partial(Augment(AUGMENTS, SPEC).draw, seed=0)}
    with Batches(deferring_source(), first=0, progress=lambda _: 1.0, workers=0, **given) as batches:
        return [batches.next_batch() for _ in range(3)]


def test_batches_arrive_with_their_tables_and_nothing_waits():
    expected = batches_on("cpu")
    with pretended_gpu() as gpu:
        found = batches_on("cuda")
    assert gpu.waits == []
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.resizing == theirs.resizing is not None
        pairs = (
            (ours.image, theirs.image),
            (ours.target, theirs.target),
            (ours.random_numbers.table, theirs.random_numbers.table),
        )
        for left, right in pairs:
            assert torch.equal(left, right)
            assert left.stride() == right.stride()


def train_on(folder, device):
    values = {"steps": 6, "epochs": None, "ema": 0.9, "clip_norm": 1.0, "log_every": 100, "validate_every": None}
    given = {"cases": TinyCases(size=48), "source": deferring_source(), "augment": Augment(AUGMENTS, SPEC)}
    job = tiny_job(folder, segmenter=tiny_segmenter(), **given, **values)
    train(changed(job, device=device, loss=FocalLoss("multiclass", ignore_index=255)))
    return load_file(folder / "checkpoints/last/model.safetensors")


def test_a_training_ends_with_the_weights_of_the_cpu_and_waits_at_lines_and_saves_alone(tmp_path):
    """A line of the log, a validation and a save are where it may wait. Mutation seen to fail: loss.item() per step."""
    theirs = train_on(tmp_path / "cpu", "cpu")
    with pretended_gpu() as gpu:
        ours = train_on(tmp_path / "cuda", "cuda")
    assert gpu.waits == []
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)
