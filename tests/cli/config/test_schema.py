"""The root configurations of commands without a model: what goes together, and what is refused with its line."""

from pathlib import Path
from typing import Any

import pytest

from segmeter.cli.config.schema import CompareConfig, RunConfig, ScoreConfig
from segmeter.errors import ConfigError
from segmeter.schema import Config, defaults

SCORE = {"predictions": "p", "references": "r", "data": {"num_classes": 2}}
COMPARE = {"runs": ["a", "b"], "metrics": {"bootstrap": 10}}


def full(schema: type[Config], values: dict[str, Any]) -> dict[str, Any]:
    """The defaults, as Hydra composes them, with these values."""
    found = defaults(schema) | {"launch": {"name": "local"}} if "launch" in schema.model_fields else defaults(schema)
    for key, value in values.items():
        found[key] = found[key] | value if isinstance(value, dict) else value
    return found


def made(schema: type[Config], values: dict[str, Any]) -> Any:
    return schema(**full(schema, values))


def problem_of(schema: type[Config], values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        made(schema, values)
    (line,) = error.value.problems
    return line


@pytest.mark.parametrize("name", ["a/b", "a\\b", "", "a\nb", "a\0"])
def test_a_runs_name_is_one_part_of_a_path(name):
    with pytest.raises(ConfigError, match="`name` to be a plain name without slashes"):
        RunConfig(name=name)
    assert RunConfig(name="a b.c").name == "a b.c"


@pytest.mark.parametrize(
    ("shard", "taken"), [("2/7", True), ("7/7", True), (None, True), ("8/7", False), ("0/7", False)]
)
def test_a_shard_is_one_of_so_many(shard, taken):
    values = SCORE | {"shard": shard}
    if taken:
        assert made(ScoreConfig, values).shard == shard
    else:
        line = problem_of(ScoreConfig, values)
        assert f"`shard` to be NUMBER/COUNT, the number being at most the count: 2/7, got {shard!r}" in line


def test_labels_carry_no_probabilities_to_calibrate():
    values = SCORE | {"metrics": {"calibration": True}}
    line = problem_of(ScoreConfig, values)
    assert "`probs` to be given for metrics.calibration, got null. Set probs=FOLDER" in line
    assert made(ScoreConfig, values | {"probs": "probs"}).probs == Path("probs")


@pytest.mark.parametrize(("metrics", "line"), [
    ({"bootstrap": 0}, "`metrics.bootstrap` to be an integer >= 1 and <= 1000000"),
    ({"bootstrap": 9, "measures": ["surface"]}, "`metrics.measures` to be empty"),
], ids=["no draws", "measures"])  # fmt: skip
def test_runs_are_compared_by_draws_and_by_the_measures_that_they_have(metrics, line):
    problem = problem_of(CompareConfig, COMPARE | {"metrics": metrics})
    assert line in problem
    assert made(CompareConfig, COMPARE).metrics.bootstrap == 10
