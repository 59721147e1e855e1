"""Declares the root configuration of each command that helps to decide."""

from typing import Annotated, Any

from segmeter.cli.config.model_schema import Modelled, Trained
from segmeter.cli.config.schema import Seeded
from segmeter.data.config import DATA
from segmeter.evaluation.decisions.config import AgreeKeys, PlanKeys, SuspectsKeys, TuneKeys
from segmeter.inference.config import InferenceConfig
from segmeter.postprocess.config import PostprocessConfig
from segmeter.schema import Component


class AgreeConfig(Seeded, AgreeKeys):
    """`segmeter agree`: how far several readers agree, without a reference."""


class SuspectsConfig(Seeded, SuspectsKeys):
    """`segmeter suspects`: which labels are likely wrong, or which images to label next."""


class PlanConfig(Seeded, PlanKeys):
    """`segmeter plan`: how many cases a score or a comparison needs."""


class TuneConfig(Trained, Modelled, Seeded, TuneKeys):
    """`segmeter tune`: choose threshold and post-processing on the validation split."""

    data: Annotated[Any, Component(DATA)]
    """The data set; its validation split is used."""
    inference: InferenceConfig
    """How the model runs over images. Its threshold is the usual one, with which others are compared."""
    postprocess: PostprocessConfig
    """Steps that run before those that are tried. A step that makes instances stays last."""
