"""8-bit images and their 12-bit copies in uint16 train to the same result, by either remedy."""

import numpy as np
import pytest
import torch

from segmeter.data.config import FolderConfig
from segmeter.data.verification.intensity import normalisation
from segmeter.data.verification.report import open_splits
from segmeter.errors import DataError
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import Segmenter, build_segmenter
from segmeter.schema import as_plain
from segmeter.training.config import AdamWConfig
from segmeter.training.data.augment import Augment
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.data.sampling import SampleSource
from segmeter.training.trainer import train
from tests.data.crafted import put
from tests.training.tiny import SPEC, TinyNetwork, tiny_job

DEFAULT = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def write_copies(root):
    """Three tones of a noisy picture are the classes; the 12-bit copy has the same light in finer steps."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        target = np.kron(rng.integers(0, 3, (4, 4)), np.ones((6, 6), int)).astype(np.uint8)
        light = np.clip(0.2 + 0.25 * target[..., None] + 0.06 * rng.standard_normal((24, 24, 3)), 0, 1)
        copies = {"8": np.rint(light * 255).astype(np.uint8), "12": np.rint(light * 4095).astype(np.uint16)}
        for name, pixels in copies.items():
            (root / name / "images").mkdir(parents=True, exist_ok=True)
            np.save(root / name / "images" / f"c{seed:02d}.npy", pixels)
            put(root / name / "masks" / f"c{seed:02d}.png", target)


def score_of(folder, root, *, network=None, epochs=12, lr=0.05, **fields):
    config = FolderConfig(root=str(root), classes=SPEC.names, colours=SPEC.colours, ignore_index=255, **fields)
    config = config.replace(val_fraction=0.3, test_fraction=0)
    datasets, (seen, _) = open_splits(config, ["train", "val"])
    mean, std = normalisation(config, seen.intensities, DEFAULT)
    torch.manual_seed(3)
    card = ModelCard(
        model=as_plain(network) if network else {"name": "tiny"}, spec=SPEC, in_channels=3, mean=mean, std=std
    )
    cases, val_cases = (CachedDataset(dataset, Budget(10**7)) for dataset in datasets)
    augment = AugmentConfig(brightness=0.05, contrast=0.05)
    folder.mkdir(parents=True)
    job = tiny_job(
        folder,
        cases=cases,
        val_cases=val_cases,
        source=SampleSource(cases, augment, batch_size=4, seed=0, samples=40),
        segmenter=build_segmenter(card) if network else Segmenter(TinyNetwork(), card),
        augment=Augment(augment, SPEC),
        epochs=epochs,
        validate_every=epochs,
        optimizer=AdamWConfig(lr=lr),
    )
    return train(job).score


@pytest.mark.parametrize(
    ("eight", "twelve"),
    [({"mean": "auto", "std": "auto"},) * 2, ({}, {"full_scale": 4095.0})],
    ids=["auto", "full-scale"],
)
def test_twelve_bit_copies_train_as_well_as_eight_bit_ones(tmp_path, eight, twelve):
    write_copies(tmp_path)
    one, other = score_of(tmp_path / "a", tmp_path / "8", **eight), score_of(tmp_path / "b", tmp_path / "12", **twelve)
    assert one > 0.7
    assert abs(one - other) < 0.02


def test_without_a_remedy_they_are_refused_before_the_first_step(tmp_path):
    write_copies(tmp_path)
    with pytest.raises(DataError, match=r"near mean 0 and spread 1, .*data.full_scale=4095 if these are 12-bit images"):
        score_of(tmp_path / "a", tmp_path / "12")
