"""Pretrained encoders: downloaded or taken from the cache, or refused at once where neither is there."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlparse
from urllib.request import getproxies

from huggingface_hub import constants

from segmeter.errors import ConfigError


@contextmanager
def pretrained_encoder(encoder: str, *, wanted: bool) -> Iterator[None]:
    """Let the block fetch ImageNet weights; without a network only the cache is asked.

    Raises
    ------
    ConfigError
        The block could not get the weights.
    """
    if not wanted:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    # the hub's client would try for half a minute before it says that there is no network
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    except OSError as error:
        state = "no network" if constants.HF_HUB_OFFLINE else "the download failed"
        raise ConfigError(
            f"model.weights: expected the imagenet weights of {encoder!r} from {constants.ENDPOINT} or the cache in "
            f"{constants.HF_HUB_CACHE}, got neither ({state}). Set model.weights=null, or give the path of a file."
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(endpoint: str) -> bool:
    """Whether the host's name resolves; behind a proxy that is the proxy's business."""
    if getproxies() or "HF_ENDPOINT" in os.environ:
        return True
    address = urlparse(endpoint)
    try:
        socket.getaddrinfo(address.hostname, address.port or 443)
    except OSError:
        return False
    return True
