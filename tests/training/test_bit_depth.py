"""8-bit images and their 12-bit copies in uint16 reach the network as the same values, by either remedy."""

import numpy as np
import pytest
import torch

from segmeter.data.config import FolderConfig
from segmeter.data.verification.intensity import normalisation
from segmeter.data.verification.report import open_splits
from segmeter.errors import DataError
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import Segmenter
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.data.sampling import SampleSource
from tests.data.crafted import put
from tests.training.tiny import SPEC, TinyNetwork

DEFAULT = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Noisy pictures; the 12-bit copy has the same light in finer steps."""
    root = tmp_path_factory.mktemp("copies")
    for seed in range(12):
        rng = np.random.default_rng(seed)
        light = rng.uniform(0.1, 0.9, (24, 24, 3))
        for bits, dtype in ((8, np.uint8), (12, np.uint16)):
            (root / f"{bits}" / "images").mkdir(parents=True, exist_ok=True)
            np.save(root / f"{bits}" / "images" / f"c{seed:02d}.npy", np.rint(light * (2**bits - 1)).astype(dtype))
            put(root / f"{bits}" / "masks" / f"c{seed:02d}.png", rng.integers(0, 3, (24, 24)).astype(np.uint8))
    return root


def samples_of(root, **fields):
    """A batch of samples as the network is given it."""
    config = FolderConfig(root=str(root), classes=SPEC.names, colours=SPEC.colours, ignore_index=255, **fields)
    (dataset, _), (seen, _) = open_splits(config.replace(val_fraction=0.3, test_fraction=0), ["train", "val"])
    mean, std = normalisation(config, seen.intensities, DEFAULT)
    card = ModelCard(model={"name": "tiny"}, spec=SPEC, in_channels=3, mean=mean, std=std)
    source = SampleSource(CachedDataset(dataset, Budget(10**7)), AugmentConfig(crop=(16, 16)), batch_size=8, seed=0)
    image = torch.from_numpy(source.batch(0, 0)[0]).permute(0, 3, 1, 2)
    return Segmenter(TinyNetwork(), card).normalise(image)


@pytest.mark.parametrize(
    ("eight", "twelve"),
    [({"mean": "auto", "std": "auto"},) * 2, ({}, {"full_scale": 4095.0})],
    ids=["auto", "full-scale"],
)
def test_twelve_bit_copies_are_seen_as_eight_bit_ones(copies, eight, twelve):
    one, other = samples_of(copies / "8", **eight), samples_of(copies / "12", **twelve)
    assert one.std() > 0.9
    half_a_step = 0.5 / 255 / min(DEFAULT[1])
    assert (one - other).abs().max() < 1.2 * half_a_step  # and half a step of 12 bits


def test_without_a_remedy_they_are_refused_before_the_first_step(copies):
    with pytest.raises(DataError, match=r"near mean 0 and spread 1, .*data.full_scale=4095 if these are 12-bit images"):
        samples_of(copies / "12")
