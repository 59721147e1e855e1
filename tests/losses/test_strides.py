"""Which layouts one stride describes."""

import pytest
import torch

from segmeter.losses.strides import pixel_stride, with_pixel_stride

WHOLE = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5)
LAYOUTS = {
    "contiguous": (WHOLE, 1),
    "channels_last": (WHOLE.contiguous(memory_format=torch.channels_last), 3),
    "every second row of one column": (WHOLE[..., ::2, :1], 10),
    "one pixel": (WHOLE[..., :1, :1], 1),
    "without pixels' axes": (WHOLE[..., 0, 0], 1),
    "one row": (WHOLE[:, :, 1:2], 1),
    "volume": (torch.zeros(1, 2, 3, 4, 5), 1),
    "cropped": (WHOLE[..., 1:4], None),
    "transposed": (WHOLE.transpose(2, 3), None),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_stride_leads_from_pixel_to_pixel_or_there_is_none(name):
    tensor, stride = LAYOUTS[name]
    assert pixel_stride(tensor) == stride
    spaced, found = with_pixel_stride(tensor)
    assert torch.equal(spaced, tensor)
    assert (spaced is tensor) == (stride is not None)
    count = tensor[0, 0].numel()
    lines = spaced.as_strided((*tensor.shape[:2], count), (*spaced.stride()[:2], found))
    assert torch.equal(lines, tensor.reshape(*tensor.shape[:2], count))
