import math
import sys

import pytest
import torch

from segmeter.bridge.arrays import read_scalars
from segmeter.errors import InputError


def test_read_scalars_reads_every_kind_exactly():
    """Mutation seen to fail: floats stacked as float32."""
    given = [torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.5).bfloat16(), torch.tensor(-3), torch.tensor(True)]
    assert read_scalars(given) == [0.1, 0.5, -3.0, 1.0]
    assert read_scalars([]) == []


def test_read_scalars_reads_nan_infinity_and_what_has_a_gradient():
    """Mutation seen to fail: NaN is read as 0."""
    loss = torch.tensor(2.0, requires_grad=True) * 2
    values = read_scalars([torch.tensor(math.nan), torch.tensor(-math.inf), loss])
    assert math.isnan(values[0])
    assert values[1:] == [-math.inf, 4.0]


def test_read_scalars_crosses_once(monkeypatch):
    """Mutation seen to fail: one to_numpy per scalar."""
    crossings = []
    module = sys.modules[read_scalars.__module__]  # the package has a function of the module's name
    real = module.to_numpy
    monkeypatch.setattr(module, "to_numpy", lambda tensor: crossings.append(tensor.shape) or real(tensor))
    assert read_scalars([torch.tensor(float(n)) for n in range(5)]) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert crossings == [(5,)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([torch.tensor(1.0), torch.ones(1)], r"of shape \(1,\) on cpu at position 1"),
        ([torch.tensor(1j)], "real and 0-d"),
        ([torch.tensor(1.0), torch.tensor(1.0, device="meta")], "on one device"),
    ],
)
def test_read_scalars_refuses_what_is_no_number_for_a_float(given, message):
    with pytest.raises(InputError, match=message):
        read_scalars(given)
