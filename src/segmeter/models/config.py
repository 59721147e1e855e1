"""Declares the networks that a configuration can name, and the card of a model, without importing torch.

The card is everything that a checkpoint records to rebuild the model and interpret its output.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, create_model

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.schema import Config, Given, OneOf, Registry, RuleError, Unit, rule

_FOREIGN = ("foreign", "output", "class_map", "runs_whole")


def default_normalisation(in_channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation per channel for images in 0 .. 1: ImageNet's for 3 channels, otherwise 0.5 and 0.25."""
    if in_channels == 3:
        return (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return (0.5,) * in_channels, (0.25,) * in_channels


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Everything needed to build a segmenter and to interpret its output.

    Parameters
    ----------
    model
        The network's registered name under "name", and its fields: ``as_plain`` of its configuration.
    spec
        Task, class names, colours, ignored value.
    in_channels
        Channels of the image.
    mean, std
        Per channel, for images scaled to 0 .. 1 (uint8 / 255, uint16 / 65535, float as it is). std > 0.
    clip
        Lowest and highest value per channel, on that scale; values beyond are clipped. Empty: no clipping.
    data
        The kind of data set it was trained on, and how its files are found and read, as JSON values; empty where
        unknown. It has no root: a checkpoint names no folder of the machine that it comes from.
    class_pixels
        Pixels of each class in the training set, ignored ones excluded; empty where unknown.
    foreign
        Whether others trained it. Only then can the next three differ from their defaults; no checkpoint records them.
    output
        Whether the model gives logits, labels, or instances: for each image the class and the object of every pixel.
    class_map
        The class of each number or channel of the model; empty if it gives the classes themselves.
    runs_whole
        Whether it only takes whole images: resized tiles look different, and labels can't be blended.

    Raises
    ------
    ConfigError
        A length does not match `in_channels`, or a deviation is not above 0.
    """

    model: Mapping[str, Any]
    spec: ClassSpec
    in_channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    clip: tuple[tuple[float, float], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    class_pixels: tuple[int, ...] = ()
    foreign: bool = False
    output: Literal["logits", "labels", "instances"] = "logits"
    class_map: tuple[int, ...] = ()
    runs_whole: bool = False

    def __post_init__(self) -> None:
        model = {key: tuple(value) if isinstance(value, list) else value for key, value in self.model.items()}
        object.__setattr__(self, "model", model)  # lists of JSON are tuples in configurations
        lengths = {len(self.mean), len(self.std), len(self.clip or self.mean)}
        if lengths != {self.in_channels} or not all(value > 0 for value in self.std):
            rule = f"to have {self.in_channels} values, one per channel, and std > 0"
            raise ConfigError(expected("model card", "mean, std, clip", rule, (self.mean, self.std, self.clip)))

    @property
    def plane_channels(self) -> int:
        """Channels of one plane; `in_channels` without the neighbouring planes of `data.context`."""
        return self.in_channels // (2 * int(self.data.get("context", 0)) + 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        values = {key: value for key, value in vars(self).items() if key not in _FOREIGN}
        return {**values, "spec": self.spec.model_dump()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelCard":
        """Rebuild a card from the values of `to_dict` after a round trip through JSON.

        Raises
        ------
        KeyError, ValidationError
            A key is missing, or its value is of another type.
        """
        card: ModelCard = TypeAdapter(cls).validate_python({**values, "spec": ClassSpec.of(values["spec"])})
        return card


MODELS = Registry("model")

# The encoders of segmentation-models-pytorch 0.6, by family. They are listed so that a misspelt one is found early.
_FAMILIES = """
    resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x4d resnext101_32x8d
    resnext101_32x16d resnext101_32x32d resnext101_32x48d dpn68 dpn68b dpn92 dpn98 dpn107 dpn131 vgg11 vgg11_bn
    vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn senet154 se_resnet50 se_resnet101 se_resnet152 se_resnext50_32x4d
    se_resnext101_32x4d densenet121 densenet169 densenet201 densenet161 inceptionresnetv2 inceptionv4
    efficientnet-b0 efficientnet-b1 efficientnet-b2 efficientnet-b3 efficientnet-b4 efficientnet-b5 efficientnet-b6
    efficientnet-b7 mobilenet_v2 xception timm-efficientnet-b0 timm-efficientnet-b1 timm-efficientnet-b2
    timm-efficientnet-b3 timm-efficientnet-b4 timm-efficientnet-b5 timm-efficientnet-b6 timm-efficientnet-b7
    timm-efficientnet-b8 timm-efficientnet-l2 timm-tf_efficientnet_lite0 timm-tf_efficientnet_lite1
    timm-tf_efficientnet_lite2 timm-tf_efficientnet_lite3 timm-tf_efficientnet_lite4 timm-skresnet18 timm-skresnet34
    timm-skresnext50_32x4d mit_b0 mit_b1 mit_b2 mit_b3 mit_b4 mit_b5 mobileone_s0 mobileone_s1 mobileone_s2
    mobileone_s3 mobileone_s4
"""
ENCODERS = tuple(_FAMILIES.split())

Normalisation = Literal["batch", "sync", "group", "instance"]
Encoder = Annotated[
    str,
    OneOf(
        *ENCODERS,
        prefixes=("tu-",),
        words='an encoder of segmentation-models-pytorch, for example resnet34, or "tu-" and a timm name',
    ),
]
Depth = Annotated[int, Unit("levels"), Field(ge=3, le=5)]
# Networks that pool each channel to one value: these norms would subtract that value from itself.
_POOLED = {
    "deeplabv3": ("instance",),
    "deeplabv3plus": ("instance",),
    "upernet": ("instance",),
    "pan": ("group", "instance"),
}


class ModelConfig(Config, title="model"):
    """The keys of every network; `_network` adds its own options, under the library's names for them."""

    name: str
    """The registered name of the network."""
    encoder: Encoder = "resnet34"
    """An encoder of segmentation-models-pytorch ("resnet34"), or "tu-" and a timm model's name ("tu-convnext_tiny")."""
    depth: Depth = 5
    """How often the encoder halves the image; for dpt, how many of its levels are used."""
    weights: Annotated[str, Field(min_length=1)] | None = None
    """Initial weights: null for random weights; "imagenet", or another name that the encoder has, for a
    pretrained encoder; or the path of a file or checkpoint."""
    downsample: Annotated[int, Unit("times")] = Field(1, ge=1, le=8)
    """How many times smaller, in height and in width, the network sees images: blocks of that many pixels a side are
    averaged, and the logits are enlarged bilinearly. Training samples are made that small. 2 takes about a quarter of
    the time."""
    norm: Normalisation = "batch"
    """Replaces the network's batch norm: "batch" keeps it, and "sync" shares its statistics between all processes. With
    "group", groups of channels of each image are normalised, which suits small batches. With "instance", each channel
    of each image is."""

    @rule("norm")
    def _keeps_pooled_values(cls, norm: str, given: Given) -> None:
        refused = _POOLED.get(given.name, ())
        if norm in refused:
            instead = "batch" if "group" in refused else "group"
            remedy = f"This network pools channels to one value, which the norm would turn into 0. Use norm={instead}."
            raise RuleError(f"not to be {norm} for {given.name}", remedy)


_Count = Annotated[int, Unit("channels"), Field(ge=1)]
_Share = Annotated[float, Unit("probability"), Field(ge=0, le=0.9)]
# Options of the library's networks: type and meaning. Ranges that it checks itself are left to it.
_OPTIONS: dict[str, tuple[Any, str | None]] = {
    "encoder": (Encoder, None),  # `ModelConfig` says what these two mean
    "depth": (Depth, None),
    "decoder_use_norm": (Literal["batchnorm", "instancenorm", "identity"], "Normalisation in the decoder."),
    "decoder_channels": (_Count, "Channels of the decoder."),
    "decoder_attention_type": (
        Literal["scse"] | None,
        'Attention in the decoder: "scse" squeezes and excites channels and pixels; null has none.',
    ),
    "decoder_pab_channels": (_Count, "Channels of the position attention."),
    "decoder_pyramid_channels": (_Count, "Channels of the pyramid."),
    "decoder_segmentation_channels": (_Count, "Channels of the segmentation branches; of fpn a multiple of 32."),
    "decoder_merge_policy": (Literal["add", "cat"], "How the branches are merged: added, or concatenated."),
    "decoder_dropout": (_Share, "Dropout before the last layer."),
    "psp_out_channels": (_Count, "Channels after the pooling pyramid."),
    "psp_dropout": (_Share, "Dropout after the pooling pyramid."),
    "encoder_output_stride": (
        Annotated[Literal[8, 16, 32], Unit("pixels")],
        "Pixels of the image per pixel of the deepest features; a smaller number is finer and slower.",
    ),
    "decoder_atrous_rates": (tuple[int, int, int], "Dilation rates of the pyramid."),
    "decoder_aspp_dropout": (_Share, "Dropout after the pyramid."),
    "decoder_readout": (
        Literal["ignore", "add", "cat"],
        "Use of the class token: ignored, added to the features, or concatenated with them.",
    ),
    "decoder_intermediate_channels": (tuple[_Count, ...], "Channels per level of `depth`."),
    "decoder_fusion_channels": (_Count, "Channels where the levels are fused."),
    "logits_stride": (
        Annotated[Literal[1, 2, 4], Unit("pixels")],
        "Pixels of the network's input per logit, in height and in width. With 2 or 4 the last one or two levels of "
        "the decoder, which take much of the time, are left out, their entries of `decoder_channels` too, and the "
        "logits are enlarged bilinearly.",
    ),
}
_PER_LEVEL = (
    tuple[_Count, ...] | None,
    "Channels per level of `depth`, deepest first; null: 16 at full size, twice as many at each level below.",
)


def _network(name: str, meaning: str, **defaults: Any) -> type[ModelConfig]:
    """Register a network under the library's name for it, with the options that it has and their defaults."""
    fields: dict[str, Any] = {"name": (str, name)}
    for key, default in defaults.items():
        value_type, words = _PER_LEVEL if key == "decoder_channels" and default is None else _OPTIONS[key]
        fields[key] = (value_type, Field(default, description=words))
    schema: type[ModelConfig] = create_model(
        f"{name.capitalize()}Config", __base__=ModelConfig, __module__=__name__, __doc__=meaning, **fields
    )
    return MODELS.register(name, builder="segmeter.models.networks:build_network")(schema)


_STEPWISE: dict[str, Any] = {"decoder_use_norm": "batchnorm", "decoder_channels": None}
_ATROUS: dict[str, Any] = {"decoder_channels": 256, "decoder_atrous_rates": (12, 24, 36), "decoder_aspp_dropout": 0.5}

UnetConfig = _network(
    "unet", "U-Net (Ronneberger et al. 2015).", **_STEPWISE, decoder_attention_type=None, logits_stride=1
)
UnetplusplusConfig = _network(
    "unetplusplus",
    "U-Net++ (Zhou et al. 2018): dense skips, about three times the work of a U-Net; no mit_b encoders.",
    **_STEPWISE,
    decoder_attention_type=None,
)
ManetConfig = _network(
    "manet", "MA-Net (Fan et al. 2020): position and multi-scale attention.", **_STEPWISE, decoder_pab_channels=64
)
LinknetConfig = _network(
    "linknet",
    "LinkNet (Chaurasia and Culurciello 2017): additive skips, fast; no mit_b encoders.",
    decoder_use_norm="batchnorm",
)
FpnConfig = _network(
    "fpn",
    "Feature pyramid network (Kirillov et al. 2019).",
    decoder_pyramid_channels=256,
    decoder_segmentation_channels=128,
    decoder_merge_policy="add",
    decoder_dropout=0.2,
)
PspnetConfig = _network(
    "pspnet",
    "PSPNet (Zhao et al. 2017): pooled context, at 1/8 of the size at depth 3.",
    depth=3,
    decoder_use_norm="batchnorm",
    psp_out_channels=512,
    psp_dropout=0.2,
)
Deeplabv3Config = _network("deeplabv3", "DeepLabV3 (Chen et al. 2017).", encoder_output_stride=8, **_ATROUS)
Deeplabv3plusConfig = _network("deeplabv3plus", "DeepLabV3+ (Chen et al. 2018).", encoder_output_stride=16, **_ATROUS)
PanConfig = _network(
    "pan",
    "Pyramid attention network (Li et al. 2018); images below 8 output strides are padded to that size.",
    encoder_output_stride=16,
    decoder_channels=32,
)
UpernetConfig = _network("upernet", "UPerNet (Xiao et al. 2018).", decoder_use_norm="batchnorm", decoder_channels=256)
SegformerConfig = _network(
    "segformer",
    "SegFormer's all-MLP decoder (Xie et al. 2021); its own encoders are mit_b0 to mit_b5.",
    encoder="mit_b0",
    decoder_segmentation_channels=256,
)
DptConfig = _network(
    "dpt",
    "Dense prediction transformer (Ranftl et al. 2021) on a timm vision transformer, at any image size.",
    encoder="tu-vit_small_patch16_224",
    depth=4,
    decoder_readout="cat",
    decoder_intermediate_channels=(256, 512, 1024, 1024),
    decoder_fusion_channels=256,
)
