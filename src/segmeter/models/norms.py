"""network -> the same network with other normalisation layers, in place, with the names and gains that they had."""

from typing import Any

from timm.layers.norm_act import BatchNormAct2d, GroupNormAct, convert_sync_batchnorm
from torch import nn

from segmeter.models.config import Normalisation

MOST_GROUPS = 32  # Wu and He 2018, arXiv:1803.08494
LEAST_CHANNELS = 4  # of a group, where the layer has as many


def replace_norms(network: nn.Module, kind: Normalisation) -> nn.Module:
    """Turn every batch norm of a network into another kind of normalisation.

    Gain and bias are kept, so those of pretrained weights are; running statistics are dropped by "group" and
    "instance", which take theirs from each image.

    Parameters
    ----------
    network
        Changed in place.
    kind
        "batch" leaves it as it is; "sync" takes the statistics over all processes of a training; "group" over groups
        of channels of one image, see `count_groups`; "instance" over each channel of one image.
    """
    if kind == "sync":
        found: nn.Module = convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        return found.train(network.training)
    if kind != "batch":
        for parent in list(network.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(parent, name, _per_image(child, kind))
    return network


def count_groups(channels: int) -> int:
    """How many groups channels are split into: as many as divide them, up to 32, with four channels or more in each.

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
    options: dict[str, Any] = {"eps": norm.eps, "affine": norm.affine, "device": getattr(norm.weight, "device", None)}
    if isinstance(norm, BatchNormAct2d):  # timm's layer that goes on with an activation
        found: nn.GroupNorm = GroupNormAct(channels, groups, **options)
        found.drop, found.act = norm.drop, norm.act
    else:
        found = nn.GroupNorm(groups, channels, **options)
    if norm.affine:
        found.weight, found.bias = norm.weight, norm.bias
    return found
