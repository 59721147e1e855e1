"""The fused kernels: their logic under Triton's interpreter here, and compiled for a GPU where there is one."""

import importlib
from contextlib import contextmanager
from unittest.mock import MagicMock, Mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from segmeter.bridge import argmax
from tests.bridge import decode_fuzz
from tests.fuzzing import record, rounds
from tests.interpreted import interpreted


def test_the_kernels_agree_with_numpy_under_the_interpreter():
    """Labels, counts of NaN and infinity, first place, min and max. Mutations seen to fail: `p` not advanced; 32 bits
    for the place of a channel; the padding of a tile taken into its min; NaN not counted; negative numbers not turned
    round in their order.
    """
    assert interpreted("tests.bridge.decode_fuzz", "cpu", 30, 1)["compared"] == {"triton": 30, "cpu": 30}


@pytest.mark.fuzz
def test_any_view_and_type_is_decoded_as_by_numpy():
    """Mutations seen to fail: any one stride of the logits; labels stored by the logits' strides."""
    count = rounds(20, 600)
    found = interpreted("tests.bridge.decode_fuzz", "cpu", count, 0)
    assert found["compared"] == {"triton": count, "cpu": count}
    record("decode_kernels", **found)


@pytest.mark.parametrize("logits", ["*fp32", "*bf16"])
def test_the_kernel_compiles_for_a_gpu_that_is_not_here(logits):
    triton = pytest.importorskip("triton", reason="torch brings no Triton on this system")
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernel = importlib.import_module("segmeter.bridge._fused_triton").argmax_labels
    constants = {"BLOCK_P": 64, "BLOCK_K": 32}
    types = {"logits": logits, "labels": "*u8", "record": "*i64", **dict.fromkeys(constants, "constexpr")}
    signature = {argument: types.get(argument, "i32") for argument in kernel.arg_names}
    source = compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert triton.compile(source, target=target, options=argmax.OPTIONS).asm["cubin"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine shows none")
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


@pytest.mark.parametrize(
    ("tiles", "share", "programs"),
    [(3, 1, 3), (1000, 1, 32), (1000, 4, 8), (1000, 100, 1), (0, 1, 1)],
    ids=["a small image", "a large one", "one of four", "one of a hundred", "none"],
)
def test_programs_share_the_processors_among_images(monkeypatch, tiles, share, programs):
    """Four processors, each with eight programs; every image has at least one."""
    monkeypatch.setattr(argmax, "_processors", lambda device: 4)
    assert argmax._programs(torch.device("cpu"), tiles=tiles, share=share) == programs


def test_kernels_run_on_the_device_of_their_logits(monkeypatch):
    """Triton takes the current device, which cuda:1 need not be."""
    calls, kernel = [], MagicMock()
    kernel.__getitem__.return_value = lambda *arguments, **options: calls.append("launch")

    @contextmanager
    def on(tensor):
        calls.append(f"on {tensor.device}")
        yield
        calls.append("left")

    monkeypatch.setattr(torch.cuda, "device_of", on)
    monkeypatch.setattr("segmeter.bridge._fused_triton", Mock(argmax_labels=kernel), raising=False)
    monkeypatch.setattr(argmax, "_processors", lambda device: 4)
    monkeypatch.setattr(argmax, "_blank", lambda device: torch.zeros(6, dtype=torch.int64, device=device))
    with FakeTensorMode():
        logits = torch.empty(2, 3, 40, device="cuda:1")
        argmax.argmax_labels(logits, torch.uint8)
    assert calls == ["on cuda:1", "launch", "left"]
