"""Pretrained weights: the hub's client is told when there is no network, and a failed download is one clear line."""

import pytest

from segmeter.errors import ConfigError
from segmeter.models import pretrained
from segmeter.models.pretrained import pretrained_encoder


def download(encoder, *, wanted=True):
    """Fail as a download does, and say what the client was told before."""
    with pretrained_encoder(encoder, wanted=wanted):
        raise ConnectionError(f"offline={pretrained.constants.HF_HUB_OFFLINE}")


@pytest.mark.parametrize(("reachable", "state"), [(True, "the download failed"), (False, "no network")])
def test_a_failed_download_says_why_and_what_to_do(monkeypatch, reachable, state):
    monkeypatch.setattr(pretrained, "_reachable", lambda endpoint: reachable)
    with pytest.raises(ConfigError, match=rf"'resnet18' from .*\({state}\). Set model.weights=null") as caught:
        download("resnet18")
    assert str(caught.value.__cause__) == f"offline={not reachable}"
    assert pretrained.constants.HF_HUB_OFFLINE is False


def test_without_pretrained_weights_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(pretrained, "_reachable", lambda endpoint: pytest.fail("asked"))
    with pytest.raises(ConnectionError, match="offline=False"):
        download("resnet18", wanted=False)


def test_behind_a_proxy_the_host_is_not_looked_up(monkeypatch):
    monkeypatch.setattr(pretrained, "getproxies", lambda: {"https": "proxy"})
    monkeypatch.setattr(pretrained.socket, "getaddrinfo", lambda *_: pytest.fail("looked up"))
    assert pretrained._reachable("https://hub.invalid")
