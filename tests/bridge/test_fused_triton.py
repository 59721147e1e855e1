"""The fused kernels: their logic under Triton's interpreter here, and compiled for a GPU where there is one."""

import importlib

import pytest
import torch

from segmeter.bridge import argmax
from tests.bridge import decode_fuzz, fused_grid
from tests.fuzzing import record, rounds
from tests.interpreted import interpreted

COMPARISONS = 6 * 3 * 6 + 6 * 4 + 1 + 1


def test_the_kernels_agree_with_numpy_under_the_interpreter():
    """Labels, counts of NaN and infinity, first place, min and max. Mutations seen to fail: `p` not advanced; 32 bits
    for the place of a channel; the padding of a tile taken into its min; NaN not counted; negative numbers not turned
    round in their order.
    """
    assert interpreted("tests.bridge.fused_grid", "cpu") == COMPARISONS


@pytest.mark.fuzz
def test_any_view_and_type_is_decoded_as_by_numpy():
    """Mutations seen to fail: any one stride of the logits; labels stored by the logits' strides."""
    count = rounds(60, 600)
    found = interpreted("tests.bridge.decode_fuzz", "cpu", count, 0)
    assert found["compared"] == {"triton": count, "cpu": count}
    record("decode_kernels", **found)


@pytest.mark.parametrize("name", ["argmax_labels", "threshold_labels"])
@pytest.mark.parametrize("logits", ["*fp32", "*bf16"])
def test_the_kernels_compile_for_a_gpu_that_is_not_here(name, logits):
    triton = pytest.importorskip("triton", reason="torch brings no Triton on this system")
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernel = getattr(importlib.import_module("segmeter.bridge._fused_triton"), name)
    blocks = {"BLOCK_P": 64, "BLOCK_K": 32, "BLOCK": argmax.TILE}
    constants = {argument: value for argument, value in blocks.items() if argument in kernel.arg_names}
    types = {
        "logits": logits,
        "labels": "*u8",
        "record": "*i64",
        "level": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }
    signature = {argument: types.get(argument, "i32") for argument in kernel.arg_names}
    source = compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert triton.compile(source, target=target, options=argmax.OPTIONS).asm["cubin"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine shows none")
def test_the_kernels_agree_with_numpy_on_the_gpu():
    assert fused_grid.main("cuda") == COMPARISONS


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine shows none")
def test_any_view_is_decoded_as_by_numpy_on_the_gpu():
    assert decode_fuzz.main("cuda", 200, 0)["compared"] == {"triton": 200}
