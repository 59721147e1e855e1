import pytest
import torch

from segmeter.errors import ConfigError
from segmeter.inference.device import pick_device


def pretend(monkeypatch, *, gpus, built="13.2"):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.version, "cuda", built)


@pytest.mark.parametrize(("gpus", "name"), [(0, "cpu"), (1, "cuda")])
def test_auto_is_the_gpu_where_there_is_one(monkeypatch, gpus, name):
    pretend(monkeypatch, gpus=gpus)
    assert pick_device("auto") == torch.device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1"])
def test_a_gpu_that_is_there_is_picked(monkeypatch, name):
    pretend(monkeypatch, gpus=2)
    assert pick_device(name) == torch.device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:x", "", "mps:0", "CUDA", "cpu\n"])
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match='expected `device` to be "auto", "cpu", "cuda", "cuda:N" or "mps"'):
        pick_device(name)


def test_18_a_gpu_beyond_the_last_says_how_many_there_are(monkeypatch):
    pretend(monkeypatch, gpus=2)
    with pytest.raises(ConfigError, match=r"got 'cuda:9', with 2 GPUs found. Use cuda:0 to cuda:1"):
        pick_device("cuda:9")


def test_an_apple_gpu_is_taken_by_its_name_alone(monkeypatch):
    pretend(monkeypatch, gpus=0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("mps") == torch.device("mps")
    assert pick_device("auto") == torch.device("cpu")


@pytest.mark.parametrize(("built", "why"), [(True, "sees no Apple GPU"), (False, "is built without Apple's Metal")])
def test_an_apple_gpu_that_is_not_there_is_one_line(monkeypatch, built, why):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: built)
    with pytest.raises(ConfigError, match=rf"`device` to be here, got 'mps'. This torch \(.*\) {why}: set device=cpu"):
        pick_device("mps")
