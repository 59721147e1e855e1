from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from segmeter.bridge.host_copier import Uploader
from segmeter.errors import InputError


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "bool", ">u2"])
@pytest.mark.parametrize("turn", [lambda x: x, np.flipud, np.asfortranarray], ids=["plain", "flipped", "Fortran"])
def test_arrays_arrive_as_they_are(dtype, turn):
    """Mutation seen to fail: the arrays viewed instead of copied."""
    arrays = [turn(np.arange(number, number + 12).reshape(3, 4).astype(dtype)) for number in range(2)]
    kept = [array.copy() for array in arrays]
    tensor = Uploader("cpu")(arrays)
    arrays[0][:] = 0
    assert tensor.dtype == getattr(torch, np.dtype(dtype).newbyteorder("=").name)
    np.testing.assert_array_equal(tensor.numpy(), np.stack(kept))


def test_every_upload_has_memory_of_its_own():
    upload = Uploader("cpu")
    tensors = [upload([np.full((2, 3), number, np.uint8)]) for number in range(5)]
    assert [int(tensor[0, 0, 0]) for tensor in tensors] == [0, 1, 2, 3, 4]


def test_uploads_run_beside_the_computation_which_waits_for_them_in_their_order(monkeypatch):
    """CUDA's streams are stood in for. Mutations seen to fail: the results turned round; no stream waits."""
    calls, upload = [], Uploader("cpu")
    current = SimpleNamespace(wait_stream=lambda side: calls.append("the computation waits"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "stream", lambda side: nullcontext())
    upload._side = "side"

    def host(name):
        moved = SimpleNamespace(name=name, record_stream=lambda stream: calls.append(f"{name} kept"))
        return SimpleNamespace(to=lambda device, non_blocking: calls.append(f"{name} {non_blocking}") or moved)

    assert [moved.name for moved in upload.move([host("image"), host("target")])] == ["image", "target"]
    assert calls == ["image True", "target True", "the computation waits", "image kept", "target kept"]


@pytest.mark.parametrize(
    ("arrays", "given"),
    [
        ([], "got none"),
        ([np.zeros(2), np.zeros(3)], r"got float64 \(2,\), float64 \(3,\)"),
        ([np.zeros(2), np.zeros(2, np.uint8)], r"got float64 \(2,\), uint8 \(2,\)"),
        ([np.array(["a"])], "got dtype <U1"),
    ],
)
def test_arrays_that_do_not_stack_are_refused(arrays, given):
    with pytest.raises(InputError, match=given):
        Uploader("cpu")(arrays)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine shows none")
def test_uploads_arrive_whole_while_the_device_is_busy():
    """The buffers are filled again while earlier copies and kernels are under way, and memory is freed and reused."""
    upload = Uploader("cuda")
    sums = []
    for number in range(500):
        torch.cuda._sleep(200_000)
        tensor = upload([np.full((256, 256), number % 251, np.uint8)] * (1 + number % 3))
        sums.append((tensor.int().amin(), tensor.int().amax()))
        del tensor
    assert [(int(low), int(high)) for low, high in sums] == [(number % 251,) * 2 for number in range(500)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine shows none")
def test_an_upload_does_not_wait_for_the_device():
    upload = Uploader("cuda")
    upload([np.zeros((512, 512), np.uint8)])
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(500_000_000)
        busy = torch.cuda.Event()
        busy.record()
        upload([np.zeros((512, 512), np.uint8)])
        assert not busy.query(), "the upload returned only after the kernel before it"
    finally:
        torch.cuda.set_sync_debug_mode("default")
