import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from segmeter.bridge.arrays import to_numpy, to_torch
from segmeter.bridge.host_copier import HostCopier
from segmeter.bridge.transfer import check_device
from segmeter.errors import InputError


def fake():
    with FakeTensorMode():
        return torch.zeros(2)


def nested(layout):
    return lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=layout)


REFUSED = {
    "sparse": (lambda: torch.eye(2).to_sparse(), r"layout torch.sparse_coo of shape \(2, 2\). Pass tensor.to_dense"),
    "nested": (nested(torch.strided), r"a nested tensor. .*unbind"),
    "jagged": (nested(torch.jagged), "a nested tensor"),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
        r"a quantised tensor of shape \(2,\). Pass tensor.dequantize",
    ),
    "meta": (lambda: torch.zeros(2, device="meta"), "a meta tensor .* no values"),
    "fake": (fake, "a FakeTensor .* no values"),
    "list": (lambda: [1, 2], "to be a torch.Tensor, got list"),
    "packed": (
        lambda: torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        r"got torch\.float4_e2m1fn_x2\. Packed sub-byte values",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.filterwarnings("ignore:.*quant.*")
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_to_numpy_refuses_what_has_no_dense_values(make, message):
    with pytest.raises(InputError, match=message):
        to_numpy(make())


def test_to_numpy_refuses_tensors_inside_a_transform():
    with pytest.raises(InputError, match=r"inside a torch.func transform of shape \(2,\). Return it from vmap"):
        torch.vmap(lambda row: torch.tensor(to_numpy(row)))(torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("count", "build", "device", "message"),
    [
        (0, "13.2", "cuda", "'cuda', with 0 GPUs found.* is built for CUDA 13.2 but sees no GPU"),
        (0, None, "cuda:1", "is built without CUDA: install a CUDA build, or set device=cpu"),
        (2, "13.2", "cuda:2", "got 'cuda:2', with 2 GPUs found. Use cuda:0 to cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_the_reason(monkeypatch, count, build, device, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", None)
    asked = [
        lambda: check_device("here", device),
        lambda: to_torch(torch.zeros(2).numpy(), device=device),
        lambda: HostCopier(device=device),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=message):
            ask()
    if count:
        assert check_device("here", "cuda:1") == torch.device("cuda:1")
