import pytest
import yaml

from segmeter.cli.config.compose import Request, compose_jobs, store_schemas
from segmeter.cli.config.groups import ROOTS
from segmeter.cli.config.reference import yaml_text
from segmeter.errors import ConfigError


@pytest.fixture(scope="module")
def job():
    store_schemas(["train"])
    problems = []
    (job,) = compose_jobs(Request("train", ["loss=focal", "loss.gamma=1.5", "run.name=run-${seed}"]), problems)
    assert problems == []
    return job


def shown(job, *, part=None, resolve=False):
    return yaml_text(ROOTS["train"], job.values if resolve else job.raw, part=part)


def test_the_text_reads_back_as_the_configuration(job):
    assert yaml.safe_load(shown(job))["loss"] == job.values["loss"]
    assert yaml.safe_load(shown(job))["loss"]["gamma"] == 1.5


def test_a_part_alone_is_the_same_as_in_the_whole(job):
    assert yaml.safe_load(shown(job, part="loss")) == yaml.safe_load(shown(job))["loss"]
    assert shown(job, part="loss.gamma") == "1.5\n"


def test_a_key_is_followed_by_its_meaning_and_what_it_takes(job):
    (line,) = [line for line in shown(job, part="loss").splitlines() if line.startswith("gamma:")]
    value, _, comment = line.partition("  # ")
    assert value == "gamma: 1.5"
    assert ">= 0" in comment


def test_a_meaning_stands_above_its_key_where_a_terminal_has_no_room_beside_it(job, monkeypatch):
    wide = yaml.safe_load(shown(job))
    monkeypatch.setenv("COLUMNS", "80")
    narrow = shown(job)
    assert yaml.safe_load(narrow) == wide
    assert max(map(len, narrow.splitlines())) <= 80
    assert (
        "\n  # Limit: passes over the training data, or null [an integer >= 1 or null,\n  # epochs]\n  epochs:"
        in narrow
    )


def test_interpolations_are_resolved_when_asked_for(job):
    name = yaml.safe_load(shown(job))["run"]["name"]
    assert name == "run-${seed}"
    assert yaml.safe_load(shown(job, resolve=True))["run"]["name"] == "run-0"


def test_an_unknown_part_names_the_nearest(job):
    with pytest.raises(ConfigError, match=r"there is no 'los' to show.*'loss'"):
        shown(job, part="los")
    with pytest.raises(ConfigError, match=r"there is no 'seed.x' to show"):
        shown(job, part="seed.x")
