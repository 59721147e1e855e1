"""The networks that a configuration can name, and what each one takes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from segmeter.checks import Problems, collecting, nearest
from segmeter.errors import ConfigError
from segmeter.models.encoders import ENCODERS
from segmeter.registry import Registry

MODELS = Registry("model")
BUILDER = "segmeter.models.networks:build_network"

Norm = Literal["batchnorm", "instancenorm", "identity"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """What every network of the family shares.

    Parameters
    ----------
    encoder
        An encoder of segmentation-models-pytorch ("resnet34"), or "tu-" and a timm model's name ("tu-convnext_tiny").
    depth
        How often the encoder halves the image, 3 to 5.
    weights
        None for random weights; "imagenet", or another name that the encoder has, for a pretrained encoder; or the
        path of a file or checkpoint to start from.
    """

    encoder: str = "resnet34"
    depth: int = 5
    weights: str | None = None

    def __post_init__(self) -> None:
        with collecting("model") as problems:
            self.check(problems)

    def check(self, problems: Problems) -> None:
        """Note what is wrong; networks with more to check extend this."""
        problems.in_range("depth", self.depth, 3, 5)
        known = self.encoder in ENCODERS or self.encoder.startswith("tu-")
        problems.expect(known, "encoder", 'to be known, or "tu-" and a timm name', self.encoder, _near(self.encoder))
        problems.expect(self.weights != "", "weights", 'to be null, "imagenet" or a path', self.weights)


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(EncoderConfig):
    """A network that doubles the resolution step by step; `decoder_channels` runs from the deepest step to the last."""

    decoder_channels: tuple[int, ...] | None = None
    decoder_use_norm: Norm = "batchnorm"

    def check(self, problems: Problems) -> None:
        """One number of channels per doubling."""
        super().check(problems)
        channels = self.decoder_channels
        if channels is not None:
            ok = len(channels) == self.depth and all(each >= 1 for each in channels)
            rule = f"to be {self.depth} numbers >= 1, one per level of model.depth"
            problems.expect(ok, "decoder_channels", rule, list(channels), "Leave it null for 16, 32, 64, ... upwards.")


@MODELS.register("unet", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class UnetConfig(DecoderConfig):
    """U-Net (Ronneberger et al. 2015)."""

    name: str = "unet"
    decoder_attention_type: Literal["scse"] | None = None


@MODELS.register("unetplusplus", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class UnetPlusPlusConfig(DecoderConfig):
    """U-Net++ (Zhou et al. 2018); no mit_b encoders."""

    name: str = "unetplusplus"
    decoder_attention_type: Literal["scse"] | None = None

    def check(self, problems: Problems) -> None:
        """The dense skips need a feature map at every scale."""
        super().check(problems)
        _no_mit(problems, self.encoder)


@MODELS.register("manet", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class ManetConfig(DecoderConfig):
    """MA-Net (Fan et al. 2020): position and multi-scale attention."""

    name: str = "manet"
    decoder_pab_channels: int = 64

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.in_range("decoder_pab_channels", self.decoder_pab_channels, 1)


@MODELS.register("linknet", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class LinknetConfig(EncoderConfig):
    """LinkNet (Chaurasia and Culurciello 2017): additive skips, fast; no mit_b encoders."""

    name: str = "linknet"
    decoder_use_norm: Norm = "batchnorm"

    def check(self, problems: Problems) -> None:
        super().check(problems)
        _no_mit(problems, self.encoder)


@MODELS.register("fpn", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class FpnConfig(EncoderConfig):
    """Feature pyramid network (Kirillov et al. 2019)."""

    name: str = "fpn"
    decoder_pyramid_channels: int = 256
    decoder_segmentation_channels: int = 128
    decoder_merge_policy: Literal["add", "cat"] = "add"
    decoder_dropout: float = 0.2

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.in_range("decoder_pyramid_channels", self.decoder_pyramid_channels, 1)
        channels = self.decoder_segmentation_channels
        ok = channels >= 32 and channels % 32 == 0
        problems.expect(ok, "decoder_segmentation_channels", "to be a multiple of 32 (its normalisation)", channels)
        problems.in_range("decoder_dropout", self.decoder_dropout, 0, 0.9)


@MODELS.register("pspnet", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class PspnetConfig(EncoderConfig):
    """PSPNet (Zhao et al. 2017): pooled context; usually at depth 3."""

    name: str = "pspnet"
    depth: int = 3
    psp_out_channels: int = 512
    psp_dropout: float = 0.2
    decoder_use_norm: Norm = "batchnorm"

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.in_range("psp_out_channels", self.psp_out_channels, 1)
        problems.in_range("psp_dropout", self.psp_dropout, 0, 0.9)


@dataclass(frozen=True, kw_only=True)
class AtrousConfig(EncoderConfig):
    """A network with atrous spatial pyramid pooling: a dilated encoder and three dilation rates."""

    encoder_output_stride: int = 16
    decoder_channels: int = 256
    decoder_atrous_rates: tuple[int, ...] = (12, 24, 36)
    decoder_aspp_dropout: float = 0.5

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.expect(
            self.encoder_output_stride in (8, 16), "encoder_output_stride", "to be 8 or 16", self.encoder_output_stride
        )
        problems.in_range("decoder_channels", self.decoder_channels, 1)
        ok = len(self.decoder_atrous_rates) == 3 and all(rate >= 1 for rate in self.decoder_atrous_rates)
        problems.expect(ok, "decoder_atrous_rates", "to be 3 numbers >= 1", list(self.decoder_atrous_rates))
        problems.in_range("decoder_aspp_dropout", self.decoder_aspp_dropout, 0, 0.9)


@MODELS.register("deeplabv3", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class Deeplabv3Config(AtrousConfig):
    """DeepLabV3 (Chen et al. 2017)."""

    name: str = "deeplabv3"
    encoder_output_stride: int = 8


@MODELS.register("deeplabv3plus", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class Deeplabv3PlusConfig(AtrousConfig):
    """DeepLabV3+ (Chen et al. 2018)."""

    name: str = "deeplabv3plus"


@MODELS.register("pan", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class PanConfig(EncoderConfig):
    """Pyramid attention network (Li et al. 2018); images below 8 output strides are padded to that size."""

    name: str = "pan"
    encoder_output_stride: int = 16
    decoder_channels: int = 32

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.expect(
            self.encoder_output_stride in (16, 32),
            "encoder_output_stride",
            "to be 16 or 32",
            self.encoder_output_stride,
        )
        problems.in_range("decoder_channels", self.decoder_channels, 1)


@MODELS.register("upernet", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class UpernetConfig(EncoderConfig):
    """UPerNet (Xiao et al. 2018)."""

    name: str = "upernet"
    decoder_channels: int = 256
    decoder_use_norm: Norm = "batchnorm"

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.in_range("decoder_channels", self.decoder_channels, 1)


@MODELS.register("segformer", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class SegformerConfig(EncoderConfig):
    """SegFormer's all-MLP decoder (Xie et al. 2021); its own encoders are mit_b0 to mit_b5."""

    name: str = "segformer"
    encoder: str = "mit_b0"
    decoder_segmentation_channels: int = 256

    def check(self, problems: Problems) -> None:
        super().check(problems)
        problems.in_range("decoder_segmentation_channels", self.decoder_segmentation_channels, 1)


@MODELS.register("dpt", builder=BUILDER)
@dataclass(frozen=True, kw_only=True)
class DptConfig(EncoderConfig):
    """Dense prediction transformer (Ranftl et al. 2021) on a timm vision transformer, at any image size."""

    name: str = "dpt"
    encoder: str = "tu-vit_small_patch16_224"
    depth: int = 4
    decoder_readout: Literal["ignore", "add", "cat"] = "cat"
    decoder_intermediate_channels: tuple[int, ...] = (256, 512, 1024, 1024)
    decoder_fusion_channels: int = 256

    def check(self, problems: Problems) -> None:
        super().check(problems)
        channels = self.decoder_intermediate_channels
        ok = len(channels) == self.depth and all(each >= 1 for each in channels)
        problems.expect(ok, "decoder_intermediate_channels", f"to be {self.depth} numbers >= 1", list(channels))
        problems.in_range("decoder_fusion_channels", self.decoder_fusion_channels, 1)
        is_timm = self.encoder.startswith("tu-")
        problems.expect(
            is_timm, "encoder", "to be a timm transformer for dpt", self.encoder, "Try 'tu-vit_small_patch16_224'."
        )


def model_config(values: Mapping[str, Any]) -> Any:
    """Turn a network's name and fields, as a checkpoint's card holds them, into its checked configuration.

    Raises
    ------
    ConfigError
        No network has this name, or it does not take one of the fields.
    """
    schema = MODELS.schema(str(values.get("name")))
    known = [field.name for field in fields(schema)]
    unknown = [f"model: unknown key {key!r}. {nearest(key, known)}" for key in values if key not in known]
    if unknown:
        raise ConfigError(unknown)
    return schema(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def _near(encoder: str) -> str:
    return nearest(encoder, ENCODERS) if encoder else "For example resnet34."


def _no_mit(problems: Problems, encoder: str) -> None:
    remedy = "Use a convolutional encoder, or model=unet."
    problems.expect(not encoder.startswith("mit_b"), "encoder", "not to be a mit_b one here", encoder, remedy)
