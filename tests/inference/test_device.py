import subprocess
import sys

import pytest
import torch

from segmeter.errors import ConfigError
from segmeter.inference.device import autocast, is_out_of_memory, pick_device, pick_dtype, pick_training_dtype


def pretend(monkeypatch, *, gpus, apple=False):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)


@pytest.mark.parametrize(
    ("gpus", "apple", "name", "found"),
    [
        *((0, False, "auto", "cpu"), (1, False, "auto", "cuda"), (0, True, "auto", "cpu")),
        *((2, False, "cuda", "cuda"), (2, False, "cuda:0", "cuda:0"), (2, False, "cuda:1", "cuda:1")),
        (0, True, "mps", "mps"),
    ],
)
def test_auto_is_the_gpu_where_there_is_one_and_a_named_one_is_picked(monkeypatch, gpus, apple, name, found):
    pretend(monkeypatch, gpus=gpus, apple=apple)
    assert pick_device(name) == torch.device(found)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:x", "", "mps:0", "CUDA", "cpu\n"])
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match='expected `device` to be "auto", "cpu", "cuda", "cuda:N" or "mps"'):
        pick_device(name)


def test_18_a_gpu_beyond_the_last_says_how_many_there_are(monkeypatch):
    pretend(monkeypatch, gpus=2)
    with pytest.raises(ConfigError, match=r"got 'cuda:9', with 2 GPUs found. Use cuda:0 to cuda:1"):
        pick_device("cuda:9")


def test_an_apple_gpu_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    message = r"`device` to be here, got 'mps'. This torch \(.*\) sees no Apple GPU: set device=cpu"
    with pytest.raises(ConfigError, match=message):
        pick_device("mps")


def probe(code: str) -> list[int]:
    """Run code that prints whether the C library could, and then numbers."""
    head = """
import re, resource, threading, time
from pathlib import Path
from segmeter.inference.device import give_back_freed_memory, keep_freed_memory
def used():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
"""
    done = subprocess.run([sys.executable, "-c", head + code], check=True, capture_output=True, text=True)
    could, *found = done.stdout.split()
    if could != "True":
        pytest.skip("this C library has no mallopt or malloc_trim")
    return [int(each) for each in found]


of_glibc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's, on Linux")
_FAULTS = """
kept = not {keep} or keep_freed_memory()
def touch():
    for _ in range(5):
        bytearray(b"x" * 2**26)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@of_glibc
def test_freed_memory_is_used_again_without_page_faults() -> None:
    (few,), (many,) = (probe(_FAULTS.format(keep=keep)) for keep in (True, False))
    assert few < 200
    assert many > 50 * few  # each 64 MiB is mapped anew


_THREADS = """
kept, before, turn, end, done = keep_freed_memory(), used(), threading.Lock(), threading.Event(), []
def work():
    with turn:
        bytearray(b"x") * 2**25
        done.append(1)
    end.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
while len(done) < len(threads):
    time.sleep(0.001)
end.set()
for thread in threads:
    thread.join()
print(kept, used() - before)
"""


@pytest.mark.slow
@of_glibc
def test_threads_use_what_others_freed() -> None:
    """Of eight threads, each of which takes 32 MiB in its turn, one takes it from the system."""
    (grown,) = probe(_THREADS)
    assert grown < 64


_HOLES = """
keep_freed_memory()
blocks = [bytearray(b"x") * 2**24 for _ in range(16)]
full = used()
del blocks[:-1]
kept = used()
print(give_back_freed_memory(), full - kept, kept - used())
"""


@pytest.mark.slow
@of_glibc
def test_holes_below_a_block_that_stays_are_given_back() -> None:
    """Of 16 blocks of 16 MiB the last one stays: freed, the others are kept, until they are given back."""
    freed, given = probe(_HOLES)
    assert freed < 16
    assert given > 220


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18.1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"), False),
        (RuntimeError("shapes differ"), False),
        (ValueError("can't allocate memory"), False),
    ],
    ids=range(10),
)
def test_only_errors_of_memory_are_recognised(error, expected):
    assert is_out_of_memory(error) == expected


CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("capable", "dtype"),
    [({}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16), ({"amx_bf16": True}, torch.bfloat16)],
    ids=str,
)
def test_auto_on_a_cpu_is_bfloat16_only_where_it_computes_in_it(monkeypatch, capable, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False} | capable)
    assert pick_dtype(CPU, "auto") == dtype


@pytest.mark.parametrize(
    ("cpu", "amx", "asked", "taken"),
    [
        ("Intel Xeon", False, "auto", torch.float32),
        ("Intel Xeon", True, "auto", torch.bfloat16),
        ("AMD EPYC", False, "auto", torch.bfloat16),
        ("Intel Xeon", False, "bfloat16", torch.bfloat16),
    ],
)
def test_training_is_in_float32_where_bfloat16_is_slower(monkeypatch, cpu, amx, asked, taken):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": cpu, "amx_bf16": amx, "avx512_bf16": True})
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert pick_training_dtype(CPU, asked) == taken
    assert pick_training_dtype(GPU, asked) == torch.bfloat16


@pytest.mark.parametrize(("native", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_on_a_gpu_is_bfloat16_or_float16(monkeypatch, native, dtype):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert pick_dtype(GPU, "auto") == dtype


def test_a_convolution_computes_in_the_precision_and_float16_on_a_cpu_is_refused():
    layer = torch.nn.Conv2d(1, 1, 1)
    for dtype in (torch.float32, torch.bfloat16):
        with autocast(CPU, dtype):
            assert layer(torch.zeros(1, 1, 2, 2)).dtype == dtype
        assert layer(torch.zeros(1, 1, 2, 2)).dtype == torch.float32
    with pytest.raises(ConfigError, match=r"expected `precision` that cpu computes in, got 'float16'. Use bfloat16"):
        pick_dtype(CPU, "float16")


def tf32():
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_float32_on_a_gpu_is_not_tf32():
    """cuDNN convolves float32 in TF32 unless told not to."""
    before = tf32()
    with autocast(GPU, torch.float32):
        assert tf32() == (False, False)
    assert tf32() == before == (True, False)
    with autocast(CPU, torch.float32):
        assert tf32() == before


@pytest.mark.gpu
def test_a_float32_convolution_on_a_gpu_is_that_of_the_cpu():
    rng = torch.Generator().manual_seed(0)
    image, weight = torch.randn(2, 64, 32, 32, generator=rng), torch.randn(64, 64, 3, 3, generator=rng)
    exact = torch.nn.functional.conv2d(image.double(), weight.double())
    with autocast(torch.device("cuda"), torch.float32):
        found = torch.nn.functional.conv2d(image.cuda(), weight.cuda()).cpu()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
