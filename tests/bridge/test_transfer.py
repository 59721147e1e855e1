import pytest
import torch

from segmeter.bridge.transfer import Rule, packed
from segmeter.errors import InputError

RULE = Rule("here", "tensor", "to be good", "Do it.")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int16, torch.int64])
def test_a_record_tells_count_range_and_first_position(dtype):
    """Bad are the values 5 and 7, at (0, 2) and (1, 1)."""
    values = torch.tensor([[1, 2, 5], [3, 7, -4]]).to(dtype)
    found = packed(values, values, values > 4, values, RULE)
    assert found.record.shape == (6,)
    low, high = (-4.0, 7.0) if dtype.is_floating_point else (-4, 7)
    message = f"here: expected `tensor` to be good, got min {low} and max {high}, 2 bad value(s), "
    with pytest.raises(InputError) as caught:
        found.check(found.record, "x/1")
    assert str(caught.value) == message + "the first at index (0, 2) of case 'x/1'. Do it."


def test_large_integers_are_told_exactly():
    values = torch.full((2, 3), 2**53 + 1)
    found = packed(values, values, values > 0, values, RULE)
    with pytest.raises(InputError, match="min 9007199254740993 and max 9007199254740993"):
        found.check(found.record)
