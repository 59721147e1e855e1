"""Refuses tensors that have no array and devices that are not available, each with a remedy."""

import torch
from torch import Tensor

from segmeter.bridge.dtypes import NUMPY, WIDENED
from segmeter.checks import expected, shown
from segmeter.errors import InputError


def check_tensor(where: str, argument: str, tensor: object) -> Tensor:
    """Return `tensor` as a plain strided torch.Tensor with values, detached; InputError with a remedy otherwise."""
    if not isinstance(tensor, Tensor):
        given = type(tensor).__name__
        raise InputError(expected(where, argument, "to be a torch.Tensor", given))
    with torch._C.DisableTorchFunctionSubclass():
        refusal = _refusal(tensor)
        if refusal is not None:
            what, remedy = refusal
            shape = "" if tensor.is_nested else f" of shape {tuple(tensor.shape)}"
            given = f"{what}{shape}"
            raise InputError(expected(where, argument, "to be a dense tensor with values", given, remedy))
        if tensor.dtype not in NUMPY and tensor.dtype not in WIDENED:
            rule = "of a dtype that NumPy has or that widens to one"
            remedy = "Packed sub-byte values have no array; unpack them in torch first."
            raise InputError(expected(where, argument, rule, str(tensor.dtype), remedy))
        return tensor.detach()


def _refusal(tensor: Tensor) -> tuple[str, str] | None:
    """What kind of tensor this is and what to do, or None where it is an ordinary one."""
    if tensor.is_nested:
        return "a nested tensor", "Convert its parts one by one (tensor.unbind()) or pad it: to_padded_tensor(0)."
    if tensor.is_quantized:
        return "a quantised tensor", "Pass tensor.dequantize() for values or tensor.int_repr() for the integers."
    if tensor.is_meta:
        return "a meta tensor", "It has a shape but no values: run the model on a real device."
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}", "Pass tensor.to_dense()."
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "a tensor inside a torch.func transform", "Return it from vmap or grad first, then convert it."
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        remedy = "A fake tensor has no values; a distributed one has full_tensor(); others: pass the tensor inside."
        return f"a {type(tensor).__name__}", remedy
    return None


def check_device(where: str, device: str | torch.device) -> torch.device:
    """Return `device`, or raise an InputError that says what is installed and what to do."""
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        rule = 'to be a device such as "cpu" or "cuda:0"'
        raise InputError(expected(where, "device", rule, shown(device))) from error
    if wanted.type != "cuda":
        return wanted
    rule = "to be available"
    if not torch.cuda.is_available():
        raise InputError(expected(where, "device", rule, f"{str(wanted)!r}: {_build()}", 'Or pass device="cpu".'))
    if wanted.index is not None and wanted.index >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(expected(where, "device", rule, f"{str(wanted)!r}: this machine shows {count} device(s)"))
    return wanted


def _build() -> str:
    """Say which torch build is installed and why it shows no CUDA device."""
    name = f"torch {torch.__version__}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{name} is built without CUDA; install a CUDA build of torch"
    kind = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return f"{name} is built for {kind} but finds no device; check the driver (nvidia-smi) and CUDA_VISIBLE_DEVICES"
