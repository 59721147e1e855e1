"""What a run leaves open follows from the training split and the device; what is given stays."""

from dataclasses import replace

import pytest

from segmeter.data.verification.splits import build_dataset, check_dataset
from segmeter.models.config import UnetConfig
from segmeter.training.config import TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.plan import EPOCH_BATCHES, LEAST_BATCH, fit_budget, plan_training
from tests.data.crafted import folder, make_folder

AUTO = TrainingConfig(plan=True, batch_size="auto")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    root = make_folder(tmp_path_factory.mktemp("set"))
    return check_dataset(build_dataset(folder(root), split="all"), use_cache=False)


@pytest.fixture
def data(tmp_path):
    return folder(tmp_path)


def plan(seen, data, sizes, device="cpu", training=AUTO, augment=None):
    seen = replace(seen, sizes=sizes, n_cases=sum(sizes.values()))
    return plan_training(training, data, augment or AugmentConfig(), train_report=seen, device=device)


def test_seven_large_images_on_two_cpu_cores(seen, data):
    """Four crops of 256 x 256 make the pixels of a step; an epoch is 250 steps; no limit is given, so 10 minutes."""
    found = plan(seen, data, {(960, 999): 7})
    assert (found.augment.crop, found.training.batch_size, found.data.samples_per_epoch) == ((256, 256), 4, 1000)
    assert (found.data.mean, found.data.std, found.training.time_budget) == ("auto", "auto", "10m")
    assert found.overrides == [
        *("training.batch_size=4", "training.time_budget=10m", "data.mean=auto", "data.std=auto"),
        *("data.samples_per_epoch=1000", "augment.crop=[256,256]", "augment.balance=0.333"),
    ]


UNCHANGED = AugmentConfig(crop=None, brightness=0, contrast=0)
BALANCED = 1 / 3


@pytest.mark.parametrize(
    ("sizes", "options", "crop", "batch", "samples", "balance"),
    [
        ({(512, 512): 60_000, (600, 800): 40_000}, {"device": "cuda"}, (512, 512), 8, 8 * EPOCH_BATCHES, BALANCED),
        ({(64, 64): 500}, {}, None, 32, 32 * EPOCH_BATCHES, None),
        ({(900, 900): 5}, {"augment": AugmentConfig(crop=(800, 800))}, (800, 800), LEAST_BATCH, 500, BALANCED),
        ({(64, 64): 5}, {"augment": UNCHANGED}, None, 5, None, None),
    ],
    ids=["many images", "small ones are taken whole", "no batch of one image", "equal samples once an epoch"],
)
def test_crop_batch_and_epoch_follow_from_the_images(seen, data, sizes, options, crop, batch, samples, balance):
    found = plan(seen, data, sizes, **options)
    assert (found.augment.crop, found.training.batch_size, found.data.samples_per_epoch) == (crop, batch, samples)
    assert found.augment.balance == pytest.approx(balance)
    assert (found.training.time_budget is None) == ("device" in options)


def test_whatever_is_given_stays(seen, data):
    training = AUTO.replace(batch_size=3, epochs=2)
    data = data.replace(mean=(0.5,) * 3, std=(0.2,) * 3, samples_per_epoch=17)
    augment = AugmentConfig(crop=(128, 96), balance=0.0)
    found = plan(seen, data, {(960, 999): 7}, training=training, augment=augment)
    assert (found.chosen, found.training, found.data) == ({}, training, data)


@pytest.mark.parametrize(
    ("training", "chosen"),
    [
        (TrainingConfig(), {"augment.crop": (512, 512)}),
        (TrainingConfig(batch_size="auto", epochs=3), {"augment.crop": (256, 256), "training.batch_size": 4}),
    ],
    ids=["nothing", "the batch"],
)
def test_without_a_plan_the_crop_is_chosen_and_what_is_left_open(seen, data, training, chosen):
    found = plan(seen, data, {(960, 999): 7}, training=training)
    assert found.chosen == chosen
    assert found.training == training.replace(batch_size=found.training.batch_size)


BUDGET = AUTO.replace(time_budget="10m")


def fit(seen, data, step_s, *, training=BUDGET, val_cases=4, given=(), sizes=None):
    planned = plan(seen, data, sizes or {(584, 565): 16}, training=training)
    seen = replace(seen, sizes=sizes or {(584, 565): 16})
    return fit_budget(
        planned,
        UnetConfig(),
        step_s=step_s,
        train_report=seen,
        val_cases=val_cases,
        is_open=lambda key: key not in given,
    )


def test_a_quiet_machine_keeps_its_plan_and_validates_often_enough(seen, data):
    """600 s less a fifth are 480 steps of a second; a tenth of them is 48, which leaves two validations to spare."""
    found = fit(seen, data, 1.0)
    assert (found.training.batch_size, found.augment.crop, found.model, found.problem) == (4, (256, 256), {}, "")
    assert (found.training.validate_every, found.training.validate_unit) == (48, "steps")


@pytest.mark.parametrize(
    ("step_s", "batch", "crop", "model"),
    [
        (2.5, 2, (256, 256), {}),
        (3.9, 2, (256, 256), {"encoder": "resnet18"}),
        (6.0, 2, (160, 160), {"encoder": "resnet18"}),
        (10.0, 2, (128, 128), {"encoder": "resnet18", "downsample": 2}),
    ],
)
def test_a_busy_machine_gets_a_smaller_step_that_fits(seen, data, step_s, batch, crop, model):
    found = fit(seen, data, step_s)
    assert (found.training.batch_size, found.augment.crop, found.model, found.problem) == (batch, crop, model, "")
    assert found.data.samples_per_epoch == EPOCH_BATCHES * batch


def test_a_budget_that_is_too_short_says_what_would_do(seen, data):
    """A step of 40 s becomes 40 x 183,072 / 314,144 x .69 x (2 x 128^2 + 52,000) / 183,072 = 7.45 s, or 2,793 s."""
    found = fit(seen, data, 40.0)
    assert found.steps == 64
    assert "holds about 64 steps of 7.4 s" in found.problem
    assert "2793 s would be enough" in found.problem
    assert found.model == {"encoder": "resnet18"}, "half of the resolution, 5.29 s, would be lost for nothing"


def test_values_of_the_user_stay_though_the_budget_is_too_short(seen, data):
    given = ("model.encoder", "model.downsample", "training.validate_every")
    found = fit(seen, data, 9.0, training=BUDGET.replace(batch_size=4), given=given)
    assert (found.training.batch_size, found.model, found.training.validate_unit) == (4, {}, "epochs")
    assert found.augment.crop == (128, 128)
    assert found.problem


def test_validations_take_a_fifth_of_the_budget_at_most(seen, data):
    """A case of 584 x 565 takes 1/3 x 1 s x 329,960 / 262,144 = .42 s; eight validations of 35 cases are 118 s."""
    assert fit(seen, data, 1.0, val_cases=100).training.validate_cases == 35
    assert fit(seen, data, 1.0, val_cases=35).training.validate_cases is None
