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


def quantised():
    return torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8)


REFUSED = {
    "sparse": (lambda: torch.eye(2).to_sparse(), r"layout torch.sparse_coo of shape \(2, 2\). Pass tensor.to_dense"),
    "nested": (lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)]), r"a nested tensor. .*unbind"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged),
        "a nested tensor",
    ),
    "quantised": (quantised, r"a quantised tensor of shape \(2,\). Pass tensor.dequantize"),
    "meta": (lambda: torch.zeros(2, device="meta"), "a meta tensor .* no values"),
    "fake": (fake, "a FakeTensor .* no values"),
    "list": (lambda: [1, 2], "to be a torch.Tensor, got list"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.filterwarnings("ignore:.*quant.*")
@pytest.mark.parametrize("kind", REFUSED)
def test_to_numpy_refuses_what_has_no_dense_values(kind):
    """Mutation seen to fail: each line of _refusal taken out."""
    make, message = REFUSED[kind]
    with pytest.raises(InputError, match=message):
        to_numpy(make())


def test_to_numpy_refuses_tensors_inside_a_transform():
    """Mutation seen to fail: a wrapped tensor is taken."""
    with pytest.raises(InputError, match=r"inside a torch.func transform of shape \(2,\). Return it from vmap"):
        torch.vmap(lambda row: torch.tensor(to_numpy(row)))(torch.zeros(3, 2))


def test_to_numpy_says_what_to_do_with_packed_dtypes():
    """Mutation seen to fail: packed bytes are taken."""
    packed = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(InputError, match=r"got torch\.float4_e2m1fn_x2\. Packed sub-byte values"):
        to_numpy(packed)


def ask_for(device):
    return [lambda: to_torch(torch.zeros(2).numpy(), device=device), lambda: HostCopier(device=device)]


@pytest.mark.parametrize("call", [0, 1])
def test_asking_for_cuda_where_there_is_none_names_the_build(monkeypatch, call):
    """Mutation seen to fail: check_device without its look at torch.cuda.is_available."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    with pytest.raises(InputError, match=r"'cuda', with 0 GPUs found.* is built for CUDA 13.2 but sees no GPU"):
        ask_for("cuda")[call]()


def test_asking_for_cuda_of_a_cpu_build_says_to_install_another(monkeypatch):
    """Mutation seen to fail: the build is not told."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(InputError, match=r"is built without CUDA: install a CUDA build, or set device=cpu"):
        check_device("here", "cuda:1")


def test_asking_for_a_device_that_the_machine_lacks_says_how_many_there_are(monkeypatch):
    """Mutation seen to fail: one device too many."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_device("here", "cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match=r"got 'cuda:2', with 2 GPUs found. Use cuda:0 to cuda:1"):
        check_device("here", "cuda:2")
