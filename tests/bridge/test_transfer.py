"""Fetching a packed tensor: the values, the dtype that arrives, and the record of its checks."""

import numpy as np
import pytest
import torch

from segmeter.bridge.device_check import Rule, measure
from segmeter.bridge.transfer import Transfer, fetch, read_only
from segmeter.errors import InputError


def make_transfer(payload, *, arrives=None, bad=None):
    rule = Rule(where="test", argument="tensor", text="to be good", remedy="", shape=(3,), values=torch.int64)
    record = None if bad is None else measure(torch.tensor(bad), torch.arange(3), torch.arange(3))
    return Transfer(payload=payload, arrives=arrives or payload.dtype, record=record, rule=rule, private=False)


def test_the_size_is_that_of_what_crosses():
    assert make_transfer(torch.zeros(2, 3, dtype=torch.bfloat16), arrives=torch.float32).nbytes == 12


def test_a_dtype_that_numpy_lacks_is_widened_on_the_host():
    payload = torch.tensor([1.0, 0.1], dtype=torch.bfloat16)
    found = fetch(make_transfer(payload, arrives=torch.float32))
    assert found.dtype == torch.float32
    assert found.tolist() == [1.0, 0.10009765625]  # 0.1 in 8 bits


def test_the_values_are_written_to_the_memory_that_is_given():
    out = torch.zeros(3, dtype=torch.int64)
    assert fetch(make_transfer(torch.arange(3)), out=out) is out
    assert out.tolist() == [0, 1, 2]


def test_a_bad_value_is_an_error_with_its_place():
    with pytest.raises(InputError, match=r"`tensor` to be good, got min 0 and max 2, 1 bad .*at index \(1,\)"):
        fetch(make_transfer(torch.arange(3), bad=[False, True, False]))
    assert fetch(make_transfer(torch.arange(3), bad=[False] * 3)).tolist() == [0, 1, 2]


def test_read_only_is_the_same_array():
    array = np.zeros(2)
    assert read_only(array) is array
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
