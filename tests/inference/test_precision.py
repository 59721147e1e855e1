import pytest
import torch

from segmeter.errors import ConfigError
from segmeter.inference.device import autocast, has_bfloat16, pick_dtype, training_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("capable", "dtype"),
    [({}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16), ({"amx_bf16": True}, torch.bfloat16)],
    ids=str,
)
def test_auto_on_a_cpu_is_bfloat16_only_where_it_computes_in_it(monkeypatch, capable, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False} | capable)
    assert pick_dtype(CPU, "auto") == dtype
    assert has_bfloat16(CPU) == (dtype is torch.bfloat16)


@pytest.mark.parametrize(
    ("cpu", "amx", "asked", "taken"),
    [
        ("Intel Xeon", False, "auto", "float32"),
        ("Intel Xeon", True, "auto", "auto"),
        ("AMD EPYC", False, "auto", "auto"),
        ("Intel Xeon", False, "bfloat16", "bfloat16"),
    ],
)
def test_training_is_in_float32_where_bfloat16_is_slower(monkeypatch, cpu, amx, asked, taken):
    """Mutation seen to fail: each of the three conditions left out."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": cpu, "amx_bf16": amx, "avx512_bf16": True})
    assert training_precision(CPU, asked) == taken
    assert training_precision(GPU, asked) == asked


@pytest.mark.parametrize(("native", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_on_a_gpu_is_bfloat16_or_float16(monkeypatch, native, dtype):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert pick_dtype(GPU, "auto") == dtype


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_convolution_computes_in_the_precision(precision, dtype):
    layer = torch.nn.Conv2d(1, 1, 1)
    with autocast(CPU, precision):
        assert layer(torch.zeros(1, 1, 2, 2)).dtype == dtype
    assert layer(torch.zeros(1, 1, 2, 2)).dtype == torch.float32


def test_float16_on_a_cpu_is_refused():
    with pytest.raises(ConfigError, match=r"expected `precision` that cpu computes in, got 'float16'. Use bfloat16"):
        autocast(CPU, "float16")


def tf32():
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_float32_on_a_gpu_is_not_tf32():
    """cuDNN convolves float32 in TF32 unless told not to. Mutation seen to fail: nullcontext for every device."""
    before = tf32()
    with autocast(GPU, "float32"):
        assert tf32() == (False, False)
    assert tf32() == before == (True, False)
    with autocast(CPU, "float32"):
        assert tf32() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine shows none")
def test_a_float32_convolution_on_a_gpu_is_that_of_the_cpu():
    rng = torch.Generator().manual_seed(0)
    image, weight = torch.randn(2, 64, 32, 32, generator=rng), torch.randn(64, 64, 3, 3, generator=rng)
    exact = torch.nn.functional.conv2d(image.double(), weight.double())
    with autocast(torch.device("cuda"), "float32"):
        found = torch.nn.functional.conv2d(image.cuda(), weight.cuda()).cpu()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
