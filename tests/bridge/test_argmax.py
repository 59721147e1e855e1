"""Argmax by compiled loops, and by fused kernels: under Triton's interpreter, and on a GPU where there is one."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from segmeter.bridge import argmax
from segmeter.bridge import argmax as channels
from segmeter.bridge.argmax import winners
from tests.bridge import decode_fuzz
from tests.fuzzing import record, rounds
from tests.interpreted import compiled_for_gpu, interpreted

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def draw(shape, seed=0, dtype=torch.float32):
    """Small integers, so that equal channels are common, zeros of either sign, and the largest numbers of the dtype."""
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-3, 4, shape, generator=rng).to(dtype) * (1 - 2 * torch.randint(2, shape, generator=rng))
    return torch.where(drawn.abs() == 3, drawn.sign() * torch.finfo(dtype).max, drawn)


def channels_last(logits):
    return logits.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.fixture
def compiled(monkeypatch):
    """The compiled loops for any size, in many parts, the last of which is not whole."""
    monkeypatch.setattr(channels, "SMALL", 0)
    monkeypatch.setattr(channels, "ALONE", 0)
    monkeypatch.setattr(channels, "PART", 40)


LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": channels_last,
    "cropped": lambda x: torch.nn.functional.pad(x, (2, 3))[..., 2:-3],
    "cropped channels": lambda x: torch.nn.functional.pad(x, (0, 0, 1, 2))[:, 1:-2],
    "cropped channels_last": lambda x: channels_last(torch.nn.functional.pad(x, (0, 0, 1, 2)))[:, 1:-2],
    "every second": lambda x: x.repeat_interleave(2, dim=2)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
    "one channel everywhere": lambda x: x[:, :1].expand(x.shape),
}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2, 1), (2, 19, 50), (3, 1, 8), (2, 4, 70), (1, 300, 15), (1, 3, 2100)])
def test_winners_are_the_first_of_the_largest(shape, dtype, layout):
    """Mutations seen to fail, in each loop: >= for >; high not set anew per block; crops read on."""
    logits = LAYOUTS[layout](draw(shape, dtype=dtype))
    found, extremes = winners(logits, torch.uint16)
    assert extremes is None
    assert found.dtype == torch.uint16
    np.testing.assert_array_equal(found.numpy(), logits.double().numpy().argmax(1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_few_logits_need_no_compiled_loop(monkeypatch, layout):
    """numba takes a moment to load."""
    monkeypatch.setitem(sys.modules, "segmeter.bridge._argmax_numba", None)
    logits = LAYOUTS[layout](draw((2, 5, 30)))
    found, (lows, highs) = winners(logits, torch.uint8)
    np.testing.assert_array_equal(found.numpy(), logits.numpy().argmax(1))
    np.testing.assert_array_equal(lows.numpy(), logits.numpy().min(1))
    np.testing.assert_array_equal(highs.numpy(), logits.numpy().max(1))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("bad_in_main", [True, False])
def test_every_thread_is_asked_whether_its_parts_were_finite(monkeypatch, bad_in_main):
    """Both threads get a part, as each waits for the other."""
    both = threading.Barrier(2)
    main = threading.get_ident()

    def decode(values, stride, channels, found):
        both.wait(10)
        return (threading.get_ident() == main) != bad_in_main

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr("segmeter.bridge._argmax_numba.along_pixels", decode)
    assert winners(draw((2, 4, 10)), torch.uint8)[1] is not None


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "every second"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("position", [(0, 0, 0), (1, 3, 39), (1, 1, 20), (1, 0, 39)])
def test_winners_give_the_range_where_a_channel_is_not_finite(position, bad, dtype, layout):
    """Mutations seen to fail, in each loop: the first channel not looked at; the others not; only the last part."""
    logits = draw((2, 4, 40), dtype=dtype)
    logits[position] = bad
    logits = LAYOUTS[layout](logits)
    _, extremes = winners(logits, torch.uint8)
    lows, highs = extremes
    suspect = ~(lows.isfinite() & highs.isfinite())
    assert suspect.nonzero().tolist() == [[position[0], position[2]]]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_winners_work_in_inference_mode_and_from_other_threads(monkeypatch, dtype):
    """Inference mode belongs to a thread, and what was made in it can't be written to by torch's operations outside."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    logits = draw((2, 5, 30), dtype=dtype)
    expected = logits.float().numpy().argmax(1)
    with torch.inference_mode():
        np.testing.assert_array_equal(winners(logits.clone(), torch.uint8)[0].numpy(), expected)
    with ThreadPoolExecutor(4) as pool:
        for found, _ in pool.map(lambda _: winners(logits, torch.uint8), range(4)):
            np.testing.assert_array_equal(found.numpy(), expected)


def test_the_kernels_agree_with_numpy_under_the_interpreter():
    """Mutations seen to fail: `p` not advanced; 32 bits for the place of a channel; padding in the min of a tile."""
    assert interpreted("tests.bridge.decode_fuzz", "cpu", 30, 1)["compared"] == {"triton": 30, "cpu": 30}


@pytest.mark.fuzz
def test_any_view_and_type_is_decoded_as_by_numpy():
    count = rounds(20, 600)
    found = interpreted("tests.bridge.decode_fuzz", "cpu", count, 0)
    assert found["compared"] == {"triton": count, "cpu": count}
    record("decode_kernels", **found)


@pytest.mark.parametrize("logits", ["*fp32", "*bf16"])
def test_the_kernel_compiles_for_a_gpu_that_is_not_here(logits):
    types = {"logits": logits, "labels": "*u8", "record": "*i64"}
    constants = {"BLOCK_P": 64, "BLOCK_K": 32}
    assert compiled_for_gpu("segmeter.bridge._fused_triton", "argmax_labels", types, constants, **argmax.OPTIONS)


@pytest.mark.gpu
def test_any_view_is_decoded_as_by_numpy_on_the_gpu():
    assert decode_fuzz.main("cuda", 200, 0)["compared"] == {"triton": 200}


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Logits that say they lie on a GPU, in a process that has Triton."""
    monkeypatch.setattr(argmax, "has_triton", lambda: True)

    class Claimed(torch.Tensor):
        device = torch.device("cuda", 0)

    return lambda *shape, dtype=torch.float32: torch.zeros(shape, dtype=dtype).as_subclass(Claimed)


def test_the_kernel_takes_floats_of_32_bits_and_less_on_cuda_with_triton(on_a_gpu, monkeypatch):
    taken = {torch.float32: True, torch.bfloat16: True, torch.float16: True, torch.float64: False, torch.int32: False}
    assert {dtype: argmax.fused_takes(on_a_gpu(1, 2, 3, dtype=dtype)) for dtype in taken} == taken
    assert argmax.fused_takes(on_a_gpu(1, argmax.MOST_CHANNELS, 3))
    assert not argmax.fused_takes(on_a_gpu(1, argmax.MOST_CHANNELS + 1, 3))
    assert not argmax.fused_takes(on_a_gpu(1, 2, 0))
    for device in ("cpu", "meta"):
        assert not argmax.fused_takes(torch.zeros(1, 2, 3, device=device))
    monkeypatch.setattr(argmax, "has_triton", lambda: False)
    assert not argmax.fused_takes(on_a_gpu(1, 2, 3))


def test_kernels_run_on_the_device_of_their_logits(monkeypatch):
    """Triton takes the current device, which cuda:1 need not be."""
    asked = MagicMock()
    monkeypatch.setattr(torch.cuda, "device_of", asked.on)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Mock(multi_processor_count=4))
    monkeypatch.setattr("segmeter.bridge._fused_triton", Mock(argmax_labels=asked.kernel), raising=False)
    monkeypatch.setattr(argmax, "_blank", lambda device: torch.zeros(6, dtype=torch.int64, device=device))
    with FakeTensorMode():
        argmax.argmax_labels(torch.empty(2, 3, 40, device="cuda:1"), torch.uint8)
    names = ["on", "on().__enter__", "kernel.__getitem__", "kernel.__getitem__()", "on().__exit__"]
    assert list(dict.fromkeys(name for name, *_ in asked.mock_calls)) == names
    assert asked.on.call_args.args[0].device == torch.device("cuda:1")
