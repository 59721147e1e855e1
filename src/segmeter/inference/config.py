"""How a model is run over images: whole or in tiles, once or flipped too, and in which precision."""

from dataclasses import dataclass
from typing import Literal, get_args

from segmeter.checks import collecting

Blend = Literal["gaussian", "uniform"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """The settings of inference.

    Parameters
    ----------
    tile
        Edge of a square tile in pixels, >= 32; None runs whole images. An image no larger than a tile is run whole.
    overlap
        The least part of a tile that its neighbour covers too, 0 to 0.9.
    tile_batch
        Tiles per forward pass, >= 1.
    blend
        How overlapping tiles are weighed: "gaussian" (the middle of a tile counts most) or "uniform".
    flips
        Run each image mirrored left-right, top-bottom and both ways too, and average the probabilities: 4 x the cost.
    threshold
        Binary and multilabel: a probability above it is the class. Between 0 and 1.
    precision
        "auto" is bfloat16 where the device computes in it, else float16 on CUDA, else float32.
    batch_size
        Images of one size per forward pass, >= 1.
    """

    tile: int | None = None
    overlap: float = 0.25
    tile_batch: int = 4
    blend: Blend = "gaussian"
    flips: bool = False
    threshold: float = 0.5
    precision: Precision = "auto"
    batch_size: int = 4

    def __post_init__(self) -> None:
        with collecting("inference") as problems:
            problems.in_range("tile", self.tile, 32)
            problems.in_range("overlap", self.overlap, 0, 0.9)
            problems.in_range("tile_batch", self.tile_batch, 1)
            problems.one_of("blend", self.blend, get_args(Blend))
            problems.in_range("threshold", self.threshold, 0, 1)
            problems.one_of("precision", self.precision, get_args(Precision))
            problems.in_range("batch_size", self.batch_size, 1)
