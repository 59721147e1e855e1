"""Builds the segmenter that a card describes; the network's library is loaded only when a network is built."""

from segmeter.models.card import ModelCard
from segmeter.models.config import MODELS, model_config
from segmeter.models.segmenter import Segmenter


def build_segmenter(card: ModelCard, *, initialise: bool = True) -> Segmenter:
    """Build the segmenter that a card describes, on the CPU, in training mode.

    Parameters
    ----------
    card
        Network, classes, channels and normalisation.
    initialise
        False ignores ``model.weights`` (no download, no file): the caller loads weights next.

    Raises
    ------
    ConfigError
        The network is not registered, or can't be built.
    CheckpointError
        The file in ``model.weights`` can't be read or does not fit.
    """
    config = model_config(card.model)
    if not initialise and getattr(config, "weights", None) is not None:
        config = config.replace(weights=None)
    network = MODELS.build(config, spec=card.spec, in_channels=card.in_channels)
    return Segmenter(network, card)
