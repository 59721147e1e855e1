import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.training.config import LOGGERS, OPTIMIZERS, SCHEDULES, TrainingConfig, find_monitor, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("12m", 720.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("2h5s", 7205.0), ("90", 90.0), (90, 90.0)),
        *(("0.5m", 30.0), ("1h30", 5400.0), ("5m30", 330.0), ("1h2m3", 3723.0), ("1h2m3s", 3723.0)),
    ],
)
def test_duration_in_hours_minutes_and_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "12x", "-3", "0", "m", "inf", "nan", "30m1h", "1:30", "1h30x", "1 30"])
def test_duration_refuses_what_is_no_length_of_time(text):
    with pytest.raises(ConfigError, match="training: expected `time_budget` to be like 12m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "expected `batch_size` to be an integer >= 1 and <= 65536 or one of auto, got 0"),
        ({"epochs": 0}, "expected `epochs` to be an integer >= 1"),
        ({"clip_norm": float("nan")}, "expected `clip_norm` to be a number > 0 or null, got nan"),
        ({"time_budget": "soon"}, "expected `time_budget` to be like 12m, 1h30m or 90"),
        ({"monitor": "mean_iuo"}, r"expected `monitor` to be one of .*Did you mean 'mean_iou'\?"),
        ({"validate_unit": "epoch"}, r"Did you mean 'epochs'\?"),
        ({"compile": "yes"}, "expected `compile` to be one of auto, true, false"),
        ({"seed": -1}, "expected `seed` to be an integer >= 0"),
    ],
)
def test_training_refuses(values, message):
    with pytest.raises(ConfigError, match=f"training: .*{message}"):
        TrainingConfig(**values)


LR = "optimizer: expected `lr` to be a number > 0 and <= 10, got"
RISE = r"schedule: expected `{}` to be a number >=? 0 and <= 0\.9, got 1\.0"


@pytest.mark.parametrize(
    ("schema", "values", "message"),
    [
        *((OPTIMIZERS.schema(name), {"lr": lr}, LR) for name in OPTIMIZERS.names() for lr in (0.0, float("inf"), 10.1)),
        *((SCHEDULES.schema(name), {"warmup": 1.0}, RISE.format("warmup")) for name in ("cosine", "poly", "constant")),
        (SCHEDULES.schema("one_cycle"), {"rise": 1.0}, RISE.format("rise")),
        (OPTIMIZERS.schema("sgd"), {"momentum": 0.0}, "expected `nesterov` to be false where momentum is 0"),
    ],
)
def test_optimizers_and_schedules_refuse(schema, values, message):
    with pytest.raises(ConfigError, match=message):
        schema(**values)


def test_every_choice_is_registered_under_its_own_name():
    for registry in (OPTIMIZERS, SCHEDULES):
        assert [registry.schema(name)().name for name in registry.names()] == registry.names()


def test_several_loggers_are_one_and_others():
    config = LOGGERS.schema("wandb")(mode="offline", also=("tensorboard", "none"))
    assert [each.name for each in config.all] == ["wandb", "tensorboard", "none"]
    with pytest.raises(ConfigError, match="to name loggers, not 'tensorbord'"):
        LOGGERS.schema("wandb")(also=("tensorbord",))
    with pytest.raises(ConfigError, match="to name each logger once"):
        LOGGERS.schema("wandb")(also=("wandb",))


@pytest.mark.parametrize(("task", "monitor"), [("binary", "iou/cell"), ("multiclass", "mean_iou")])
def test_a_binary_task_is_followed_by_its_object_and_a_score_that_is_not_computed_refused(task, monitor):
    spec = ClassSpec(task=task, names=("ground", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    assert find_monitor("auto", spec) == monitor
    assert find_monitor("mean_iou", spec) == "mean_iou"
    matched = "pq/cell" if task == "binary" else "pq/mean"
    assert find_monitor("auto", spec, objects=True) == matched
    with pytest.raises(ConfigError, match="to be a score that validation computes, got 'pq/"):
        find_monitor(matched, spec)
    with pytest.raises(ConfigError, match=r"`monitor` to be a score .* got 'iou/grond'\. Did you mean 'iou/ground'\?"):
        find_monitor("iou/grond", spec)
