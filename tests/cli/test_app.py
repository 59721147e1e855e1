import pytest

from segmeter.cli.app import check, plugins_of, print_schema, read_arguments
from segmeter.cli.config.compose import Request, store_schemas
from segmeter.errors import ConfigError


@pytest.fixture(autouse=True, scope="module")
def schemas():
    store_schemas(["train"])


def test_flags_and_overrides_may_be_mixed():
    args = read_arguments("train", ["loss=dice", "--cfg", "job", "seed=3", "-p", "loss", "--resolve"])
    assert args.overrides == ["loss=dice", "seed=3"]
    assert (args.cfg, args.package, args.resolve, args.multirun) == ("job", "loss", True, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--experimental-rerun", "x.pickle"], "segmeter train: unrecognized arguments: --experimental-rerun"),
        (["--config-path", "/tmp"], "--config-path is not allowed"),
        (["--cfg", "hydra"], "segmeter train: argument --cfg/-c: invalid choice"),
        (["--nosuch"], "segmeter train: unrecognized arguments: --nosuch"),
        (["--multi"], "segmeter train: unrecognized arguments: --multi"),  # no abbreviations
    ],
)
def test_flags_that_are_not_allowed_are_refused_by_name(given, words):
    with pytest.raises(ConfigError, match=words):
        read_arguments("train", given)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["seed=1"], []),
        (["plugins=[a.b]"], ["a.b"]),
        (["+plugins=['a', \"b\"]", "seed=1"], ["a", "b"]),
        (["plugins=a"], ["a"]),
        (["plugins=[]"], []),
    ],
)
def test_plugins_are_read_from_the_command_line_itself(overrides, names):
    assert plugins_of(overrides) == names


def test_a_request_becomes_a_checked_configuration():
    ((job, config),) = check("train", Request("train", ["loss=focal", "loss.gamma=1.5"]))
    assert job.overrides == ("loss=focal", "loss.gamma=1.5")
    assert config.loss.gamma == 1.5


def test_every_problem_is_said_at_once_and_once():
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", ["loss=focal", "loss.gamma=-1", "seed=1,2", "model.dpth=3"], sweep=True))
    problems = caught.value.problems
    assert len(problems) == len(set(problems)) == 2
    assert any("gamma" in line for line in problems)
    assert any("dpth" in line for line in problems)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("metrics.seed=${nope}", "config: can't resolve `metrics.seed`: "),
        ("references=b\u00e4ck", "Text with letters beyond ASCII needs quotes that reach the program: "),
        ("++predictions=[", "config: can't read the override '++predictions=[' "),
    ],
)
def test_what_only_follows_from_a_value_that_could_not_be_read_is_not_said(override, says):
    needed = ("predictions=a", "references=b", "data.num_classes=2")
    given = [line for line in needed if line.partition("=")[0][:8] not in override]
    with pytest.raises(ConfigError) as refused:
        check("score", Request("score", [*given, override, "nosuch=1"]))
    first, second = refused.value.problems
    assert says in first
    assert "unknown key 'nosuch'" in second


@pytest.mark.parametrize("arguments", [[], ["train", "loss"]])
def test_schema_refuses_all_but_one_name_with_those_there_are(arguments):
    with pytest.raises(ConfigError, match=rf"schema: expected one name, got {len(arguments)}. Known: .*train"):
        print_schema(arguments)


def test_schema_refuses_an_unknown_name_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        print_schema(["trian"])
