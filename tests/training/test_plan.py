"""What a run leaves open follows from the training split and the device; what is given stays."""

from dataclasses import replace

import numpy as np
import pytest

from segmeter.data.build import build_dataset
from segmeter.data.verification.report import check_dataset
from segmeter.training.config import TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.plan import EPOCH_BATCHES, LEAST_BATCH, STEP_PIXELS, plan_training
from tests.data.crafted import folder, make_folder

AUTO = TrainingConfig(plan=True, batch_size="auto")
UNCHANGED = AugmentConfig(crop=None, brightness=0, contrast=0)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    root = make_folder(tmp_path_factory.mktemp("set"))
    return check_dataset(build_dataset(folder(root), split="all"), use_cache=False)


@pytest.fixture
def data(tmp_path):
    return folder(tmp_path)


def plan(seen, data, sizes, device="cpu", training=AUTO, augment=None):
    seen = replace(seen, sizes=sizes, n_cases=sum(sizes.values()))
    return plan_training(training, data, augment or AugmentConfig(), seen=seen, device=device)


def test_seven_large_images_on_two_cpu_cores(seen, data):
    """Four crops of 256 x 256 make the pixels of a step; an epoch is 250 steps; no limit is given, so 10 minutes."""
    found = plan(seen, data, {(960, 999): 7})
    assert (found.augment.crop, found.training.batch_size, found.data.samples_per_epoch) == ((256, 256), 4, 1000)
    assert (found.data.mean, found.data.std, found.training.time_budget) == ("auto", "auto", "10m")
    assert found.overrides == [
        *("training.batch_size=4", "training.time_budget=10m", "data.mean=auto", "data.std=auto"),
        *("data.samples_per_epoch=1000", "augment.crop=[256,256]", "augment.balance=0.333"),
    ]


def test_many_images_have_epochs_of_the_same_length(seen, data):
    found = plan(seen, data, {(512, 512): 60_000, (600, 800): 40_000}, device="cuda")
    assert (found.augment.crop, found.training.batch_size) == ((512, 512), 8)
    assert found.data.samples_per_epoch == 8 * EPOCH_BATCHES
    assert found.training.time_budget is None


def test_small_images_are_taken_whole_in_large_batches(seen, data):
    found = plan(seen, data, {(64, 64): 500})
    assert (found.augment.crop, found.training.batch_size, found.augment.balance) == (None, 32, None)


def test_batches_are_never_of_one_image(seen, data):
    found = plan(seen, data, {(900, 900): 5}, augment=AugmentConfig(crop=(800, 800)))
    assert found.training.batch_size == LEAST_BATCH
    assert STEP_PIXELS["cpu"] < 800 * 800 * LEAST_BATCH


def test_where_samples_would_be_the_same_bits_an_epoch_takes_each_case_once(seen, data):
    found = plan(seen, data, {(64, 64): 5}, augment=UNCHANGED)
    assert found.data.samples_per_epoch is None
    assert found.training.batch_size == 5


GIVEN = {
    "training": {"batch_size": 3, "epochs": 2},
    "data": {"mean": (0.5,) * 3, "std": (0.2,) * 3, "samples_per_epoch": 17},
    "augment": {"crop": (128, 96), "balance": 0.0},
}


def test_whatever_is_given_stays(seen, data):
    training, data = AUTO.replace(**GIVEN["training"]), data.replace(**GIVEN["data"])
    found = plan(seen, data, {(960, 999): 7}, training=training, augment=AugmentConfig(**GIVEN["augment"]))
    assert found.chosen == {}
    assert found.training == training
    assert found.data == data


def test_without_a_plan_the_crop_alone_is_chosen_as_before(seen, data):
    found = plan(seen, data, {(960, 999): 7}, training=TrainingConfig())
    assert found.chosen == {"augment.crop": (512, 512)}
    assert found.training == TrainingConfig()


def test_a_batch_alone_may_be_left_open(seen, data):
    found = plan(seen, data, {(960, 999): 7}, training=TrainingConfig(batch_size="auto", epochs=3))
    assert found.chosen == {"augment.crop": (256, 256), "training.batch_size": 4}


def test_the_plan_is_one_that_sampling_takes(seen, data):
    from segmeter.training.data.sampling import SampleSource
    from tests.training.tiny import TinyCases

    found = plan(seen, data, {(40, 48): 3})
    cases = TinyCases(count=3, size=40)
    samples = found.data.samples_per_epoch
    source = SampleSource(cases, found.augment, batch_size=found.training.batch_size, seed=0, samples=samples)
    assert len(source) == EPOCH_BATCHES
    assert np.asarray(source.batch(0, 0)[0]).shape[0] == found.training.batch_size
