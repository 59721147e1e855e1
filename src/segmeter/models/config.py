"""The networks that a configuration can name, and what each one takes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from segmeter.models.encoders import ENCODERS
from segmeter.schema import Config, Given, OneOf, Registry, RuleError, Unit, rule

MODELS = Registry("model")
BUILDER = "segmeter.models.networks:build_network"

Norm = Literal["batchnorm", "instancenorm", "identity"]
Normalisation = Literal["batch", "sync", "group", "instance"]
Channels = Annotated[int, Unit("channels")]
Encoder = Annotated[
    str,
    OneOf(
        *ENCODERS,
        prefixes=("tu-",),
        words='an encoder of segmentation-models-pytorch, for example resnet34, or "tu-" and a timm name',
    ),
]


class EncoderConfig(Config, title="model"):
    """What every network of the family shares."""

    name: str
    """The registered name of the network."""
    encoder: Encoder = "resnet34"
    """An encoder of segmentation-models-pytorch ("resnet34"), or "tu-" and a timm model's name ("tu-convnext_tiny")."""
    depth: Annotated[int, Unit("levels")] = Field(5, ge=3, le=5)
    """How often the encoder halves the image."""
    weights: Annotated[str, Field(min_length=1)] | None = None
    """What the encoder starts from: null for random weights; "imagenet", or another name that the encoder has, for a
    pretrained encoder; or the path of a file or checkpoint."""
    downsample: Annotated[int, Unit("times")] = Field(1, ge=1, le=8)
    """How many times smaller, in height and in width, the network sees images: blocks of that many pixels a side are
    averaged, and the logits are enlarged bilinearly. Samples of a training are made that small. 2 takes about a quarter
    of the time."""
    norm: Normalisation = "batch"
    """What stands where the network has batch norm: batch norm over a forward pass, "sync" over those of all processes,
    "group" over groups of channels of each image, which goes with small batches, or "instance" over each channel."""


class NormConfig(EncoderConfig):
    """A network whose decoder has normalisation layers."""

    decoder_use_norm: Norm = "batchnorm"
    """Normalisation in the decoder."""


class DecoderConfig(NormConfig):
    """A network that doubles the resolution step by step."""

    decoder_channels: tuple[Annotated[Channels, Field(ge=1)], ...] | None = None
    """Channels per level of `depth`, deepest first; null: 16 at full size, twice as many at each level below."""

    @rule("decoder_channels")
    @classmethod
    def _one_per_level(cls, channels: tuple[int, ...] | None, given: Given) -> None:
        if channels is not None and len(channels) != given.depth:
            rule = f"to be {given.depth} numbers >= 1, one per level of model.depth"
            raise RuleError(rule, "Leave it null for 16, 32, 64, ... upwards.")


class AttentionDecoderConfig(DecoderConfig):
    """A network whose decoder may have attention."""

    decoder_attention_type: Literal["scse"] | None = None
    """Attention in the decoder: "scse" squeezes and excites channels and pixels; null has none."""


@MODELS.register("unet", builder=BUILDER)
class UnetConfig(AttentionDecoderConfig):
    """U-Net (Ronneberger et al. 2015)."""

    name: str = "unet"
    logits_stride: Annotated[Literal[1, 2, 4], Unit("pixels")] = 1
    """Pixels of the network's input per logit, in height and in width. With 2 or 4 the last one or two levels of the
    decoder, which take much of the time, are left out, their entries of `decoder_channels` too, and the logits are
    enlarged bilinearly."""


def _not_of_one_value(norm: str, refused: tuple[str, ...], instead: str) -> None:
    """Refuse norms that would see one value, as the network pools whole channels: they would leave nothing of it."""
    if norm in refused:
        remedy = f"This network pools channels to one value, of which it would leave nothing. Take norm={instead}."
        raise RuleError(f"not to be {norm} here", remedy)


def _no_mit(encoder: str) -> None:
    if encoder.startswith("mit_b"):
        raise RuleError("not to be a mit_b one here", "Use a convolutional encoder, or model=unet.")


@MODELS.register("unetplusplus", builder=BUILDER)
class UnetPlusPlusConfig(AttentionDecoderConfig):
    """U-Net++ (Zhou et al. 2018): dense skips, about three times the work of a U-Net; no mit_b encoders."""

    name: str = "unetplusplus"

    @rule("encoder")
    @classmethod
    def _has_every_scale(cls, encoder: str, given: Given) -> None:
        _no_mit(encoder)


@MODELS.register("manet", builder=BUILDER)
class ManetConfig(DecoderConfig):
    """MA-Net (Fan et al. 2020): position and multi-scale attention."""

    name: str = "manet"
    decoder_pab_channels: Channels = Field(64, ge=1)
    """Channels of the position attention."""


@MODELS.register("linknet", builder=BUILDER)
class LinknetConfig(NormConfig):
    """LinkNet (Chaurasia and Culurciello 2017): additive skips, fast; no mit_b encoders."""

    name: str = "linknet"

    @rule("encoder")
    @classmethod
    def _has_every_scale(cls, encoder: str, given: Given) -> None:
        _no_mit(encoder)


@MODELS.register("fpn", builder=BUILDER)
class FpnConfig(EncoderConfig):
    """Feature pyramid network (Kirillov et al. 2019)."""

    name: str = "fpn"
    decoder_pyramid_channels: Channels = Field(256, ge=1)
    """Channels of the pyramid."""
    decoder_segmentation_channels: Channels = Field(128, ge=32, multiple_of=32)
    """Channels of the segmentation branches; 32 groups are normalised together."""
    decoder_merge_policy: Literal["add", "cat"] = "add"
    """How the branches are merged: added, or concatenated."""
    decoder_dropout: Annotated[float, Unit("probability")] = Field(0.2, ge=0, le=0.9)
    """Dropout before the last layer."""


@MODELS.register("pspnet", builder=BUILDER)
class PspnetConfig(NormConfig):
    """PSPNet (Zhao et al. 2017): pooled context, at 1/8 of the size at depth 3."""

    name: str = "pspnet"
    depth: Annotated[int, Unit("levels")] = Field(3, ge=3, le=5)
    """How often the encoder halves the image."""
    psp_out_channels: Channels = Field(512, ge=1)
    """Channels after the pooling pyramid."""
    psp_dropout: Annotated[float, Unit("probability")] = Field(0.2, ge=0, le=0.9)
    """Dropout after the pooling pyramid."""


class AtrousConfig(EncoderConfig):
    """A network with atrous spatial pyramid pooling: a dilated encoder and three dilation rates."""

    encoder_output_stride: Annotated[Literal[8, 16], Unit("pixels")] = 16
    """Pixels of the image per pixel of the deepest features; 8 is finer and slower."""
    decoder_channels: Channels = Field(256, ge=1)
    """Channels of the decoder."""
    decoder_atrous_rates: tuple[
        Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]
    ] = (12, 24, 36)
    """Dilation rates of the pyramid."""
    decoder_aspp_dropout: Annotated[float, Unit("probability")] = Field(0.5, ge=0, le=0.9)
    """Dropout after the pyramid."""

    @rule("norm")
    @classmethod
    def _of_more_than_one_value(cls, norm: str, given: Given) -> None:
        _not_of_one_value(norm, ("instance",), "group")


@MODELS.register("deeplabv3", builder=BUILDER)
class Deeplabv3Config(AtrousConfig):
    """DeepLabV3 (Chen et al. 2017)."""

    name: str = "deeplabv3"
    encoder_output_stride: Annotated[Literal[8, 16], Unit("pixels")] = 8
    """Pixels of the image per pixel of the deepest features; 8 is finer and slower."""


@MODELS.register("deeplabv3plus", builder=BUILDER)
class Deeplabv3PlusConfig(AtrousConfig):
    """DeepLabV3+ (Chen et al. 2018)."""

    name: str = "deeplabv3plus"


@MODELS.register("pan", builder=BUILDER)
class PanConfig(EncoderConfig):
    """Pyramid attention network (Li et al. 2018); images below 8 output strides are padded to that size."""

    name: str = "pan"
    encoder_output_stride: Annotated[Literal[16, 32], Unit("pixels")] = 16
    """Pixels of the image per pixel of the deepest features."""
    decoder_channels: Channels = Field(32, ge=1)
    """Channels of the decoder."""

    @rule("norm")
    @classmethod
    def _of_more_than_one_value(cls, norm: str, given: Given) -> None:
        _not_of_one_value(norm, ("group", "instance"), "batch")


@MODELS.register("upernet", builder=BUILDER)
class UpernetConfig(NormConfig):
    """UPerNet (Xiao et al. 2018)."""

    name: str = "upernet"
    decoder_channels: Channels = Field(256, ge=1)
    """Channels of the decoder."""

    @rule("norm")
    @classmethod
    def _of_more_than_one_value(cls, norm: str, given: Given) -> None:
        _not_of_one_value(norm, ("instance",), "group")


@MODELS.register("segformer", builder=BUILDER)
class SegformerConfig(EncoderConfig):
    """SegFormer's all-MLP decoder (Xie et al. 2021); its own encoders are mit_b0 to mit_b5."""

    name: str = "segformer"
    encoder: Encoder = "mit_b0"
    """An encoder of segmentation-models-pytorch, or "tu-" and a timm model's name; SegFormer's own are mit_b0 to
    mit_b5."""
    decoder_segmentation_channels: Channels = Field(256, ge=1)
    """Channels of the decoder."""


@MODELS.register("dpt", builder=BUILDER)
class DptConfig(EncoderConfig):
    """Dense prediction transformer (Ranftl et al. 2021) on a timm vision transformer, at any image size."""

    name: str = "dpt"
    encoder: Encoder = "tu-vit_small_patch16_224"
    """The name of a vision transformer of timm, after "tu-"."""
    depth: Annotated[int, Unit("levels")] = Field(4, ge=3, le=5)
    """How many levels of features are taken from the encoder."""
    decoder_readout: Literal["ignore", "add", "cat"] = "cat"
    """What becomes of the class token: ignored, added to the features, or concatenated with them."""
    decoder_intermediate_channels: tuple[Annotated[Channels, Field(ge=1)], ...] = (256, 512, 1024, 1024)
    """Channels per level of `depth`."""
    decoder_fusion_channels: Channels = Field(256, ge=1)
    """Channels where the levels are fused."""

    @rule("encoder")
    @classmethod
    def _transformer(cls, encoder: str, given: Given) -> None:
        if not encoder.startswith("tu-"):
            raise RuleError("to be a timm transformer for dpt", "Try 'tu-vit_small_patch16_224'.")

    @rule("decoder_intermediate_channels")
    @classmethod
    def _one_per_level(cls, channels: tuple[int, ...], given: Given) -> None:
        if len(channels) != given.depth:
            raise RuleError(f"to be {given.depth} numbers >= 1, one per level of model.depth")


def model_config(values: Mapping[str, Any]) -> Any:
    """Turn a network's name and fields, as a checkpoint's card holds them, into its checked configuration.

    Raises
    ------
    ConfigError
        No network has this name, or it does not take one of the fields.
    """
    return MODELS.schema(str(values.get("name")))(**values)
