"""Every batch norm of a network becomes another normalisation, with the gains that it had."""

import pytest
import torch
from torch import nn

from segmeter.errors import ConfigError
from segmeter.models.config import MODELS, Deeplabv3PlusConfig, UnetConfig
from segmeter.models.networks import build_network
from segmeter.models.norms import count_groups, replace_norms
from tests.models.parts import TINY, make_spec
from tests.models.test_networks import SMALL


def built(**options):
    torch.manual_seed(0)
    return build_network(TINY.replace(**options), spec=make_spec(), in_channels=3)


def batch_norms(network):
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize("encoder", ["tu-test_resnet", "tu-efficientnet_b0", "resnet18", "mobilenet_v2", "densenet121"])
@pytest.mark.parametrize("norm", ["group", "instance"])
def test_a_network_without_batch_norm_treats_each_image_on_its_own_in_training(encoder, norm):
    torch.manual_seed(0)
    config = UnetConfig(encoder=encoder, depth=3, decoder_channels=(8, 8, 4), norm=norm)
    network = build_network(config, spec=make_spec(), in_channels=3).train()
    assert batch_norms(network) == 0
    for module in network.modules():  # drawn for the whole batch
        if "drop" in type(module).__name__.lower():
            module.eval()
    image = torch.randn(3, 3, 64, 96)
    torch.testing.assert_close(network(image)[:1], network(image[:1]), rtol=1e-4, atol=1e-4)


def test_names_gains_and_activations_stay():
    plain, grouped = built(), built(norm="group")
    theirs = {
        name: value for name, value in plain.state_dict().items() if "running" not in name and "num_b" not in name
    }
    assert list(grouped.state_dict()) == list(theirs)
    norm = nn.Sequential(nn.BatchNorm2d(8))
    nn.init.constant_(norm[0].weight, 3.0)
    nn.init.constant_(norm[0].bias, 0.5)
    image = torch.randn(2, 8, 5, 6)
    found = replace_norms(norm, "instance")(image)
    torch.testing.assert_close(found.mean((2, 3)), torch.full((2, 8), 0.5))
    torch.testing.assert_close(found.var((2, 3), unbiased=False), torch.full((2, 8), 9.0), rtol=1e-3, atol=0)
    torch.testing.assert_close(found, nn.functional.instance_norm(image, weight=norm[0].weight, bias=norm[0].bias))


def test_groups_are_of_four_channels_or_more():
    for channels in range(1, 300):
        groups = count_groups(channels)
        assert channels % groups == 0
        assert groups == 1 or channels // groups >= 4
        assert groups <= 32


def test_sync_is_batch_norm_where_there_is_one_process():
    plain, synced = built(), built(norm="sync")
    image = torch.randn(2, 3, 32, 32)
    assert batch_norms(synced) == 0
    assert synced.training
    torch.testing.assert_close(synced(image), plain(image))


def test_norms_of_pooled_single_values_are_refused():
    with pytest.raises(ConfigError, match=r"`norm` not to be instance here, got 'instance'\. This network pools"):
        Deeplabv3PlusConfig(norm="instance")
    config = Deeplabv3PlusConfig(encoder="tu-test_resnet", norm="group", decoder_channels=8)
    assert (
        build_network(config.replace(encoder="resnet18"), spec=make_spec(), in_channels=3)(torch.randn(1, 3, 64, 64))
        .isfinite()
        .all()
    )


REFUSED = {("deeplabv3", "instance"), ("deeplabv3plus", "instance"), ("upernet", "instance"), ("pan", "group")}


@pytest.mark.parametrize("norm", ["sync", "group", "instance"])
@pytest.mark.parametrize("name", MODELS.names())
def test_every_network_takes_every_norm_or_refuses_it_before_it_is_built(name, norm):
    options = {"encoder": "resnet18", "depth": 3} | SMALL.get(name, {}) | {"norm": norm}
    if (name, norm) in REFUSED | {("pan", "instance")}:
        with pytest.raises(ConfigError, match=rf"`norm` not to be {norm} here, .* Take norm="):
            MODELS.schema(name)(**options)
        return
    with torch.device("meta"):
        network = MODELS.build(MODELS.schema(name)(**options), spec=make_spec(), in_channels=3).train()
    assert batch_norms(network) == 0
    side = max(64, network.size_least, 2 * network.size_multiple)
    assert network(torch.zeros(2, 3, side, side, device="meta")).shape == (2, 3, side, side)
