"""A GPU that is not there: its memory is the CPU's, so that code for CUDA runs to its end, and its values are known.

While it is on, every tensor says that it lies on ``cuda:0``, streams and events do nothing, and what would make the
host wait for a device is noted. What is on which device is not told apart; `test_fake_tensors` does that.
"""

import sys
import traceback
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

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
        if func in (torch.Tensor.to, torch.Tensor.cuda) and _names_cuda((*args, *kwargs.values())):
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
        "synchronize": nothing,
        "empty_cache": nothing,
        "mem_get_info": lambda *_: (2**34, 2**35),
        "max_memory_allocated": lambda *_: 2**20,
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": nothing,
        "get_rng_state_all": list,
        "device": lambda *_: nullcontext(),
        "device_of": lambda *_: nullcontext(),
        "stream": lambda *_: nullcontext(),
        "Stream": lambda *_: mock.MagicMock(),
        "Event": _Event,
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


class _Event:
    """Whatever it was recorded after is done at once."""

    def __init__(self, **_):
        pass

    def record(self, *_):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1.0


def _caller():
    """Where in segmeter, or else in the test, a tensor was asked."""
    frames = traceback.extract_stack()[:-2]
    inside = [frame for frame in frames if "/segmeter/" in frame.filename] or frames
    return f"{Path(inside[-1].filename).name}, {inside[-1].name}"


def _names_cuda(values):
    return any(_is_cuda(value) for value in values)


def _is_cuda(value):
    return (isinstance(value, torch.device) and value.type == "cuda") or (
        isinstance(value, str) and value.split(":")[0] == "cuda"
    )


def _on_cpu(values):
    """The same arguments, with the CPU for CUDA."""
    if isinstance(values, dict):
        return {key: _on_cpu(value) for key, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_on_cpu(value) for value in values)
    return torch.device("cpu") if _is_cuda(values) else values
