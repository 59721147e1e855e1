"""U-Net decoder blocks -> the same sums with fewer products: an upsampled map is convolved before it is enlarged.

A 3 x 3 filter on a map enlarged to twice its size (nearest neighbour) meets only 2 x 2 different values at each place.
So a transposed convolution of the small map, with stride 2 and the 4 x 4 filters that sum the taps meeting the same
value, gives the same result with 4 products where there were 9. The enlarged map and its concatenation with the skip
connection are never made. Aitken et al. 2017, arXiv:1707.02937, discuss how the two ways of enlarging relate.
"""

import torch
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock
from torch import Tensor, nn
from torch.nn import functional

# Along one axis: which of the 3 taps each of the 4 values of the transposed convolution's filter sums
_SUMS = torch.tensor([[0.0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]])
_TAPS = torch.kron(_SUMS, _SUMS).T.contiguous()  # (9, 16), both axes


class FoldedBlock(UnetDecoderBlock):  # type: ignore[misc]
    """A decoder block with the modules, and so the weights by name, of the block that it replaces.

    On the CPU it computes the first convolution in the way above; elsewhere, and where the map does not grow to
    exactly twice its size, as the original does.
    """

    def __init__(self, block: UnetDecoderBlock) -> None:
        nn.Module.__init__(self)  # the modules exist already
        self.interpolation_mode = block.interpolation_mode
        self.conv1, self.attention1 = block.conv1, block.attention1
        self.conv2, self.attention2 = block.conv2, block.attention2

    def forward(
        self, feature_map: Tensor, target_height: int, target_width: int, skip_connection: Tensor | None = None
    ) -> Tensor:
        height, width = feature_map.shape[-2:]
        twice = (target_height, target_width) == (2 * height, 2 * width)
        if feature_map.device.type != "cpu" or not twice or torch.compiler.is_compiling():
            whole: Tensor = super().forward(feature_map, target_height, target_width, skip_connection)
            return whole
        convolution, *rest = self.conv1
        found = convolve_enlarged(feature_map, convolution.weight, skip_connection)
        for module in (*rest, self.conv2, self.attention2):
            found = module(found)
        return found


def fold_upsampling(network: nn.Module) -> None:
    """Replace, in place, the U-Net decoder blocks for which the folded computation gives the same function."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is UnetDecoderBlock and _can_fold(child):
                setattr(parent, name, FoldedBlock(child))


def convolve_enlarged(small: Tensor, weight: Tensor, skip: Tensor | None) -> Tensor:
    """Convolve the concatenation of `small`, enlarged to twice its size, and `skip`.

    Parameters
    ----------
    small : (B, C, H, W), floating
        Enlarged by nearest neighbour.
    weight : (O, C + S, 3, 3), floating
        Of a convolution with stride 1 and zero padding 1; its first C channels belong to `small`.
    skip : (B, S, 2 H, 2 W), or None
        In the final size. S may be 0: some encoders have no map of half the image's size.

    Returns
    -------
    (B, O, 2 H, 2 W)
    """
    ours, theirs = weight.tensor_split([small.shape[1]], dim=1)
    large = functional.conv_transpose2d(small, sum_taps(ours), stride=2, padding=1)
    return large if skip is None or not skip.shape[1] else large.add_(functional.conv2d(skip, theirs, padding=1))


def sum_taps(weight: Tensor) -> Tensor:
    """Filters (O, C, 3, 3) of the large map -> those (C, O, 4, 4) of the small one, summed in the weights' dtype."""
    with torch.autocast(weight.device.type, enabled=False):
        sums = weight.transpose(0, 1).reshape(-1, 9) @ _TAPS.to(weight)
    return sums.view(weight.shape[1], weight.shape[0], 4, 4)


def _can_fold(block: UnetDecoderBlock) -> bool:
    """Whether the block enlarges by nearest neighbour and convolves at once, 3 x 3, without a bias."""
    first, attention = block.conv1[0], block.attention1.attention
    plain = isinstance(first, nn.Conv2d) and first.bias is None and first.kernel_size == (3, 3)
    return plain and block.interpolation_mode == "nearest" and isinstance(attention, nn.Identity)
