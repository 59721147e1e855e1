"""Declares how a model is run over images: whole or in tiles, flipped too or not, and in which precision."""

from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Unit

Blend = Literal["gaussian", "uniform"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]

WHOLE_PIXELS = 1 << 24  # if no tile is set, images of up to this many pixels are run whole
USUAL_TILE = 512  # if no tile is set, larger images are run in tiles of this edge


class InferenceConfig(Config, title="inference"):
    """The way a model is run over images."""

    tile: Annotated[int | None, Unit("pixels")] = Field(None, ge=32)
    """Edge of a square tile, a multiple of the network's stride (32 for most). With null, images of up to 16 million
    pixels are run whole, and larger ones in tiles of 512. An image no larger than a tile is run whole."""
    overlap: Annotated[float, Unit("share of a tile")] = Field(0.25, ge=0, le=0.9)
    """Smallest share of a tile that its neighbour covers too."""
    tile_batch: Annotated[int, Unit("tiles")] = Field(4, ge=1)
    """Tiles per forward pass."""
    blend: Blend = "gaussian"
    """How overlapping tiles are weighted: "gaussian" (the middle of a tile counts most) or "uniform"."""
    flips: bool = False
    """Run each image mirrored left-right, top-bottom and both ways too, and average the probabilities: 4 times the
    cost."""
    rotations: bool = False
    """Run each image turned by 90, 180 and 270 degrees too, and average the probabilities: 4 times the cost, with
    `flips` 8 times."""
    threshold: Annotated[float, Unit("probability")] = Field(0.5, ge=0, le=1)
    """Binary and multilabel: a class is present where its probability is above this."""
    precision: Precision = "auto"
    """Number format of the forward pass; "auto" is bfloat16 where the device computes in it, else float16 on CUDA,
    else float32."""
    batch_size: Annotated[int, Unit("images")] = Field(4, ge=1)
    """Images of one size per forward pass."""
