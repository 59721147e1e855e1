"""Replaces layers of the library's networks in place: batch norms by other norms, U-Net blocks by faster ones.

Replacements keep the names and weights of the layers that they replace, so checkpoints fit either way.
"""

from typing import Any

import torch
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock
from timm.layers.norm_act import BatchNormAct2d, GroupNormAct, convert_sync_batchnorm
from torch import Tensor, nn
from torch.nn import functional

from segmeter.models.config import Normalisation

MOST_GROUPS = 32  # Wu and He 2018, arXiv:1803.08494
LEAST_CHANNELS = 4  # A group has at least this many channels, unless the layer has fewer

# Along one axis, the transposed convolution's filter has 4 values; each row says which of the 3 taps a value sums
_SUMS = torch.tensor([[0.0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]])
_TAPS = torch.kron(_SUMS, _SUMS).T.contiguous()  # (9, 16), both axes


def replace_norms(network: nn.Module, kind: Normalisation) -> nn.Module:
    """Turn every batch norm of a network into another kind of normalisation.

    Gain and bias are kept, pretrained or not. "group" and "instance" drop the running statistics, as they compute
    statistics for each image.

    Parameters
    ----------
    network
        Changed in place.
    kind
        "batch" changes nothing. "sync" takes the statistics over all processes of a training, "group" over groups of
        channels of one image, see `count_groups`, and "instance" over each channel of one image.
    """
    if kind == "sync":
        converted: nn.Module = convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        return converted.train(network.training)
    if kind != "batch":
        for parent in list(network.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(parent, name, _per_image(child, kind))
    return network


def count_groups(channels: int) -> int:
    """Return the largest divisor of `channels` up to 32 that leaves four channels or more in each group; else 1.

    Examples
    --------
    >>> [count_groups(channels) for channels in (3, 16, 64, 256, 200)]
    [1, 4, 16, 32, 25]
    """
    most = max(1, min(MOST_GROUPS, channels // LEAST_CHANNELS))
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)


def _per_image(norm: nn.BatchNorm2d, kind: Normalisation) -> nn.GroupNorm:
    channels = norm.num_features
    groups = channels if kind == "instance" else count_groups(channels)
    device = getattr(norm.weight, "device", None)
    if isinstance(norm, BatchNormAct2d):  # timm's layer that includes an activation
        per_image: nn.GroupNorm = GroupNormAct(channels, groups, eps=norm.eps, affine=norm.affine, device=device)
        per_image.drop = norm.drop
        per_image.act = norm.act
    else:
        per_image = nn.GroupNorm(groups, channels, eps=norm.eps, affine=norm.affine, device=device)
    if norm.affine:
        per_image.weight = norm.weight
        per_image.bias = norm.bias
    return per_image


class FoldedBlock(UnetDecoderBlock):  # type: ignore[misc]
    """A U-Net decoder block that convolves the small map before it is enlarged: the same sums with fewer products.

    A 3 x 3 filter on a map enlarged to twice its size (nearest neighbour) meets only 2 x 2 different values at each
    place. So a transposed convolution of the small map, with stride 2 and 4 x 4 filters that sum the taps meeting the
    same value, gives the same result with 4 products instead of 9, and the enlarged map is never stored. On the CPU
    this saves an eighth of a training step. Other devices, and maps that do not double, take the original way.

    References
    ----------
    Aitken et al. 2017, arXiv:1707.02937, on how the two ways of enlarging relate.
    """

    def forward(
        self, feature_map: Tensor, target_height: int, target_width: int, skip_connection: Tensor | None = None
    ) -> Tensor:
        height, width = feature_map.shape[-2:]
        twice = (target_height, target_width) == (2 * height, 2 * width)
        if feature_map.device.type != "cpu" or not twice or torch.compiler.is_compiling():
            original: Tensor = super().forward(feature_map, target_height, target_width, skip_connection)
            return original
        convolution, *rest = self.conv1
        features = convolve_enlarged(feature_map, convolution.weight, skip_connection)
        for module in (*rest, self.conv2, self.attention2):
            features = module(features)
        return features


def fold_upsampling(network: nn.Module) -> None:
    """Replace, in place, the U-Net decoder blocks whose first convolution can be folded with the upsampling.

    These enlarge by nearest neighbour and convolve at once, 3 x 3, without a bias.
    """
    blocks: list[Any] = [module for module in network.modules() if type(module) is UnetDecoderBlock]
    for block in blocks:
        first = block.conv1[0]
        plain = isinstance(first, nn.Conv2d) and first.bias is None and first.kernel_size == (3, 3)
        if plain and block.interpolation_mode == "nearest" and isinstance(block.attention1.attention, nn.Identity):
            block.__class__ = FoldedBlock  # the same modules, run in another way


def convolve_enlarged(small: Tensor, weight: Tensor, skip: Tensor | None) -> Tensor:
    """Convolve the concatenation of `small`, enlarged to twice its size, and `skip`.

    Parameters
    ----------
    small : (B, C, H, W), floating
        Enlarged by nearest neighbour.
    weight : (O, C + S, 3, 3), floating
        The weights of a convolution with stride 1 and zero padding 1; its first C channels belong to `small`.
    skip : (B, S, 2 H, 2 W), or None
        In the final size. S may be 0: some encoders have no map of half the image's size.

    Returns
    -------
    (B, O, 2 H, 2 W)
    """
    small_weight, skip_weight = weight.tensor_split([small.shape[1]], dim=1)
    with torch.autocast(weight.device.type, enabled=False):  # taps are summed in the weights' dtype
        sums = small_weight.transpose(0, 1).reshape(-1, 9) @ _TAPS.to(small_weight)
    filters = sums.view(small_weight.shape[1], small_weight.shape[0], 4, 4)
    large = functional.conv_transpose2d(small, filters, stride=2, padding=1)
    return large if skip is None or not skip.shape[1] else large.add_(functional.conv2d(skip, skip_weight, padding=1))
